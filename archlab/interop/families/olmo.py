"""OLMo 1 and 2, OLMoE."""

from __future__ import annotations

from archlab.interop.families.moe import mixture
from archlab.interop.family import Family
from archlab.interop.layout import llama_layout, moe_layout
from archlab.interop.parts import (
    Block,
    Model,
    attention_dropout,
    biases,
    ffn,
    head,
    head_size,
    heads,
    pre_norm,
    rmsnorm,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import rope


def _attention(f: Fields, size: Model, n_heads: int) -> Block:
    bias = f.flag("attention_bias", False)
    return {**heads(f, size, n_heads), **biases(bias, bias)}


def _clip(f: Fields) -> Block:
    clip = f.positive("clip_qkv", None)
    return {} if clip is None else {"qkv_clip": clip}


def olmo(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=50304, context=2048)
    return {
        **size,
        "norm": {"choice": "layernorm", "eps": 1e-5, "weight": False, "bias": False},
        "position": rope(f, size),
        "attention": {**_attention(f, size, 32), **_clip(f)},
        "ffn": ffn(f, 11008),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


def olmo2(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=50304, context=2048)
    return {
        **size,
        "norm": rmsnorm(f, 1e-5),
        "position": rope(f, size),
        "attention": {**_attention(f, size, 32), "qk_norm": "full"},
        "ffn": ffn(f, 11008),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": {"choice": "res_post_norm"},
    }


def olmoe(f: Fields) -> Model:
    size = sizes(f, d_model=2048, n_layers=16, vocab_size=50304, context=4096)
    own = _attention(f, size, 16)
    f.only("head_dim", head_size(size, own["n_heads"]), None)  # the width of its norms goes by hidden_size
    return {
        **size,
        "norm": rmsnorm(f, 1e-5),
        "position": rope(f, size),
        "attention": {**own, "qk_norm": "full", **_clip(f)},
        "ffn": mixture(f, ffn(f, 2048), 64, 8, normalise=f.flag("norm_topk_prob", False)),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


OLMO2 = llama_layout({"post_attention_layernorm": "attention_post_norm", "post_feedforward_layernorm": "ffn_post_norm"})
FAMILIES = (
    Family("olmo", "OlmoForCausalLM", olmo, llama_layout()),
    Family("olmo2", "Olmo2ForCausalLM", olmo2, OLMO2),
    Family("olmoe", "OlmoeForCausalLM", olmoe, moe_layout()),
)
