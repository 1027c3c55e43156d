"""Random small models over all registered choices and their options, and weights that make every part matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from archlab.components.attention.base import divisors
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import replace
from archlab.inside.contract import spread_weights
from archlab.options import Option
from archlab.registry import choices, part_choices

__all__ = ["CONTEXT", "blocks", "models", "specs", "spread_weights"]

CONTEXT = 12
ROTATED = [(1.0, 4), (1.0, 6), (1.0, 8), (0.5, 8), (0.75, 8), (0.5, 12)]
"""(fraction, head_dim): an even number of rotated features, at least 4."""

NAMED: dict[str, st.SearchStrategy[Any]] = {
    "eps": st.sampled_from([1e-6, 1e-5, 1e-2]),
    "base": st.sampled_from([100.0, 10_000.0, 1e6]),
    "original_context": st.integers(1, CONTEXT),
    "rope_length": st.none() | st.integers(1, 2 * CONTEXT),
    "beta_fast": st.floats(8, 32),
    "beta_slow": st.floats(0.5, 2),
    "low_freq_factor": st.floats(0.5, 1),
    "high_freq_factor": st.floats(2, 4),
    "mscale": st.none() | st.floats(0.5, 1.5),
    "mscale_all_dim": st.none() | st.floats(0.5, 1.5),
    "scale": st.floats(0.1, 1),
    "residual_scale": st.sampled_from([0.0, 0.5, 1.0]),
    "branch_scale": st.sampled_from([-0.5, 0.1, 1.0]),
    "embedding_scale": st.floats(0.5, 2),
    "logit_scale": st.floats(0.1, 2),
    "scaling": st.floats(0.5, 3),
    "d_ff": st.integers(1, 24),
    "window": st.none() | st.integers(1, CONTEXT + 2),
    "chunk": st.none() | st.integers(1, CONTEXT + 2),
    "max_distance": st.integers(9, 16),
    "n_buckets": st.integers(2, 8),
    "qk_norm_bias": st.just(False),
    "shares_kv": st.just(False),  # `patterns` draws it, after a layer that has keys and values
    "latent_eps": st.none(),
    "max_bias": st.sampled_from([4.0, 8.0]),
    "limit": st.floats(0.2, 7),
}
"""Options whose sensible range is narrower than their bounds."""


def values_of(opt: Option) -> st.SearchStrategy[Any]:
    """Valid values of an option, from its declaration."""
    if opt.part is not None:
        others = tuple(name for name in choices(opt.part[0]) if name not in part_choices(opt))
        return blocks(opt.part[0], others)
    if opt.name in NAMED:
        return NAMED[opt.name]
    if opt.valid is not None:
        return st.sampled_from(opt.valid)
    if bool in opt.types:
        return st.booleans()
    if type(None) in opt.types:
        return st.none() | values_of(replace(opt, types=tuple(kind for kind in opt.types if kind is not type(None))))
    low = opt.ge if opt.ge is not None else opt.gt or 0
    if int in opt.types:
        return st.integers(int(low) + (opt.gt is not None), int(low) + 6)
    return st.floats(low, min(opt.lt or low + 3, low + 3), exclude_min=opt.gt is not None, exclude_max=True)


@st.composite
def blocks(draw: st.DrawFn, axis: str, skip: tuple[str, ...] = (), **given: Any) -> dict[str, Any]:
    """One axis's config: any choice but those of `skip`, any of its options; `given` holds for the choices with it."""
    name = draw(st.sampled_from([name for name in choices(axis) if name not in skip]))
    block: dict[str, Any] = {"choice": name}
    for key, opt in choices(axis)[name].options.items():
        if key in given:
            block[key] = given[key]
        elif opt.required or draw(st.booleans()):
            block[key] = draw(values_of(opt))
    for one, other in (("d_ff", "rule"), ("window", "chunk")):  # said one way or the other
        if block.get(one) is not None:
            block.pop(other, None)
    if name == "t5":
        block.setdefault("n_buckets", 6)
    if block.get("unit_offset"):
        block["weight"] = True
    elif block.get("weight") is False and name == "rmsnorm":
        block["unit_offset"] = False  # said, so that a layer of a pattern does not inherit it
    return block | draw(routing()) if name == "moe" else block


