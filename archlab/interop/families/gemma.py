"""Gemma 1, 2 and 3 (text): norms that multiply by 1 + weight, a scaled embedding, a tied head by default."""

from __future__ import annotations

from archlab.interop.family import Family
from archlab.interop.layout import llama_layout
from archlab.interop.parts import (
    GATES,
    Block,
    Model,
    attention_dropout,
    biases,
    head,
    head_dim_of,
    heads,
    layered,
    plain_ffn,
    pre_norm,
    rmsnorm,
    score_scale,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import layer_types, rope, two_ropes, windows


def gemma(f: Fields) -> Model:
    size = sizes(f, d_model=3072, n_layers=28, vocab_size=256000, context=8192)
    # its first files say gelu, and an activation of its own that may be null; the tanh form is what both mean
    act = f.word("hidden_act", tuple(GATES), "gelu")
    act = "gelu_pytorch_tanh" if act == "gelu" else act
    f.only("hidden_activation", act, None)
    return {
        **_shared(f, size, act, 24576),
        "attention": _attention(f, size, 16, 16),
        "position": rope(f, size),
        "head": head(f, tied=True),
        "block": pre_norm(embedding_scale=size["d_model"] ** 0.5),
    }


def _shared(f: Fields, size: Model, act: str, d_ff: int) -> Model:
    f.only("use_bidirectional_attention", False, None)
    return {
        **size,
        "norm": rmsnorm(f, 1e-6, unit_offset=True),
        "ffn": plain_ffn(GATES[act], f.whole("intermediate_size", d_ff)),
        "dropout": attention_dropout(f),
    }


def _attention(f: Fields, size: Model, n_heads: int, n_kv_heads: int) -> Block:
    bias = f.flag("attention_bias", False)
    return {**heads(f, size, n_heads, n_kv_heads, 256), **biases(bias, bias)}


def _later(f: Fields, size: Model, score_cap: float | None, logit_cap: float | None) -> Model:
    """What Gemma 2 and 3 share: four norms a layer, a scale of its own, caps."""
    act = f.word("hidden_activation", tuple(GATES), "gelu_pytorch_tanh")
    f.only("hidden_act", act, None)
    own = _attention(f, size, 8, 4)
    scale = score_scale(f.positive("query_pre_attn_scalar", 256.0) ** -0.5, head_dim_of(size, own))
    caps = {"logit_cap": cap} if (cap := f.positive("attn_logit_softcapping", score_cap, null=None)) else {}
    last = {"logit_cap": cap} if (cap := f.positive("final_logit_softcapping", logit_cap, null=None)) else {}
    return {
        **_shared(f, size, act, 9216),
        "attention": {**own, **scale, **caps},
        "head": head(f, tied=True, **last),
        "block": {"choice": "sandwich", "embedding_scale": size["d_model"] ** 0.5},
    }


def gemma2(f: Fields) -> Model:
    size = sizes(f, d_model=2304, n_layers=26, vocab_size=256000, context=8192)
    model = {**_later(f, size, 50.0, 30.0), "position": rope(f, size)}
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(size["n_layers"])]
    types = layer_types(f, size, default)
    return layered(model, windows(types, f.whole("sliding_window", 4096, null=None)))


def gemma3(f: Fields) -> Model:
    size = sizes(f, d_model=2304, n_layers=26, vocab_size=262208, context=131072)
    f.only("attn_logit_softcapping", None)  # transformers keeps it and does not apply it
    model = _later(f, size, None, None)
    model["attention"]["qk_norm"] = "head"
    every = f.whole("sliding_window_pattern", 6)
    default = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(size["n_layers"])]
    types = layer_types(f, size, default)
    slides = windows(types, f.whole("sliding_window", 4096, null=None))
    model["position"], local = two_ropes(f, size, 1e6, 1e4)
    moved: list[dict[str, Block]] = [{"position": local} if kind == "sliding_attention" else {} for kind in types]
    return layered(model, [{**a, **b} for a, b in zip(slides, moved, strict=True)])


SANDWICH = {
    "post_attention_layernorm": "attention_post_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_post_norm",
}
FAMILIES = (
    Family("gemma", "GemmaForCausalLM", gemma, llama_layout()),
    Family("gemma2", "Gemma2ForCausalLM", gemma2, llama_layout(SANDWICH)),
    Family("gemma3_text", "Gemma3ForCausalLM", gemma3, llama_layout(SANDWICH)),
)
