"""Every family against transformers, live: its own config file, its own weight file, its own logits.

transformers runs with all that it does in float32 (rotary tables, norms, softmax) done in float64, so that what is
compared are the formulas and not the rounding.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from imported import spec_of
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from archlab.cost.params import parameters
from archlab.decoder.cache import KVCache
from archlab.errors import ConfigError
from archlab.interop.export import export
from archlab.interop.families import HOME
from archlab.interop.hub import load_config
from archlab.model import build

pytestmark = pytest.mark.slow  # live, beside transformers

LENGTH = 20
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 64}
TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
SMALL = {**SIZES, **TOKENS, "max_position_embeddings": 48, "intermediate_size": 40}
UNSIZED = {key: value for key, value in SMALL.items() if key != "intermediate_size"}
GROUPED = {**SMALL, "num_key_value_heads": 2}
OLD = {**TOKENS, "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 64, "n_positions": 48}
YARN = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 16, "rope_theta": 100.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 300.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}
LONG = {"short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 3.0, 5.0], "rope_theta": 100.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 5}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
LATENT = {
    **SMALL,
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "moe_intermediate_size": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
}
MSCALE = {**YARN, "mscale": 0.8, "mscale_all_dim": 0.6}
EXPERTS = {**GROUPED, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}

CASES: dict[str, list[dict[str, Any]]] = {
    "llama": [
        {**GROUPED, "attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
        {**SMALL, "head_dim": 6, "rope_parameters": YARN, "tie_word_embeddings": True},
        {**GROUPED, "num_key_value_heads": 1, "hidden_act": "gelu", "rope_parameters": LINEAR},
        {**GROUPED, "max_position_embeddings": 16, "rope_parameters": DYNAMIC},
    ],
    "mistral": [
        {**GROUPED, "sliding_window": 7},
        {**GROUPED, "sliding_window": None, "head_dim": 12},
        {**SMALL, "num_key_value_heads": 4, "sliding_window": 1, "rope_parameters": YARN},
        {**GROUPED, "sliding_window": LENGTH - 1},
    ],
    "qwen2": [
        {**GROUPED, "max_window_layers": 1, **SLIDING},
        {**GROUPED, "tie_word_embeddings": True, "rope_parameters": YARN},
        {**GROUPED, "layer_types": MIXED, **SLIDING, "rms_norm_eps": 1e-3},
    ],
    "qwen3": [
        {**GROUPED, "head_dim": 16, "attention_bias": True},
        {**GROUPED, "head_dim": 8, "max_window_layers": 2, **SLIDING},
        {**SMALL, "num_key_value_heads": 4, "head_dim": 8, "tie_word_embeddings": True, "rope_parameters": DYNAMIC},
    ],
    "granite": [
        {**GROUPED, "attention_multiplier": 0.3, "embedding_multiplier": 7.0, "logits_scaling": 5.0},
        {**SMALL, "residual_multiplier": 0.4, "attention_bias": True, "tie_word_embeddings": True},
        {**GROUPED, "mlp_bias": True, "attention_multiplier": 0.1, "rope_parameters": LLAMA3},
    ],
    "smollm3": [
        {**GROUPED, "no_rope_layer_interval": 2},
        {**GROUPED, "no_rope_layers": [0, 1, 1], "tie_word_embeddings": False, "attention_bias": True},
        {**GROUPED, "no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 4, "mlp_bias": True},
    ],
    "gpt2": [
        {**OLD, "n_inner": 24},
        {**OLD, "scale_attn_weights": False, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
        {**OLD, "scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False, "activation_function": "relu"},
    ],
    "gptj": [
        {**OLD, "rotary_dim": 4},
        {**OLD, "rotary_dim": 8, "n_inner": 24},
        {**OLD, "rotary_dim": 2, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    ],
    "gpt_neox": [
        {**SMALL, "rotary_pct": 0.5, "rotary_emb_base": 300},
        {**SMALL, "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
        {**SMALL, "hidden_act": "gelu_new", "tie_word_embeddings": True, "rotary_pct": 0.25},
    ],
    "opt": [
        {**UNSIZED, "ffn_dim": 24},
        {**UNSIZED, "do_layer_norm_before": False, "activation_function": "gelu"},
        {**UNSIZED, "_remove_final_layer_norm": True, "enable_bias": False, "layer_norm_elementwise_affine": False},
    ],
    "bloom": [
        {**TOKENS, "hidden_size": 32, "n_layer": 3, "n_head": 4, "vocab_size": 64},
        {**TOKENS, "hidden_size": 30, "n_layer": 2, "n_head": 5, "vocab_size": 64, "layer_norm_epsilon": 1e-3},
        {**TOKENS, "hidden_size": 24, "n_layer": 2, "n_head": 6, "vocab_size": 64, "tie_word_embeddings": False},
    ],
    "mpt": [
        {**TOKENS, "d_model": 32, "n_layers": 3, "n_heads": 4, "vocab_size": 64, "max_seq_len": 48},
        {**TOKENS, "d_model": 30, "n_layers": 2, "n_heads": 5, "vocab_size": 64, "attn_config": {"clip_qkv": 0.7}},
        {
            **TOKENS,
            "d_model": 24,
            "n_layers": 2,
            "n_heads": 6,
            "vocab_size": 64,
            "attn_config": {"softmax_scale": 0.2},
        },
    ],
    "falcon": [
        {**UNSIZED, "multi_query": True, "parallel_attn": True, "bias": True},
        {**UNSIZED, "new_decoder_architecture": True, "num_kv_heads": 2},
        {**UNSIZED, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "bias": True},
        {**UNSIZED, "multi_query": False, "parallel_attn": False, "ffn_hidden_size": 24, "rope_parameters": LINEAR},
        {**UNSIZED, "multi_query": False, "alibi": True, "parallel_attn": False, "bias": True},
    ],
    "starcoder2": [
        {**GROUPED, "sliding_window": 6},
        {**GROUPED, "use_bias": False, "tie_word_embeddings": False, "hidden_act": "gelu"},
        {**GROUPED, "norm_epsilon": 1e-3, "rope_parameters": YARN},
    ],
    "gemma": [
        {**GROUPED, "head_dim": 8},
        {**SMALL, "num_key_value_heads": 4, "head_dim": 12, "attention_bias": True, "tie_word_embeddings": False},
        {**GROUPED, "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "gelu"},
    ],
    "gemma2": [
        {**GROUPED, "head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 20},
        {**GROUPED, "head_dim": 12, "sliding_window": 3, "final_logit_softcapping": None, "layer_types": MIXED[::-1]},
        {**GROUPED, "head_dim": 8, "attn_logit_softcapping": None, "final_logit_softcapping": 2.0, "sliding_window": 9},
    ],
    "gemma3_text": [
        {**GROUPED, "head_dim": 8, "sliding_window": 5, "sliding_window_pattern": 2},
        {**GROUPED, "head_dim": 16, "sliding_window": 4, "layer_types": MIXED, "query_pre_attn_scalar": 40},
        {
            **GROUPED,
            "head_dim": 8,
            "sliding_window": 6,
            "sliding_window_pattern": 3,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "rope_theta": 500,
            "rope_local_base_freq": 50,
        },
    ],
    "phi": [
        {**SMALL, "partial_rotary_factor": 0.5},
        {**GROUPED, "qk_layernorm": True, "partial_rotary_factor": 1.0},
        {**GROUPED, "hidden_act": "gelu", "layer_norm_eps": 1e-3, "partial_rotary_factor": 0.25},
    ],
    "phi3": [
        {**GROUPED, "sliding_window": 6},
        {**SMALL, "tie_word_embeddings": True, "partial_rotary_factor": 0.5},
        {**GROUPED, "original_max_position_embeddings": 12, "rope_parameters": {**LONG, "rope_type": "longrope"}},
    ],
    "stablelm": [
        {**GROUPED, "use_qkv_bias": True},
        {**SMALL, "num_key_value_heads": 4, "use_parallel_residual": True, "partial_rotary_factor": 0.5},
        {**GROUPED, "tie_word_embeddings": True, "layer_norm_eps": 1e-3, "hidden_act": "gelu", "qk_layernorm": True},
    ],
    "cohere": [
        {**GROUPED, "logit_scale": 0.3},
        {**GROUPED, "use_qk_norm": True, "attention_bias": True},
        {**SMALL, "tie_word_embeddings": False, "layer_norm_eps": 1e-3, "rope_parameters": LINEAR},
    ],
    "olmo": [
        {**SMALL, "clip_qkv": 0.6},
        {**GROUPED, "attention_bias": True},
        {**SMALL, "tie_word_embeddings": True, "rope_parameters": DYNAMIC, "max_position_embeddings": 16},
    ],
    "olmo2": [
        GROUPED,
        {**SMALL, "attention_bias": True, "tie_word_embeddings": True},
        {**GROUPED, "rms_norm_eps": 1e-3, "rope_parameters": YARN},
    ],
    "olmoe": [
        {**SMALL, "num_experts": 6, "num_experts_per_tok": 2},
        {**GROUPED, "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": True, "clip_qkv": 0.6},
        {**SMALL, "num_experts": 4, "num_experts_per_tok": 4, "attention_bias": True, "tie_word_embeddings": True},
    ],
    "glm": [
        {**GROUPED, "head_dim": 8},
        {**GROUPED, "head_dim": 12, "attention_bias": False, "partial_rotary_factor": 1.0},
        {**GROUPED, "head_dim": 8, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    ],
    "glm4": [
        {**GROUPED, "head_dim": 8},
        {**GROUPED, "head_dim": 16, "attention_bias": False, "partial_rotary_factor": 0.25},
        {**GROUPED, "head_dim": 8, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    ],
    "mixtral": [
        {**GROUPED, "num_local_experts": 4},
        {**GROUPED, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 5},
        {**GROUPED, "num_local_experts": 3, "num_experts_per_tok": 1, "head_dim": 12, "tie_word_embeddings": True},
    ],
    "qwen2_moe": [
        {**EXPERTS, "shared_expert_intermediate_size": 20},
        {**EXPERTS, "shared_expert_intermediate_size": 9, "norm_topk_prob": True, "decoder_sparse_step": 2},
        {
            **EXPERTS,
            "shared_expert_intermediate_size": 20,
            "mlp_only_layers": [1],
            "qkv_bias": False,
            **SLIDING,
            "max_window_layers": 3,
        },
    ],
    "qwen3_moe": [
        {**EXPERTS, "head_dim": 8},
        {**EXPERTS, "head_dim": 16, "norm_topk_prob": True, "mlp_only_layers": [0, 2]},
        {**EXPERTS, "head_dim": 8, "decoder_sparse_step": 3, "attention_bias": True, **SLIDING},
    ],
    "gpt_oss": [
        {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
        {**GROUPED, "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 1, "swiglu_limit": 0.5},
        {
            **GROUPED,
            "head_dim": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "swiglu_alpha": 1.1,
            "layer_types": MIXED[::-1],
            "sliding_window": 3,
            "rope_parameters": {**YARN, "truncate": False},
        },
    ],
    "deepseek_v2": [
        {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 1},
        {
            **LATENT,
            "q_lora_rank": 16,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 3.0,
            "n_shared_experts": 1,
            "rope_parameters": MSCALE,
        },
        {**LATENT, "q_lora_rank": 16, "attention_bias": True, "rms_norm_eps": 1e-3, "first_k_dense_replace": 2},
    ],
    "deepseek_v3": [
        {**LATENT, "q_lora_rank": 16, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
        {
            **LATENT,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 0,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "attention_bias": True,
        },
        {**LATENT, "q_lora_rank": 16, "n_group": 2, "topk_group": 1, "rope_parameters": MSCALE, "n_shared_experts": 2},
    ],
}
NAMED = [(name, index) for name, cases in CASES.items() for index in range(len(cases))]


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Within, what code calls float32 is float64."""
    single, plain, method, default = torch.float32, torch.float, Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64  # type: ignore[misc]
    Tensor.float = Tensor.double  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, Tensor.float = single, plain, method  # type: ignore[misc, method-assign]
        torch.set_default_dtype(default)