@st.composite
def routing(draw: st.DrawFn) -> dict[str, Any]:
    """Options of `moe` that must fit together."""
    groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    asked = draw(st.integers(1, groups))
    shared = draw(st.sampled_from([{}, {"n_shared": 2}, {"n_shared": 0, "shared_d_ff": 5}]))
    return {
        "n_experts": groups * size,
        "n_groups": groups,
        "groups_per_token": asked,
        "experts_per_token": draw(st.integers(1, asked * size)),
        "group_score": draw(st.sampled_from(["max", "top2"] if size > 1 else ["max"])),
        "n_shared": 0,
        "shared_d_ff": None,
        "shared_gate": bool(shared) and draw(st.booleans()),
        **shared,
    }


def ffns() -> st.SearchStrategy[dict[str, Any]]:
    """An FFN; half of them are mixtures, which nest all the others."""
    return blocks("ffn") | blocks("ffn", tuple(name for name in choices("ffn") if name != "moe"))


@st.composite
def models(draw: st.DrawFn, task_heads: bool = True) -> dict[str, Any]:
    """A model config: every axis, sometimes a pattern of layers that differ."""
    fraction, head_dim = draw(st.sampled_from(ROTATED))
    pairs = int(head_dim * fraction) // 2
    divided = st.lists(st.floats(1, 4), min_size=pairs, max_size=pairs)
    n_heads = draw(st.integers(1, 6))
    heads = {"n_heads": n_heads, "n_kv_heads": draw(st.sampled_from(divisors(n_heads))), "head_dim": head_dim}
    heads |= {"rope_dim": head_dim, "nope_dim": draw(st.integers(1, 6))}
    rope = {"fraction": fraction, "short_factor": draw(divided), "long_factor": draw(divided)}
    model = {
        "d_model": draw(st.sampled_from([3, 8, 12])),
        "n_layers": draw(st.integers(1, 3)),
        "vocab_size": 17,
        "context": CONTEXT,
        "attention": draw(blocks("attention", **heads)),
        "position": draw(blocks("position", **rope)),
        "head": draw(blocks("head", () if task_heads else ("classification", "regression"))),
    }
    model |= {axis: draw(blocks(axis)) for axis in ("norm", "dropout", "block")} | {"ffn": draw(ffns())}
    if draw(st.booleans()):
        model["layers"] = draw(patterns(model["attention"], heads, rope))
    return model


@st.composite
def patterns(
    draw: st.DrawFn, attention: Mapping[str, Any], heads: Mapping[str, Any], rope: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Layers that differ: in their attention, FFN, norm, in being without position (or with another rotation), or in

    sharing the first layer's keys and values."""
    changed = [
        _entry("attention", blocks("attention", **heads)),
        _entry("ffn", ffns()),
        _entry("norm", blocks("norm")),
        _entry("position", blocks("position", ("learned", "sinusoidal"), **rope)),
        _entry("block", blocks("block")),
    ]
    if "shares_kv" in choices("attention")[attention["choice"]].options:
        changed.append(_entry("attention", sharing(attention)))
    return [{}, *draw(st.lists(st.one_of(changed), max_size=2))]


def sharing(attention: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What a layer that shares keys and values may have otherwise than the one that it reads."""
    known = choices("attention")[attention["choice"]].options
    free = ("scale", "q_bias", "o_bias", "qk_norm", "qkv_clip", "sinks", "logit_cap")
    optional = {name: values_of(known[name]) for name in free}
    if "n_kv_heads" in known:
        optional["n_heads"] = st.integers(1, 3).map(lambda times: times * attention["n_kv_heads"])
    return st.fixed_dictionaries({"shares_kv": st.just(True)}, optional=optional)


def _entry(axis: str, block: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({axis: block, "repeat": st.integers(1, 2)})


def specs(task_heads: bool = True) -> st.SearchStrategy[DecoderSpec]:
    """The resolved specs of `models`."""
    return models(task_heads).map(lambda model: resolve(model).spec)
