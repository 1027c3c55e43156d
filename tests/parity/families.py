"""Architectures as plain model configs, and their tensors under our names: mapped by hand, so that what a comparison

compares is the module and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Config = dict[str, Any]
Weights = dict[str, Tensor]


def biases(names: str, value: bool = True) -> dict[str, bool]:
    return {f"{name}_bias": value for name in names}


def llama(config: Config, **axes: dict[str, Any]) -> Config:
    """RMSNorm, rotation, grouped queries, SwiGLU; `axes` change options of it."""
    model = {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "vocab_size": config["vocab_size"],
        "context": config["max_position_embeddings"],
        "norm": {"choice": "rmsnorm", "eps": config.get("rms_norm_eps", 1e-5)},
        "position": {"base": config.get("rope_theta", 1e4), **rope(config)},
        "attention": {
            "choice": "gqa",
            "n_heads": config["num_attention_heads"],
            "n_kv_heads": config.get("num_key_value_heads", config["num_attention_heads"]),
            "head_dim": config.get("head_dim"),
        },
        "ffn": {"choice": "swiglu", "d_ff": config["intermediate_size"]},
        "dropout": {"choice": "none"},
        "head": {"choice": "tied" if config.get("tie_word_embeddings", True) else "untied"},
        "block": {"choice": "pre_norm"},
        "layers": None,
    }
    for axis, options in axes.items():
        model[axis] = model[axis] | options
    return model


def rope(config: Config) -> dict[str, Any]:
    if config.get("inference_rope_scaling"):
        return {"choice": "yarn", "factor": 16, "original_context": 2048, "attention_factor": 1}
    scaling = dict(config.get("rope_scaling") or {})
    kind = scaling.pop("rope_type", None) or scaling.pop("type", "rope")
    original = scaling.pop("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    if original is not None:
        scaling["original_context"] = original
    return {"choice": {"dynamic": "ntk"}.get(kind, kind), **scaling}


def gemma3(config: Config) -> Config:
    """Every `sliding_window_pattern`-th layer sees all and is scaled; the others see a window by another base."""
    local = {
        "attention": {"window": config["sliding_window"]},
        "position": {"choice": "rope", "base": config["rope_local_base_freq"]},
    }
    model = llama(
        config,
        norm={"unit_offset": True},
        attention={"qk_norm": "head", "scale": config["query_pre_attn_scalar"] ** -0.5},
        ffn={"choice": "geglu_tanh"},
        block={"choice": "sandwich", "embedding_scale": math.sqrt(config["hidden_size"])},
    )
    return model | {"layers": [local | {"repeat": config["sliding_window_pattern"] - 1}, {}]}


def _gemma2(config: Config) -> Config:
    """Every second layer sees a window; scores and logits are capped."""
    model = llama(
        config,
        norm={"unit_offset": True},
        attention={"scale": config["query_pre_attn_scalar"] ** -0.5, "logit_cap": config["attn_logit_softcapping"]},
        ffn={"choice": "geglu_tanh"},
        head={"logit_cap": config["final_logit_softcapping"]},
        block={"choice": "sandwich", "embedding_scale": math.sqrt(config["hidden_size"])},
    )
    return model | {"layers": [{"attention": {"window": config["sliding_window"]}}, {}]}


def _stablelm(config: Config) -> Config:
    """LayerNorms with a shift, those of queries and keys without."""
    return llama(
        config,
        norm={"choice": "layernorm", "eps": config["layer_norm_eps"]},
        position={"fraction": config["partial_rotary_factor"]},
        attention=biases("qkv", config["use_qkv_bias"])
        | {"qk_norm": "per_head" if config["qk_layernorm"] else "none", "qk_norm_bias": False},
        block={"choice": "parallel" if config["use_parallel_residual"] else "pre_norm"},
    )


def smollm3(config: Config) -> Config:
    turned = [{} if kept else {"position": {"choice": "none"}} for kept in config["no_rope_layers"]]
    return llama(config) | {"layers": turned}


def older(config: Config, **axes: dict[str, Any]) -> Config:
    """LayerNorm with bias, plain FFN of four times the width; `axes` change options of it."""
    width = config.get("hidden_size") or config.get("n_embd") or config.get("n_embed") or config["d_model"]
    heads = config.get("num_attention_heads") or config.get("n_head") or config["n_heads"]
    places = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": config.get("num_hidden_layers") or config.get("n_layer") or config["n_layers"],
        "num_attention_heads": heads,
        "max_position_embeddings": next((config[name] for name in places if name in config), 2048),
        "intermediate_size": config.get("intermediate_size") or config.get("ffn_dim") or 4 * width,
    }
    eps = config.get("layer_norm_epsilon") or config.get("layer_norm_eps") or 1e-5
    axes = {"norm": {}, "ffn": {}} | axes
    axes["norm"] = {"choice": "layernorm", "eps": eps} | axes["norm"]
    axes["ffn"] = {"choice": "gelu", "bias": True} | axes["ffn"]
    return llama(config | sizes, **axes)


def _gemma(config: Config) -> Config:
    scale = {"embedding_scale": math.sqrt(config["hidden_size"])}
    return llama(config, norm={"unit_offset": True}, ffn={"choice": "geglu_tanh"}, block=scale)


def _cohere(config: Config) -> Config:
    return llama(
        config,
        norm={"choice": "layernorm", "eps": config["layer_norm_eps"], "bias": False},
        position={"layout": "interleaved"},
        attention={"qk_norm": "per_head" if config["use_qk_norm"] else "none"},
        head={"logit_scale": config["logit_scale"]},
        block={"choice": "parallel"},
    )


def _gptj(config: Config) -> Config:
    turned = config["rotary_dim"] * config["n_head"] / config["n_embd"]
    return older(
        config,
        position={"layout": "interleaved", "fraction": turned},
        ffn={"choice": "gelu_tanh"},
        head={"bias": True},
        block={"choice": "parallel"},
    )


def _mpt(config: Config) -> Config:
    alibi = {"choice": "alibi", "max_bias": config["attn_config"]["alibi_bias_max"]}
    clip = {"qkv_clip": config["attn_config"]["clip_qkv"]}
    model = older(config, norm={"bias": False}, ffn={"bias": False}, attention=clip)
    return model | {"position": alibi}


def _bloom(config: Config) -> Config:
    model = older(
        config,
        ffn={"choice": "gelu_bloom"},
        attention=biases("qkvo"),
        block={"embedding_norm": True},
    )
    return model | {"position": {"choice": "alibi"}}


def _gpt2(config: Config) -> Config:
    model = older(config, attention=biases("qkvo"), ffn={"choice": "gelu_tanh"}, dropout={"choice": "classic"})
    return model | {"position": {"choice": "learned"}}


def _falcon(config: Config) -> Config:
    parallel = {"choice": "parallel" if config["parallel_attn"] else "pre_norm"}
    attention = {} if not config["multi_query"] else {"n_kv_heads": 1}
    attention |= biases("qkvo", config["bias"])
    model = older(config, attention=attention, ffn={"bias": config["bias"]}, block=parallel)
    if config["alibi"]:
        scale = (config["hidden_size"] // config["num_attention_heads"]) ** -0.5
        model["position"] = {"choice": "alibi", "scale": scale}
    return model


def _opt(config: Config) -> Config:
    model = older(config, attention=biases("qkvo"), ffn={"choice": "relu"})
    return model | {"position": {"choice": "learned", "offset": 2}}


def _phi(config: Config) -> Config:
    return older(
        config,
        position={"fraction": config["partial_rotary_factor"]},
        attention=biases("qkvo"),
        ffn={"choice": "gelu_tanh"},
        head={"bias": True},
        block={"choice": "parallel"},
    )


def _gpt_neox(config: Config) -> Config:
    return older(
        config,
        position={"fraction": config["rotary_pct"], "base": config["rotary_emb_base"]},
        attention=biases("qkvo"),
        block={"choice": "parallel", "n_norms": 2},
    )


MODELS: dict[str, Callable[[Config], Config]] = {
    "llama": llama,
    "phi3": llama,
    "minimind": lambda c: llama(c, attention={"qk_norm": "head"}),
    "qwen3": lambda c: llama(c, attention={"qk_norm": "head"}),
    "mistral": lambda c: llama(c, attention={"window": c["sliding_window"]}),
    "qwen2": lambda c: llama(c, attention=biases("qkv")),
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": gemma3,
    "smollm3": smollm3,
    "stablelm": _stablelm,
    "cohere": _cohere,
    "olmo": lambda c: llama(
        c, norm={"choice": "layernorm", "eps": 1e-5, "weight": False}, attention={"qkv_clip": c["clip_qkv"]}
    ),
    "olmo2": lambda c: llama(c, attention={"qk_norm": "full"}, block={"choice": "res_post_norm"}),
    "glm": lambda c: llama(
        c,
        position={"fraction": c["partial_rotary_factor"], "layout": "interleaved"},
        attention=biases("qkv"),
    ),
    "gpt2": _gpt2,
    "bloom": _bloom,
    "mpt": _mpt,
    "opt": _opt,
    "falcon": _falcon,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "phi": _phi,
}
"""A model config of each model_type."""

PRE = {".input_layernorm.": ".attention_norm.", ".post_attention_layernorm.": ".ffn_norm."}
SANDWICH = {
    ".input_layernorm.": ".attention_norm.",
    ".post_attention_layernorm.": ".attention_post_norm.",
    ".pre_feedforward_layernorm.": ".ffn_norm.",
    ".post_feedforward_layernorm.": ".ffn_post_norm.",
}
LLAMA = {
    "model.embed_tokens.": "embedding.",
    "model.norm.": "final_norm.",
    "model.final_layernorm.": "final_norm.",
    "lm_head.": "head.",
    "model.layers.": "layers.",
    ".self_attn.qkv_proj.": ".attention.qkv.",
    ".self_attn.o_proj.": ".attention.o.",
    ".self_attn.dense.": ".attention.o.",
    ".self_attn.": ".attention.",
    ".mlp.gate_up_proj.": ".ffn.gate_up.",
    ".mlp.down_proj.": ".ffn.down.",
    ".mlp.fc1.": ".ffn.up.",
    ".mlp.fc2.": ".ffn.down.",
    ".mlp.": ".ffn.",
}
GPT = {
    "transformer.wte.": "embedding.",
    "transformer.word_embeddings.": "embedding.",
    "transformer.word_embeddings_layernorm.": "embedding_norm.",
    "gpt_neox.embed_in.": "embedding.",
    "transformer.wpe.": "positions.0.",
    "transformer.ln_f.": "final_norm.",
    "transformer.norm_f.": "final_norm.",
    "gpt_neox.final_layer_norm.": "final_norm.",
    "lm_head.": "head.",
    "embed_out.": "head.",
    "transformer.h.": "layers.",
    "transformer.blocks.": "layers.",
    "gpt_neox.layers.": "layers.",
    ".attn.c_attn.": ".attention.qkv.",
    ".attn.Wqkv.": ".attention.qkv.",
    ".attn.c_proj.": ".attention.o.",
    ".attn.out_proj.": ".attention.o.",
    ".attn.": ".attention.",
    ".self_attention.": ".attention.",
    ".query_key_value.": ".qkv.",
    ".attention.dense.": ".attention.o.",
    ".mlp.c_fc.": ".ffn.up.",
    ".mlp.fc_in.": ".ffn.up.",
    ".mlp.dense_h_to_4h.": ".ffn.up.",
    ".ffn.up_proj.": ".ffn.up.",
    ".mlp.c_proj.": ".ffn.down.",
    ".mlp.fc_out.": ".ffn.down.",
    ".mlp.dense_4h_to_h.": ".ffn.down.",
    ".ffn.down_proj.": ".ffn.down.",
    ".ln_1.": ".attention_norm.",
    ".ln_2.": ".ffn_norm.",
    ".norm_1.": ".attention_norm.",
    ".norm_2.": ".ffn_norm.",
}
OPT = {
    "model.decoder.embed_tokens.": "embedding.",
    "model.decoder.embed_positions.": "positions.0.",
    "model.decoder.final_layer_norm.": "final_norm.",
    "model.decoder.layers.": "layers.",
    ".self_attn_layer_norm.": ".attention_norm.",
    ".final_layer_norm.": ".ffn_norm.",
    ".self_attn.out_proj.": ".attention.o.",
    ".self_attn.": ".attention.",
    ".fc1.": ".ffn.up.",
    ".fc2.": ".ffn.down.",
}
NORMS = {"gemma2": SANDWICH, "gemma3_text": SANDWICH, "olmo2": SANDWICH}


def our_weights(config: Config, weights: Mapping[str, Tensor]) -> Weights:
    """A checkpoint's tensors under our names, fused layouts as ours are."""
    kind = config["model_type"]
    like_llama = "model.embed_tokens.weight" in weights
    names = OPT if kind == "opt" else (LLAMA if like_llama else GPT) | NORMS.get(kind, PRE)
    conv1d = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # [in, out], unlike Linear
    ours = {rename(name, names): t.T if name.endswith(conv1d) else t for name, t in weights.items()}
    ours = {name.replace("q_layernorm", "q_norm").replace("k_layernorm", "k_norm"): t for name, t in ours.items()}
    if kind in ("bloom", "gpt_neox") or (kind == "falcon" and not config["multi_query"]):
        ours = {name: by_head(t, config) if ".qkv." in name else t for name, t in ours.items()}
    stack_heads(ours)
    fuse(ours, "attention.q_proj.", ("q_proj", "k_proj", "v_proj"), "qkv")
    fuse(ours, "ffn.gate_proj.", ("gate_proj", "up_proj"), "gate_up")
    return ours


def rename(name: str, names: Mapping[str, str]) -> str:
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def by_head(rows: Tensor, config: Config) -> Tensor:
    """Rows of query, key and value head by head: first all queries, then all keys, then all values."""
    return rows.unflatten(0, (config["num_attention_heads"], 3, -1)).transpose(0, 1).flatten(0, 2)


def stack_heads(weights: Weights) -> None:
    """Join the norms of single heads, `q_norm.norms.0.weight`, .. of StableLM, in place."""
    for first in [name for name in weights if ".norms.0." in name]:
        before, after = first.split(".norms.0.")
        heads = sum(name.startswith(f"{before}.norms.") for name in weights)
        weights[f"{before}.{after}"] = torch.stack([weights.pop(f"{before}.norms.{i}.{after}") for i in range(heads)])


def fuse(weights: Weights, first: str, parts: tuple[str, ...], fused: str) -> None:
    """Join the rows of `parts` under `fused`, in place, wherever the first of them is."""
    for name in [name for name in weights if first in name]:
        rows = [weights.pop(name.replace(parts[0], part)) for part in parts]
        weights[name.replace(parts[0], fused)] = torch.cat(rows)