def original(name: str, given: dict[str, Any], folder: Path) -> tuple[nn.Module, Tensor, Tensor]:
    """A model of transformers with random weights, saved in `folder`; token ids [2, LENGTH] and its logits."""
    config = AutoConfig.for_model(name, **given)
    torch.manual_seed(0)
    attention = "sdpa" if given.get("alibi") else "eager"  # Falcon's eager attention adds its biases twice
    kernels = {"attn_implementation": attention, "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64, **kernels).eval()
    for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n.endswith("correction_bias"))]:
        tensor.data.normal_(0.3 if tensor.dim() == 1 else 0.0, 0.3)
    model.save_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (2, LENGTH))
    return model, ids, model(ids, use_cache=False).logits


@pytest.mark.parametrize(("name", "index"), NAMED)
@torch.no_grad()
def test_logits_and_parameters_equal_those_of_transformers(name: str, index: int, tmp_path: Path) -> None:
    with doubled():
        model, ids, logits = original(name, CASES[name][index], tmp_path)
    check(model, ids, logits, tmp_path)


def check(model: nn.Module, ids: Tensor, logits: Tensor, folder: Path) -> None:
    """What archlab makes of a saved model: its parameters, and its logits in one pass and from a cache in chunks."""
    spec = load_config(folder).spec
    assert parameters(spec).total == sum(p.numel() for p in model.parameters())
    decoder = build(spec, dtype=torch.float64, weights=folder).eval()
    tolerance = 1e-9 * max(1.0, logits.abs().max().item())
    assert (decoder(ids) - logits).abs().max() <= tolerance
    for chunks in ([1] * LENGTH, [7, 1, 9, LENGTH - 17]):
        cache = KVCache(spec, *ids.shape, torch.float64)
        assert (torch.cat([decoder(part, cache) for part in ids.split(chunks, 1)], 1) - logits).abs().max() <= tolerance


