"""Rotary positions and windows, in the dialect of the hub and in that of transformers 5."""

from __future__ import annotations

import math
from typing import Any

from archlab.errors import ConfigError
from archlab.interop.parts import Block, Model
from archlab.interop.reader import REQUIRED, Fields, show

CHOICES = {
    "default": "rope",
    "linear": "linear",
    "dynamic": "ntk",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
}
LAYER_TYPES = ("full_attention", "sliding_attention")


def rope(f: Fields, size: Model, theta: float = 10000.0, fraction: float | None = None, **more: Any) -> Block:
    """The position block. fraction: the share that is rotated by default, None where the family has no such setting.

    What the block of the scaling says goes before what stands beside it.
    """
    scaling = scaling_of(f)
    base = scaling.number("rope_theta", f.number("rope_theta", theta))
    block = {**_choice(scaling, f, size, base), **more}
    share = 1.0 if fraction is None else fraction
    share = scaling.number("partial_rotary_factor", f.number("partial_rotary_factor", share))
    if fraction is None and share != 1:
        raise f.wrong("partial_rotary_factor", f"I do not model {show(share)} in this family")
    _finish(scaling)
    return block if share == 1 else {**block, "fraction": share}


def scaling_of(f: Fields) -> Fields:
    """The hub's `rope_scaling` where it says anything, else transformers 5's `rope_parameters`: never both."""
    new, old = f.block("rope_parameters"), f.block("rope_scaling")
    if old is not None and old.raw:
        return old
    return Fields({}) if new is None else new


def two_ropes(f: Fields, size: Model, theta: float, local: float) -> tuple[Block, Block]:
    """The positions of full layers and of sliding ones (Gemma 3), each with a block of `rope_parameters`.

    The hub's `rope_scaling` is of the full layers alone, and by its `rope_type`: what it calls `type` is not heard,
    neither from the hub nor from the file that transformers makes of it.
    """
    theta, local = f.number("rope_theta", theta), f.number("rope_local_base_freq", local)
    old, new = f.block("rope_scaling"), f.block("rope_parameters")
    f.only("partial_rotary_factor", 1.0, 1)
    given = new or Fields({name: {"rope_type": "default"} for name in LAYER_TYPES})
    whole, sliding = (given.block(name) or Fields({}) for name in LAYER_TYPES)
    _finish(given)
    whole = whole.instead(**({} if old is None else old.raw))
    return _one_of_two(whole, size, theta), _one_of_two(sliding, size, local)


def _one_of_two(scaling: Fields, size: Model, base: float) -> Block:
    if scaling.raw.get("rope_type") == "default" and "type" in scaling.raw:
        scaling = Fields({name: value for name, value in scaling.raw.items() if name == "rope_theta"}, scaling.where)
    block = _choice(scaling, Fields({}), size, scaling.number("rope_theta", base))
    scaling.only("partial_rotary_factor", 1.0, 1)
    scaling.only("truncate", True)  # transformers looks for it where it is not
    _finish(scaling)
    return block


def _finish(scaling: Fields) -> None:
    """`finetuned` says how a YaRN checkpoint came to be; it changes nothing."""
    scaling.finish({"finetuned": "how it was made"})


def _choice(scaling: Fields, f: Fields, size: Model, base: float) -> Block:
    scaling.asked["type"] = None
    name = "rope_type" if scaling.has("rope_type") else "type"
    kind = CHOICES[scaling.word(name, tuple(CHOICES), "default")]
    return {"choice": kind, "base": base, **_READERS[kind](scaling, f, size)}


def _rope(scaling: Fields, f: Fields, size: Model) -> Block:
    f.spelled("original_max_position_embeddings")  # there to be told, not used
    return {}


def _linear(scaling: Fields, f: Fields, size: Model) -> Block:
    f.spelled("original_max_position_embeddings")
    return {"factor": scaling.number("factor")}


def _ntk(scaling: Fields, f: Fields, size: Model) -> Block:
    for fields in (scaling, f):
        fields.only("original_max_position_embeddings", size["context"], None)
    return {"factor": scaling.number("factor"), "original_context": size["context"]}


