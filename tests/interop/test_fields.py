"""Which fields of a file stop an import: those that change the architecture, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from imported import error_of, fact
from test_defaults import NEEDS, OURS_ALONE
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

from archlab.interop.families import HOME, family
from archlab.interop.harmless import OFF
from archlab.interop.hub import read_config
from archlab.interop.reader import Fields

FAMILIES = sorted(set(HOME) - OURS_ALONE)
LLAMA = fact("llama-3-8b")["hf_config"]
OLDER: dict[str, Any] = {
    **dict.fromkeys(("output_hidden_states", "output_attentions", "torchscript", "use_bfloat16", "is_decoder"), False),
    **dict.fromkeys(("tf_legacy_loss", "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"), False),
    **dict.fromkeys(("cross_attention_hidden_size", "xla_device", "prefix", "finetuning_task", "problem_type")),
    **dict.fromkeys(("tokenizer_class", "task_specific_params", "attn_implementation", "decoder_start_token_id")),
    **dict.fromkeys(("bos_token_id", "pad_token_id", "sep_token_id", "unk_token_id"), 1),
    "return_dict": True,
    "torch_dtype": "float16",
    "pruned_heads": {},
    "chunk_size_feed_forward": 0,
    "num_labels": 2,
    "_num_labels": 2,
    "id2label": {"0": "A", "1": "B"},
    "label2id": {"A": 0, "B": 1},
    "eos_token_id": [2, 3],
    "_name_or_path": "",
    "_commit_hash": None,
    "_attn_implementation": "eager",
    "_attn_implementation_autoset": True,
    "transformers_version": "4.30.0",
}
"""What the base class of transformers 2 to 4 wrote into every file."""


def written(model_type: str) -> dict[str, Any]:
    """All that the family's class writes, defaults included."""
    config = AutoConfig.for_model(model_type, **NEEDS.get(model_type, {}))
    whole: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return whole


@pytest.mark.parametrize("model_type", FAMILIES)
def test_all_that_a_class_of_transformers_writes_is_read(model_type: str) -> None:
    generation = GenerationConfig._get_default_generation_params()
    given = {**OLDER, **PreTrainedConfig().to_dict(), **generation, **written(model_type)}
    bare = {"model_type": model_type, **NEEDS.get(model_type, {})}
    assert read_config(given) == read_config(bare)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_null_in_a_field_of_another_family_says_that_it_is_not_there(model_type: str) -> None:
    bare = {"model_type": model_type, **NEEDS.get(model_type, {})}
    own = Fields(bare)
    family(model_type).read(own)
    others = {key for other in FAMILIES for key in written(other)} - own.asked.keys() - bare.keys()
    assert len(others) > 50
    assert read_config({**dict.fromkeys(others), **bare}) == read_config(bare)


@pytest.mark.parametrize("name", OFF)
def test_a_setting_of_other_families_is_let_be_where_it_is_off_and_refused_where_it_is_not(name: str) -> None:
    for off in OFF[name]:
        assert read_config({**LLAMA, name: off}) == read_config(LLAMA)
    for on in (True, False, 0.5, 7, "yes"):
        if on not in OFF[name]:
            assert name in error_of({**LLAMA, name: on})


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("qwen2-7b", {"attention_bias": True}),
        ("qwen2-7b", {"qkv_bias": True, "use_qk_norm": False}),
        ("qwen3-8b", {"use_qk_norm": True, "qkv_bias": False, "mlp_bias": False}),
        ("gpt2", {"attention_bias": True, "mlp_bias": True}),
        ("mistral-7b-v0.1", {"attention_bias": False, "alibi": False}),
        ("bloom-560m", {"alibi": True}),
        ("falcon-7b", {"ff_factor": 4}),
        ("llama-3-8b", {"layer_types": ["full_attention"] * 32, "sliding_window": None}),
        ("llama-3-8b", {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}),
        ("llama-3-8b", {"max_sequence_length": 2048}),
        ("gemma-2-2b", {"sliding_window_size": 4096}),
        ("starcoder2-3b", {"activation_function": "gelu"}),
    ],
)
def test_what_says_how_the_model_is_anyway_changes_nothing(name: str, more: dict[str, Any]) -> None:
    config = fact(name)["hf_config"]
    assert read_config({**config, **more}) == read_config(config)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("qwen2-7b", {"attention_bias": False}),
        ("qwen3-8b", {"use_qk_norm": False}),
        ("gpt2", {"mlp_bias": False}),
        ("mistral-7b-v0.1", {"attention_bias": True}),
        ("llama-3-8b", {"alibi": True}),
        ("falcon-7b", {"ff_factor": 2}),
        ("llama-3-8b", {"layer_types": ["full_attention"] * 31 + ["sliding_attention"]}),
        ("llama-3-8b", {"sliding_window": 4096}),
        ("llama-3-8b", {"use_sliding_window": True, "sliding_window": 4096}),
        ("gemma-2-2b", {"sliding_window_size": 2048}),
    ],
)
def test_what_says_otherwise_is_refused_by_name(name: str, more: dict[str, Any]) -> None:
    message = error_of({**fact(name)["hf_config"], **more})
    assert any(key in message for key in more)


def test_the_first_llama_files_say_max_sequence_length() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert read_config({**config, "max_sequence_length": 1234})[1]["context"] == 1234