@pytest.mark.parametrize(("name", "index"), NAMED)
@torch.no_grad()
def test_heads_of_another_width_are_what_transformers_makes_of_them_or_refused(
    name: str, index: int, tmp_path: Path
) -> None:
    given = {**CASES[name][index], "head_dim": 12}
    try:
        spec = spec_of({"model_type": name, **given})
    except ConfigError:
        return
    with doubled():
        model, ids, logits = original(name, given, tmp_path)
    check(model, ids, logits, tmp_path)
    assert load_config(tmp_path).spec.layers == spec.layers


@pytest.mark.parametrize(("name", "index"), NAMED)
def test_what_is_exported_is_what_transformers_builds(name: str, index: int) -> None:
    given = {**AutoConfig.for_model(name, **CASES[name][index]).to_dict(), "model_type": name}
    spec = spec_of(given)
    config = export(spec)
    assert config["model_type"] == name
    again = AutoConfig.for_model(**{key: value for key, value in config.items() if key != "architectures"})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(again)
    assert type(model).__name__ == config["architectures"][0]
    assert parameters(spec).total == sum(p.numel() for p in model.parameters())
    assert math.isclose(sum(parameters(spec_of(again.to_dict())).by_part.values()), parameters(spec).total)


def test_every_family_of_transformers_is_here_three_times_or_more() -> None:
    assert set(CASES) == set(HOME) - {"deepseek", "minimind"}
    assert all(len(cases) >= 3 for cases in CASES.values())