def _original(scaling: Fields, f: Fields, size: Model) -> int:
    """The context before the stretch: beside the scaling (Phi-3) or in it, else the whole."""
    inside = scaling.whole("original_max_position_embeddings", size["context"], null=size["context"])
    beside: int = f.whole("original_max_position_embeddings", inside)
    return beside


def _stretch(scaling: Fields, f: Fields, size: Model, default: Any = None) -> tuple[int, float]:
    """The original context and the factor, which without a number of its own is the ratio of the contexts."""
    original = _original(scaling, f, size)
    factor = scaling.number("factor", default, null=None)
    return original, size["context"] / original if factor is None else factor


def _yarn(scaling: Fields, f: Fields, size: Model) -> Block:
    original, factor = _stretch(scaling, f, size, REQUIRED)
    block = {
        "factor": factor,
        "original_context": original,
        "beta_fast": scaling.number("beta_fast", 32.0, null=32.0) or 32.0,
        "beta_slow": scaling.number("beta_slow", 1.0, null=1.0) or 1.0,
    }
    for name in ("attention_factor", "mscale", "mscale_all_dim"):
        value = scaling.number(name, None)
        block |= {} if value is None else {name: value}
    return block if scaling.flag("truncate", True) else {**block, "truncate": False}


def _llama3(scaling: Fields, f: Fields, size: Model) -> Block:
    return {
        "factor": scaling.number("factor"),
        "original_context": _original(scaling, f, size),
        "low_freq_factor": scaling.number("low_freq_factor"),
        "high_freq_factor": scaling.number("high_freq_factor"),
    }


def _longrope(scaling: Fields, f: Fields, size: Model) -> Block:
    original, factor = _stretch(scaling, f, size)
    usual, stretched = (_longrope_factor(ratio, original) for ratio in (size["context"] / original, factor))
    attention_factor = scaling.number("attention_factor", stretched, null=stretched)
    factors = {name: scaling.items(name, float) for name in ("short_factor", "long_factor")}
    for name, values in factors.items():
        if values is None:
            raise scaling.wrong(name, "is missing")
    lists = {name: [float(value) for value in values] for name, values in factors.items()}
    return {
        "original_context": original,
        **({} if attention_factor == usual else {"attention_factor": attention_factor}),
        **lists,
    }


def _longrope_factor(ratio: float, original: int) -> float:
    return math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 and original > 1 else 1.0


_READERS = {
    "rope": _rope,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}


def yarn_score_scale(position: Block) -> float:
    """What YaRN multiplies the scores of latent attention by, beside cos and sin. DeepSeek-V2, section 3.1.4."""
    scale = position.get("mscale_all_dim")
    factor = position.get("factor", 1.0)
    return (0.1 * scale * math.log(factor) + 1.0) ** 2 if scale and factor > 1 else 1.0


def layer_types(f: Fields, size: Model, default: list[str]) -> list[str]:
    """Which attention each layer has: as listed, else the family's default."""
    listed = f.items("layer_types", str, size["n_layers"])
    for name in listed or ():
        if name not in LAYER_TYPES:
            raise ConfigError("layer_types", f"I do not model {show(name)}", valid=LAYER_TYPES)
    return list(listed or default)


def windows(types: list[str], window: int | None) -> list[dict[str, Block]]:
    """What each layer changes: a window where it slides."""
    if window is None and "sliding_attention" in types:
        raise ConfigError("layer_types", "a layer slides, but sliding_window is not set")
    return [{"attention": {"window": window}} if kind == "sliding_attention" else {} for kind in types]


def one_window(f: Fields, size: Model, default: int | None = None) -> list[dict[str, Block]]:
    """The same window in every layer, or none. A list of layer types must not say otherwise."""
    window = f.whole("sliding_window", default, null=None)
    kind = "full_attention" if window is None else "sliding_attention"
    every = [kind] * size["n_layers"]
    if layer_types(f, size, every) != every:
        raise ConfigError("layer_types", f"I do not model layers that differ in this family; all are {kind}")
    return windows(every, window)
