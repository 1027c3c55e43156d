"""What changes the architecture and is not modelled stops an import, by name and value; what cannot, does not."""

from __future__ import annotations

from typing import Any

import pytest
from imported import FACTS, error_of, fact

from archlab.errors import ConfigError
from archlab.interop.families import family
from archlab.interop.harmless import HARMLESS
from archlab.interop.hub import read_config, spec_of
from archlab.interop.reader import Fields

LLAMA = fact("llama-3.1-8b")["hf_config"]


def changed(name: str, **more: Any) -> dict[str, Any]:
    return {**fact(name)["hf_config"], **more}


@pytest.mark.parametrize("name", FACTS)
def test_an_unknown_field_is_refused_by_name_and_value(name: str) -> None:
    assert "I do not model mystery = 7" in error_of(changed(name, mystery=7))


@pytest.mark.parametrize("name", FACTS)
def test_fields_that_cannot_matter_do_not(name: str) -> None:
    config = fact(name)["hf_config"]
    own = Fields(config)
    family(config["model_type"]).read(own)
    read = {*own.asked, "model_type", "_name_or_path", "architectures"}
    taken = dict.fromkeys(HARMLESS.keys() - read, "anything")
    assert read_config({**taken, **config}) == read_config(config)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("gpt2", {"add_cross_attention": True}, "I do not model add_cross_attention = true"),
        ("gpt2", {"is_encoder_decoder": True}, "I do not model is_encoder_decoder = true"),
        ("gpt2", {"activation_function": "quick_gelu"}, 'activation_function = "quick_gelu"'),
        ("llama-3-8b", {"rope_scaling": {"type": "mrope"}}, 'rope_scaling.type: I do not model type = "mrope"'),
        ("llama-3-8b", {"rope_scaling": {"type": "linear", "factor": 2, "odd": 1}}, "I do not model odd = 1"),
        ("llama-3-8b", {"partial_rotary_factor": 0.5}, "I do not model 0.5 in this family"),
        ("llama-3-8b", {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: is missing"),
        ("mistral-7b-v0.1", {"layer_types": ["full_attention"] * 32}, "layers that differ"),
        ("qwen2-7b", {"layer_types": ["linear_attention"] * 28}, 'I do not model "linear_attention"'),
        ("qwen2-7b", {"layer_types": ["full_attention"]}, "has 1 items, not 28"),
        ("qwen2-7b", {"layer_types": ["sliding_attention"] * 28}, "sliding_window is not set"),
        ("bloom-560m", {"apply_residual_connection_post_layernorm": True}, "post_layernorm = true"),
        ("mpt-7b", {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_config.attn_type: I do not model"),
        ("mpt-7b", {"attn_config": {"alibi": False}}, "I do not model alibi = false"),
        ("mpt-7b", {"attn_config": {"alibi_bias_max": 4}}, "I do not model alibi_bias_max = 4"),
        ("mpt-7b", {"expansion_ratio": 3}, "I do not model expansion_ratio = 3"),
        ("falcon-7b", {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn = false"),
        ("opt-125m", {"word_embed_proj_dim": 512}, "I do not model word_embed_proj_dim = 512"),
        ("starcoder2-3b", {"mlp_type": "gated"}, 'I do not model mlp_type = "gated"'),
        ("gemma-2b", {"use_bidirectional_attention": True}, "use_bidirectional_attention = true"),
        ("gemma-3-1b", {"attn_logit_softcapping": 50.0}, "I do not model attn_logit_softcapping = 50.0"),
        ("olmoe-1b-7b", {"head_dim": 64}, "I do not model head_dim = 64; valid: 128, null"),
        ("phi-2", {"head_dim": 64, "qk_layernorm": True}, "I do not model head_dim = 64; valid: 80, null"),
        ("phi-3-mini-4k", {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling.type: I do not model type"),
        ("gpt-oss-20b", {"hidden_act": "gelu"}, 'I do not model hidden_act = "gelu"'),
        ("deepseek-v3", {"topk_method": "greedy"}, 'I do not model topk_method = "greedy"'),
        ("deepseek-v3", {"scoring_func": "softmax"}, 'I do not model scoring_func = "softmax"'),
        ("deepseek-v3", {"num_key_value_heads": 8}, "I do not model num_key_value_heads = 8"),
        ("smollm3-3b", {"no_rope_layers": [2] * 36}, "2 is not 0 or 1"),
    ],
)
def test_what_is_not_modelled_is_named(name: str, more: dict[str, Any], message: str) -> None:
    assert message in error_of(changed(name, **more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"hidden_size": "4096"}, 'hidden_size: "4096" is not a whole number'),
        ({"hidden_size": 4096.0}, "hidden_size: 4096.0 is not a whole number"),
        ({"hidden_size": True}, "hidden_size: true is not a whole number"),
        ({"hidden_size": -4096}, "hidden_size: -4096 is not from 1"),
        ({"hidden_size": 0}, "hidden_size: 0 is not from 1"),
        ({"hidden_size": None}, "hidden_size: is null"),
        ({"hidden_size": 10**400}, "hidden_size: "),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not from 1 to 10,000"),
        ({"num_attention_heads": 10**9}, "does not divide hidden_size"),
        ({"num_key_value_heads": 7}, "7 does not divide num_attention_heads = 32"),
        ({"rms_norm_eps": "1e-5"}, 'rms_norm_eps: "1e-5" is not a number'),
        ({"rope_theta": [1]}, "rope_theta: [1] is not a number"),
        ({"rope_scaling": "linear"}, 'rope_scaling: "linear" is not an object'),
        ({"tie_word_embeddings": "no"}, 'tie_word_embeddings: "no" is not true or false'),
        ({"hidden_act": ["silu"]}, "I do not model hidden_act"),
        ({"attention_dropout": 1.5}, "1.5 is not a rate from 0 to below 1"),
        ({"n_embd": 1024}, "1024 is not hidden_size = 4096; they are one thing"),
        ({"model_type": "lama"}, "did you mean llama?"),
        ({"model_type": None}, "model_type: is missing; valid: bloom, "),
        ({"model_type": {"a": 1}}, "model_type: I do not know"),
        ({"text_config": 3}, "text_config: 3 is not an object"),
    ],
)
def test_a_wrong_value_is_one_clear_line(more: dict[str, Any], message: str) -> None:
    assert message in error_of({**LLAMA, **more})


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("llama-3-8b", {"rms_norm_eps": -1}, "rms_norm_eps: -1 must be > 0"),
        ("starcoder2-3b", {"norm_epsilon": 0}, "norm_epsilon: 0 must be > 0"),
        ("gpt2", {"layer_norm_epsilon": -0.5}, "layer_norm_epsilon: -0.5 must be > 0"),
        ("llama-3-8b", {"rope_theta": 1}, "rope_theta: 1 must be > 1"),
        ("pythia-160m", {"rotary_emb_base": 0}, "rotary_emb_base: 0 must be > 1"),
        ("pythia-160m", {"rotary_pct": -1}, "rotary_pct: -1 must be > 0"),
        ("gemma-3-1b", {"rope_local_base_freq": -7}, "rope_local_base_freq: -7 must be > 1"),
        ("llama-3-8b", {"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor: 0 must be >= 1"),
        ("llama-3-8b", {"rope_parameters": {"rope_type": "linear", "factor": 0}}, "rope_parameters.factor: 0 must be"),
        ("qwen2.5-7b-yarn", {"rope_scaling": {"type": "yarn", "factor": 4, "beta_slow": -2}}, "rope_scaling.beta_slow"),
        ("qwen3-0.6b", {"head_dim": 7}, "head_dim: 7 features of a head of 7 would be rotated"),
        ("gpt-j-6b", {"rotary_dim": 3}, "rotary_dim: 3 features of a head of 256 would be rotated"),
        ("mixtral-8x7b", {"num_local_experts": 1}, "num_experts_per_tok: 2 is more than the 1 experts to choose from"),
        ("deepseek-v3", {"n_group": 3}, "n_group: 3 does not divide"),
        ("gemma-2-2b", {"hidden_activation": "relu2"}, 'hidden_activation: I do not model hidden_activation = "relu2"'),
        ("deepseek-v3", {"topk_group": 9}, "topk_group: 9 is more than the 8"),
    ],
)
def test_a_value_that_cannot_be_is_named_as_the_file_has_it(name: str, more: dict[str, Any], message: str) -> None:
    def read() -> None:
        config = changed(name, **more)
        spec_of(config, read_config(config)[1])

    with pytest.raises(ConfigError) as caught:
        read()
    assert str(caught.value).startswith(message)


OTHERS = ("mamba", "jamba", "llama4", "llama4_text", "cohere2", "olmo3", "qwen3_next", "phimoe", "chatglm", "gemma3")


@pytest.mark.parametrize("name", OTHERS)
def test_another_family_is_no_misspelling(name: str) -> None:
    assert "did you mean" not in error_of({"model_type": name})


@pytest.mark.parametrize(("name", "meant"), [("lama", "llama"), ("gptneox", "gpt_neox"), ("qwen3moe", "qwen3_moe")])
def test_a_misspelling_is_answered(name: str, meant: str) -> None:
    assert f"did you mean {meant}?" in error_of({"model_type": name})


def test_what_is_said_back_of_a_config_is_short() -> None:
    assert len(error_of({**LLAMA, "x" * 10**6: "y" * 10**6})) < 300
    assert len(error_of({**LLAMA, "hidden_size": ["z"] * 10**5})) < 300


def test_old_names_are_read() -> None:
    modern = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
    old = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}
    assert read_config({"model_type": "gpt2", **modern}) == read_config({"model_type": "gpt2", **old})


def test_b36_missing_or_null_kv_heads_mean_one_for_each_query_head() -> None:
    config = {key: value for key, value in fact("llama-2-7b")["hf_config"].items() if key != "num_key_value_heads"}
    assert read_config(config)[1]["attention"] == {"choice": "mha", "n_heads": 32}
    assert read_config({**config, "num_key_value_heads": None}) == read_config(config)


def test_a_nested_text_config_is_the_model() -> None:
    inner = fact("gemma-3-1b")["hf_config"]
    outer = {"model_type": "gemma3", "vision_config": {"hidden_size": 3}, "text_config": inner}
    assert read_config(outer) == read_config(inner)
    untied = read_config({**outer, "tie_word_embeddings": False})[1]
    assert untied["head"]["choice"] == "untied"


def test_equal_layers_fold_into_the_shortest_pattern() -> None:
    layers = read_config(fact("gemma-3-1b")["hf_config"])[1]["layers"]
    assert [entry.get("repeat", 1) for entry in layers] == [5, 1]
    assert [entry["attention"]["window"] for entry in layers] == [512, None]
    dense = read_config(fact("deepseek-v3")["hf_config"])[1]["layers"]
    assert dense == [{"ffn": {"choice": "swiglu", "d_ff": 18432}, "repeat": 3}, {"repeat": 58}]
    assert "layers" not in read_config(fact("mistral-7b-v0.1")["hf_config"])[1]
