"""What an export says where it cannot say the model, and what it must not lose."""

from __future__ import annotations

from typing import Any

import pytest
from imported import FACTS, fact, spec_of

import archlab
from archlab.errors import ConfigError
from archlab.interop.export import export

ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_group": 2, "topk_group": 1}
RANKS = {"kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_hidden_layers": 4}
DENSE = {**ROUTED, **RANKS, "hidden_size": 32, "num_attention_heads": 4, "first_k_dense_replace": 9}


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("gqa", ["model/position=longrope"], "in llama, rope_scaling.short_factor: is missing"),
        ("gqa", ["model/position=sinusoidal"], "in llama, layer 0: position would be rope, not sinusoidal"),
        ("gqa", ["model/ffn=relu2"], "in llama, hidden_act: I do not model"),
        ("gpt2", ["model/norm=rmsnorm"], "in gpt2, norm would be layernorm, not rmsnorm"),
        ("gemma-2b", ["model/ffn=geglu"], "in gemma, hidden_activation: I do not model"),
        ("llama-3-8b", ["model/head=regression"], "in llama, head would be classification, not regression"),
        ("gqa", ["model/ffn=gelu"], "in llama, layer 0: ffn would be geglu, not gelu"),
        ("gpt2", ["model/ffn=swiglu"], "in gpt2, layer 0: ffn would be silu, not swiglu"),
        ("gpt2", ["model/attention=mqa"], "in gpt2, layer 0: attention would be mha, not mqa"),
        ("transformer-2017", [], "block would be pre_norm, not post_norm"),
    ],
)
def test_the_nearest_family_is_blamed(model: str, changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        export(archlab.load(model, *changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("smollm3-3b", {"no_rope_layers": [0, *[1] * 35], "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("gemma-2-2b", {"layer_types": ["full_attention"] * 26}),
        ("gemma-3-1b", {"layer_types": ["full_attention"] * 26}),
        ("gpt-oss-20b", {"layer_types": ["full_attention"] * 24}),
        ("gpt-oss-20b", {"rope_scaling": {"rope_type": "default"}}),
        ("gemma-2b", {"hidden_act": "silu"}),
        ("gemma-2b", {"hidden_act": "relu"}),
        ("qwen3-30b-a3b", {"mlp_only_layers": list(range(48))}),
    ],
)
def test_a_model_of_a_family_is_exported_to_it(name: str, more: dict[str, Any]) -> None:
    config = {**fact(name)["hf_config"], **more}
    spec = spec_of(config)
    again = export(spec)
    assert again["model_type"] == config["model_type"]
    assert spec_of(again) == spec


@pytest.mark.parametrize("name", FACTS)
def test_a_rotation_is_said_once(name: str) -> None:
    """transformers 5's block for two kinds of layer stays out where the hub's block has said it all."""
    exported = export(spec_of(fact(name)["hf_config"]))
    assert "rope_parameters" not in exported


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_deepseek_without_a_mixture_stays_what_it_is(family: str) -> None:
    spec = spec_of({"model_type": family, **DENSE})
    again = export(spec)
    assert again["model_type"] == family
    assert spec_of(again) == spec
