"""The sizes of a model that can be solved for: d_ff, n_layers, d_model; how a config takes another, and what moves.

Each is set as an override would set it, so that layers of a pattern that have a size of their own keep it. What was
typed is never changed: it is refused where it is the very size that is asked for, and stays where it would have moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import MAX_LAYERS, LayerSpec
from archlab.errors import ConfigError
from archlab.frozen import Frozen
from archlab.registry import choice, part_choices

Model = Mapping[str, Any]
"""A model config."""

WIDEST = 2**30
"""Where a search for a width ends."""

WIDTHS = 64
"""What a width is a multiple of, where nothing else is asked for."""

HEADS = ("n_heads", "n_kv_heads")
IN_PROPORTION = (*HEADS, "d_ff", "shared_d_ff")
"""Options that move with d_model."""


class Size(Frozen):
    """One size that may change. key: where the config has it; start: what it is now; most: where a search ends.

    step: what it is a multiple of. put: the config with a value of it and all that moves along; moves: what that is.
    """

    name: str
    key: str
    start: int
    step: int
    most: int
    put: Callable[[int], Model]
    moves: str


def size_named(name: str, model: Model, typed: Collection[str], multiple: int | None = None) -> Size:
    """The size of a model config that can be resolved. typed: dotted keys that the user set. Raises ConfigError.

    multiple: what it is to be a multiple of; None: 64 of a width, 1 of n_layers.
    """
    size = {"d_ff": _d_ff, "n_layers": _n_layers, "d_model": _d_model}[name](model, typed, multiple)
    if size.step > size.most:
        problem = f"{size.step:,} is more than the largest {name} that is tried, {size.most:,}"
        raise ConfigError("multiple", problem, value=multiple)
    return size


def _refuse_typed(typed: Collection[str], *keys: str) -> None:
    for key in keys:
        if key in typed:
            raise ConfigError("solve", f"{key} is set and solved for; leave out one of them")


def _n_layers(model: Model, typed: Collection[str], multiple: int | None) -> Size:
    _refuse_typed(typed, "model.n_layers")

    def put(value: int) -> Model:
        return {**model, "n_layers": value}

    moves = "nothing, the pattern of layers goes on" if model.get("layers") else "nothing"
    return Size("n_layers", "model.n_layers", model["n_layers"], multiple or 1, MAX_LAYERS, put, moves)


# --- d_ff -------------------------------------------------------------------------------------------------------------


def _d_ff(model: Model, typed: Collection[str], multiple: int | None) -> Size:
    """The FFN's width, of a mixture that of its experts."""
    part = _part_with_width(model["ffn"])
    block = f"model.ffn.{part}" if part else "model.ffn"
    _refuse_typed(typed, f"{block}.d_ff", f"{block}.rule")

    def put(value: int) -> Model:
        ffn = model["ffn"]
        changed = {**ffn, part: _with_width(ffn.get(part) or {}, value)} if part else _with_width(ffn, value)
        return {**model, "ffn": changed}

    ffn: Any = _first_layer(model).ffn
    start = (getattr(ffn, part) if part else ffn).d_ff
    moves = "nothing, layers with a d_ff of their own keep it"
    return Size("d_ff", f"{block}.d_ff", start, multiple or WIDTHS, WIDEST, put, moves)


def _first_layer(model: Model) -> LayerSpec:
    """The layer of the model's own blocks, whatever its pattern of layers is."""
    return resolve({**model, "layers": None}).spec.layers[0]


def _part_with_width(ffn: Mapping[str, Any]) -> str:
    """The block of the FFN that has a d_ff: '' for its own, `expert` for that of a mixture."""
    chosen = choice("ffn", ffn["choice"])
    if "d_ff" in chosen.options:
        return ""
    for name, opt in chosen.options.items():
        if any("d_ff" in inner.options for inner in part_choices(opt).values()):
            return name
    raise ConfigError("solve", f"ffn {chosen.name} has no d_ff", value="d_ff", valid=("n_layers", "d_model"))


