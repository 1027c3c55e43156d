"""Llama, and what differs from it in a few settings: Mistral, Qwen 2 and 3, Granite, SmolLM 3."""

from __future__ import annotations

from archlab.errors import ConfigError
from archlab.interop.family import Family
from archlab.interop.layout import llama_layout
from archlab.interop.parts import (
    Block,
    Model,
    attention_dropout,
    biases,
    ffn,
    head,
    head_dim_of,
    heads,
    layered,
    pre_norm,
    rmsnorm,
    score_scale,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import layer_types, one_window, rope, windows


def llama(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=32000, context=2048)
    bias = f.flag("attention_bias", False)
    return {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size),
        "attention": {**heads(f, size, 32), **biases(bias, bias)},
        "ffn": ffn(f, 11008, f.flag("mlp_bias", False)),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


def mistral(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=32000, context=4096 * 32)
    model = {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size),
        "attention": heads(f, size, 32, 8),
        "ffn": ffn(f, 14336),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }
    return layered(model, one_window(f, size, 4096))


def qwen2(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=151936, context=32768)
    return qwen(f, size, {**heads(f, size, 32, 32), **biases(True, False)})


def qwen3(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=151936, context=32768)
    bias = f.flag("attention_bias", False)
    return qwen(f, size, {**heads(f, size, 32, 32, 128), **biases(bias, bias), "qk_norm": "head"})


def qwen(f: Fields, size: Model, attention: Block) -> Model:
    """Qwen 2 and 3 around their attention; layers from max_window_layers on slide, where layers do."""
    model = {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size),
        "attention": attention,
        "ffn": ffn(f, 22016),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }
    window = qwen_window(f)
    first = f.whole("max_window_layers", 28, ge=0)
    slides = [window is not None and i >= first for i in range(size["n_layers"])]
    default = ["sliding_attention" if s else "full_attention" for s in slides]
    return layered(model, windows(layer_types(f, size, default), window))


def qwen_window(f: Fields) -> int | None:
    """The window, None unless use_sliding_window says that it is used."""
    used = f.flag("use_sliding_window", False)
    window: int | None = f.whole("sliding_window", 4096, null=None, ge=1 if used else 0)
    return window if used else None


def granite(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=32000, context=2048)
    bias = f.flag("attention_bias", False)
    own = heads(f, size, 32)
    scale = score_scale(f.positive("attention_multiplier", 1.0), head_dim_of(size, own))
    return {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size),
        "attention": {**own, **biases(bias, bias), **scale},
        "ffn": ffn(f, 11008, f.flag("mlp_bias", False)),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False, logit_scale=1 / f.positive("logits_scaling", 1.0)),
        "block": pre_norm(
            branch_scale=f.number("residual_multiplier", 1.0),
            embedding_scale=f.positive("embedding_multiplier", 1.0),
        ),
    }


def smollm3(f: Fields) -> Model:
    size = sizes(f, d_model=2048, n_layers=36, vocab_size=128256, context=32768)
    bias = f.flag("attention_bias", False)
    model = {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size, 2e6),
        "attention": {**heads(f, size, 16, 4), **biases(bias, bias)},
        "ffn": ffn(f, 11008, f.flag("mlp_bias", False)),
        "dropout": attention_dropout(f),
        "head": head(f, tied=True),
        "block": pre_norm(),
    }
    rotated = _rotated(f, size)
    window = f.whole("sliding_window", None, null=None)
    slide = f.flag("use_sliding_window", False) and window is not None
    default = ["sliding_attention" if slide and not r else "full_attention" for r in rotated]
    slides = windows(layer_types(f, size, default), window)
    still: list[dict[str, Block]] = [{} if r else {"position": {"choice": "none"}} for r in rotated]
    return layered(model, [{**a, **b} for a, b in zip(still, slides, strict=True)])


def _rotated(f: Fields, size: Model) -> list[int]:
    """1 for each layer with rotary positions, 0 for one without any."""
    interval = f.whole("no_rope_layer_interval", 4)
    listed = f.items("no_rope_layers", int, size["n_layers"])
    for item in listed or ():
        if item not in (0, 1):
            raise ConfigError("no_rope_layers", f"{item} is not 0 or 1")
    return list(listed or (int((i + 1) % interval != 0) for i in range(size["n_layers"])))


LAYOUT = llama_layout()
FAMILIES = (
    Family("llama", "LlamaForCausalLM", llama, LAYOUT),
    Family("mistral", "MistralForCausalLM", mistral, LAYOUT),
    Family("qwen2", "Qwen2ForCausalLM", qwen2, LAYOUT),
    Family("qwen3", "Qwen3ForCausalLM", qwen3, LAYOUT),
    Family("granite", "GraniteForCausalLM", granite, LAYOUT),
    Family("smollm3", "SmolLM3ForCausalLM", smollm3, LAYOUT),
)
