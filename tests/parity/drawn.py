"""Random small configs of every family that transformers has, in the hub's dialect; every option both ways."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]
Draw = random.Random
TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
BOTH = (True, False)
EPS = (1e-6, 1e-5, 1e-3)
GATES = ("silu", "gelu", "relu", "gelu_pytorch_tanh", "swish")
ACTS = ("gelu", "relu", "silu", "gelu_new", "gelu_fast")
COMMON = {"tie_word_embeddings": BOTH, "attention_dropout": (0.0, 0.1)}
RMS = {**COMMON, "rms_norm_eps": EPS, "hidden_act": GATES}
LAYER = {**COMMON, "layer_norm_eps": EPS, "hidden_act": ACTS}
WINDOW = {"sliding_window": (None, 3, 7)}
QWEN = {"use_sliding_window": BOTH, "sliding_window": (3, 9), "max_window_layers": (0, 1, 2, 28)}
BIAS = {"attention_bias": BOTH}
SPARSE = {
    "norm_topk_prob": BOTH,
    "decoder_sparse_step": (1, 2, 3),
    "mlp_only_layers": ([], [0], [1, 0], list(range(9))),
}
OLD = {
    "layer_norm_epsilon": EPS,
    "activation_function": ACTS,
    "tie_word_embeddings": BOTH,
    "n_inner": (None, 20),
    "resid_pdrop": (0.0, 0.1),
    "embd_pdrop": (0.0, 0.2),
    "attn_pdrop": (0.1,),
}
LATENT = {
    "q_lora_rank": (None, 16),
    "n_shared_experts": (1, 2),
    "first_k_dense_replace": (0, 1, 2, 9),
    "routed_scaling_factor": (1.0, 2.5),
    **BIAS,
    **RMS,
}
LISTED = {"layer_types": ("drawn", "full", "sliding"), "sliding_window": (3, 9)}
GEMMA = {**COMMON, **BIAS, "rms_norm_eps": EPS}
GEMMA2 = {
    **GEMMA,
    **LISTED,
    "hidden_activation": ("gelu_pytorch_tanh", "silu"),
    "query_pre_attn_scalar": (8, 40),
    "final_logit_softcapping": (None, 3.0),
}
OPTIONS: dict[str, Mapping[str, tuple[Any, ...]]] = {
    "llama": {**RMS, **BIAS, "mlp_bias": BOTH, "head_dim": (4, 12)},
    "mistral": {**RMS, **WINDOW, "head_dim": (4, 12)},
    "qwen2": {**RMS, **QWEN},
    "qwen3": {**RMS, **QWEN, **BIAS, "head_dim": (4, 12)},
    "granite": {
        **RMS,
        **BIAS,
        "mlp_bias": BOTH,
        "attention_multiplier": (0.1, 1.0),
        "logits_scaling": (8.0, 3, 1),
        "embedding_multiplier": (12.0, 2.5),
        "residual_multiplier": (0.22, 1.0),
    },
    "smollm3": {
        **RMS,
        **BIAS,
        "mlp_bias": BOTH,
        "no_rope_layer_interval": (1, 2, 4),
        "no_rope_layers": ("ones", None),
        "use_sliding_window": BOTH,
        "sliding_window": (None, 3),
    },
    "gpt2": {**OLD, "scale_attn_weights": BOTH, "scale_attn_by_inverse_layer_idx": BOTH},
    "gptj": {**OLD, "rotary_dim": (2, 4, 8)},
    "gpt_neox": {
        **LAYER,
        **BIAS,
        "rotary_pct": (0.5, 1.0),
        "rotary_emb_base": (300, 10000),
        "use_parallel_residual": BOTH,
    },
    "opt": {
        "ffn_dim": (20, 44),
        "activation_function": ACTS,
        "do_layer_norm_before": BOTH,
        "enable_bias": BOTH,
        "layer_norm_elementwise_affine": BOTH,
        "_remove_final_layer_norm": BOTH,
        "dropout": (0.0, 0.1),
    },
    "bloom": {"layer_norm_epsilon": EPS, "tie_word_embeddings": BOTH, "hidden_dropout": (0.0, 0.1)},
    "mpt": {"layer_norm_epsilon": EPS, "attn_config": ({}, {"clip_qkv": 0.5}, {"softmax_scale": 0.2})},
    "falcon": {
        "multi_query": BOTH,
        "new_decoder_architecture": BOTH,
        "parallel_attn": BOTH,
        "bias": BOTH,
        "alibi": BOTH,
        "num_kv_heads": (1, 2),
        "num_ln_in_parallel_attn": (1, 2, None),
        "ffn_hidden_size": (20, 40),
    },
    "starcoder2": {
        **COMMON,
        **WINDOW,
        "hidden_act": ACTS,
        "activation_function": ACTS,
        "norm_epsilon": EPS,
        "use_bias": BOTH,
        "residual_dropout": (0.0, 0.1),
    },
    "gemma": {**GEMMA, "hidden_act": ("gelu", *GATES)},
    "gemma2": {**GEMMA2, "attn_logit_softcapping": (None, 2.0)},
    "gemma3_text": {**GEMMA2, "rope_local_base_freq": (10000.0, 50.0), "sliding_window_pattern": (2, 3)},
    "phi": {**LAYER, "partial_rotary_factor": (0.5, 1.0), "qk_layernorm": BOTH},
    "phi3": {**RMS, **WINDOW, "partial_rotary_factor": (0.5, 1.0), "resid_pdrop": (0.0, 0.1)},
    "stablelm": {
        **LAYER,
        "hidden_act": GATES,
        "use_qkv_bias": BOTH,
        "qk_layernorm": BOTH,
        "use_parallel_residual": BOTH,
        "partial_rotary_factor": (0.5, 1.0),
    },
    "cohere": {**LAYER, **BIAS, "hidden_act": GATES, "use_qk_norm": BOTH, "logit_scale": (0.0625, 0.8)},
    "olmo": {**COMMON, **BIAS, "hidden_act": GATES, "clip_qkv": (None, 0.5)},
    "olmo2": {**RMS, **BIAS},
    "olmoe": {**RMS, **BIAS, "norm_topk_prob": BOTH, "clip_qkv": (None, 0.5)},
    "glm": {**RMS, **BIAS, "partial_rotary_factor": (0.5, 1.0)},
    "glm4": {**RMS, **BIAS, "partial_rotary_factor": (0.5, 1.0)},
    "mixtral": {**RMS, **WINDOW, "head_dim": (4, 12)},
    "qwen2_moe": {**RMS, **QWEN, **SPARSE, "shared_expert_intermediate_size": (8, 20), "qkv_bias": BOTH},
    "qwen3_moe": {**RMS, **SPARSE, **BIAS, "use_sliding_window": BOTH, "sliding_window": (3, 9), "head_dim": (4, 12)},
    "gpt_oss": {**GEMMA, **LISTED, "swiglu_limit": (7.0, 0.5)},
    "deepseek_v2": {**LATENT, "topk_method": ("greedy", "group_limited_greedy")},
    "deepseek_v3": {**LATENT, "norm_topk_prob": BOTH, "rope_interleave": BOTH},
}
HEADS = dict.fromkeys(("gemma", "gemma2", "gemma3_text", "qwen3", "glm", "glm4", "gpt_oss"), 8)
"""Families whose class has a head_dim of its own."""

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 10}
RANKS = {"kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
NEEDED: dict[str, Config] = {
    "gptj": {"rotary_dim": 4},
    "gpt_neox": {"rotary_pct": 0.5},
    "stablelm": {"partial_rotary_factor": 0.5},
    "phi3": {"original_max_position_embeddings": 16},
    "mixtral": {**LOCAL, "head_dim": 8},
    "gpt_oss": LOCAL,
    "olmoe": EXPERTS,
    "qwen2_moe": {**EXPERTS, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20},
    "qwen3_moe": {**EXPERTS, "moe_intermediate_size": 12},
    "deepseek_v2": {**RANKS, **ROUTED},
    "deepseek_v3": {**RANKS, **ROUTED},
}
"""What a small model needs; what is drawn may change it. Mixtral scales no rotation without head_dim."""

UNSCALED = ("gpt2", "gptj", "opt", "bloom", "mpt")


def draw(name: str, seed: int) -> Config:
    """A config that transformers can build."""
    drawn = random.Random(f"{name}-{seed}")
    config = {"model_type": name, **TOKENS, **_sizes(name, drawn), **NEEDED.get(name, {})}
    config |= {key: drawn.choice(values) for key, values in OPTIONS[name].items() if drawn.random() < 0.6}
    for key, kinds in (("layer_types", _kinds), ("no_rope_layers", _ones)):
        if isinstance(config.get(key), str):
            config[key] = kinds(config[key], config["num_hidden_layers"], drawn)
    if name not in UNSCALED and not config.get("alibi"):
        config |= {"rope_theta": drawn.choice([100.0, 1e6])} if name != "gpt_neox" else {}
        config["rope_scaling"] = _scaling(name, drawn)
    return _possible(name, config)


OLD_NAMES = ("n_embd", "n_head", "n_layer", "n_positions")


def _sizes(name: str, drawn: Draw) -> Config:
    heads, layers = drawn.choice([2, 4, 6]), drawn.randint(1, 4)
    if name in ("gpt2", "gptj", "mpt"):
        spelled = {"mpt": ("d_model", "n_heads", "n_layers", "max_seq_len")}.get(name, OLD_NAMES)
        return {**dict(zip(spelled, (8 * heads, heads, layers, 48), strict=True)), "vocab_size": 61}
    sizes = {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_hidden_layers": layers, "vocab_size": 64}
    if name == "bloom":
        return sizes
    kv = {} if name in ("gpt_neox", "opt", "falcon") else {"num_key_value_heads": drawn.choice([1, 2, heads])}
    kv = {"num_key_value_heads": heads} if name.startswith("deepseek") else kv
    width = {"head_dim": HEADS[name]} if name in HEADS else {}
    ffn = {} if name in ("opt", "falcon") else {"intermediate_size": drawn.choice([20, 37])}
    return {**sizes, **kv, **width, **ffn, "max_position_embeddings": drawn.choice([32, 48])}


def _scaling(name: str, drawn: Draw) -> Config | None:
    pairs = {"deepseek_v2": 2, "deepseek_v3": 2}.get(name, 4)
    before = {"original_max_position_embeddings": 16}
    kinds: list[Config | None] = [
        None,
        None,
        {"rope_type": "linear", "factor": drawn.choice([2.0, 3])},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 3.0, **before, **drawn.choice([{}, {"mscale": 0.7, "mscale_all_dim": 0.5}])},
        {"rope_type": "yarn", "factor": 3.0, **before, "beta_fast": 16.0, "truncate": name == "gemma3_text"},
        {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **before},
    ]
    if name == "gpt_oss":
        kinds.append({"rope_type": "default"})
    if name == "phi3":
        lists = {key: [1.0 + drawn.random() for _ in range(pairs)] for key in ("short_factor", "long_factor")}
        kinds = [None, {"type": "longrope", **lists}]
    return drawn.choice(kinds)


def _kinds(kind: str, layers: int, drawn: Draw) -> list[str]:
    names = ("full_attention", "sliding_attention")
    return [drawn.choice(names) if kind == "drawn" else f"{kind}_attention" for _ in range(layers)]


def _ones(kind: str, layers: int, drawn: Draw) -> list[int]:
    return [drawn.randint(0, 1) for _ in range(layers)]


def _possible(name: str, config: Config) -> Config:
    """The config less what transformers does not build."""
    if name == "falcon" and config.get("new_decoder_architecture"):
        config.pop("parallel_attn", None)
    elif name == "falcon":
        config.pop("num_ln_in_parallel_attn", None)
        config.pop("num_kv_heads", None)
    if name == "phi3" and config.get("rope_scaling"):
        config["partial_rotary_factor"] = 1.0
    return config