def _with_width(block: Mapping[str, Any], value: int) -> dict[str, Any]:
    return {name: held for name, held in block.items() if name != "rule"} | {"d_ff": value}


# --- d_model ----------------------------------------------------------------------------------------------------------


def _d_model(model: Model, typed: Collection[str], multiple: int | None) -> Size:
    """The width of the residual stream. Heads keep their features: their number moves, and so does an explicit d_ff."""
    _refuse_typed(typed, "model.d_model")
    if "model.layers" in typed and any(name in IN_PROPORTION for block in _in_layers(model) for name in block):
        problem = "d_model moves heads and widths, and model.layers sets some; give the layers in a YAML"
        raise ConfigError("solve", problem, value="d_model")
    kept = {key.removeprefix("model.") for key in typed}
    kept |= {"attention.n_kv_heads"} if "attention.n_heads" in kept else set()
    model = _with_kv_heads(model)
    step = math.lcm(multiple or WIDTHS, *_head_steps(model, kept))

    def put(value: int) -> Model:
        return _scaled(model, value, kept)

    moves = "heads and explicit widths of the FFN in proportion, features a head as they are; what was typed stays"
    return Size("d_model", "model.d_model", model["d_model"], step, WIDEST, put, moves)


def _in_layers(model: Model) -> Iterator[Mapping[str, Any]]:
    """The blocks of attention and FFN in the pattern of layers."""
    for entry in model.get("layers") or ():
        yield from (entry[axis] for axis in ("attention", "ffn") if axis in entry)


def _with_kv_heads(model: Model) -> Model:
    """The config with the KV heads that a rule gave written down, so that their share of the heads stays."""
    attention = model["attention"]
    written = attention.get("n_kv_heads") is not None
    if written or "n_kv_heads" not in choice("attention", attention["choice"]).options:
        return model
    heads = getattr(_first_layer(model).attention, "n_kv_heads", None)
    return {**model, "attention": {**attention, "n_kv_heads": heads}}


def _head_steps(model: Model, kept: Collection[str]) -> Iterator[int]:
    """Of what d_model must be a multiple so that every number of heads, or of features a head, is whole."""
    d_model, own = model["d_model"], model["attention"]
    for block in (own, *(entry["attention"] for entry in model.get("layers") or () if "attention" in entry)):
        held = {**own, **block}
        heads, groups = held["n_heads"], held.get("n_kv_heads") or 1
        one = math.gcd(d_model, heads)
        if _moves("n_heads", heads, "attention.n_heads", kept):
            yield d_model // one
            if _moves("n_kv_heads", groups, "attention.n_kv_heads", kept):
                yield d_model // math.gcd(d_model, groups)
            else:
                yield d_model // one * (groups // math.gcd(groups, heads // one))
        elif held.get("head_dim") is None and held.get("nope_dim") is None:
            yield 2 * heads  # features a head follow from d_model, and rotation needs an even number


def _moves(name: str, value: Any, key: str, kept: Collection[str]) -> bool:
    """Whether an option moves with d_model; a single KV head stays one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return name in IN_PROPORTION and whole and key not in kept and (name, value) != ("n_kv_heads", 1)


def _scaled(model: Model, d_model: int, kept: Collection[str]) -> Model:
    """The config at another width, its heads and explicit widths in proportion, rounded up to whole."""
    share = Fraction(d_model, model["d_model"])
    made = {**model, "d_model": d_model}
    for axis in ("attention", "ffn"):
        made[axis] = _scaled_block(model[axis], share, axis, kept)
    if model.get("layers") is not None:
        made["layers"] = [_scaled_block(entry, share, "", kept) for entry in model["layers"]]
    return made


def _scaled_block(block: Mapping[str, Any], share: Fraction, key: str, kept: Collection[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in block.items():
        below = f"{key}.{name}".lstrip(".")
        if isinstance(value, Mapping):
            made[name] = _scaled_block(value, share, below, kept)
        else:
            made[name] = math.ceil(value * share) if _moves(name, value, below, kept) else value
    return made
