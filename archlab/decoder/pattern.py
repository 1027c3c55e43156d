"""A pattern of layers, as a config writes it: what each entry changes, and how often it repeats."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from archlab.decoder.spec import MAX_LAYERS
from archlab.errors import ConfigError, unknown_key
from archlab.options import Verbatim
from archlab.registry import REMEMBERED, choice, is_axis, places

LAYER_AXES = ("norm", "attention", "position", "ffn", "dropout", "block")

Blocks = Mapping[str, Verbatim]
"""The config's block of each axis."""

TypedOn = Mapping[str, frozenset[str]]
"""By axis, the keys below it that the user set."""

Entry = tuple[int, Blocks, TypedOn]
"""How often an entry of the pattern repeats, what it changes by axis, and the keys that were set there."""


def layer_axes() -> tuple[str, ...]:
    """The axes that each layer has a choice on: archlab's own, and the places."""
    return (*LAYER_AXES, *places())


def read_pattern(pattern: Any, model: Blocks, typed: bool) -> list[Entry]:
    """The entries of model.layers, none where there is no pattern. Raises ConfigError.

    model: the blocks that they change. typed: by the user; of a preset, what the model's choices lack may be dropped.
    """
    if pattern is None:
        return []
    if isinstance(pattern, str):
        pattern = _parsed(pattern)
    if not isinstance(pattern, list | tuple) or not pattern:
        raise ConfigError("model.layers", f"{pattern!r} is not a list of layers")
    entries = [_entry(Verbatim(entry), f"model.layers[{index}]") for index, entry in enumerate(pattern)]
    return entries if typed else [(repeat, changes, _held(changes, keys, model)) for repeat, changes, keys in entries]


@functools.lru_cache(REMEMBERED)
def _entry(written: Verbatim, path: str) -> Entry:
    """One entry, all its keys as set there."""
    entry = written.data
    if not isinstance(entry, Mapping):
        raise ConfigError(path, f"{entry!r} is not a mapping of axes")
    repeat = entry.get("repeat", 1)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= MAX_LAYERS:
        raise ConfigError(f"{path}.repeat", f"{repeat!r} is not a whole number from 1 to {MAX_LAYERS}", value=repeat)
    changes = {key: value for key, value in entry.items() if key != "repeat"}
    for axis, block in changes.items():
        if not is_axis(axis) or axis not in layer_axes():
            raise unknown_key(axis, [*layer_axes(), "repeat"]).under(path)
        if not isinstance(block, Mapping):
            raise ConfigError(f"{path}.{axis}", f"{block!r} is not a mapping of options", value=block)
    typed = {axis: frozenset(_keys(block)) for axis, block in changes.items()}
    return repeat, {axis: Verbatim(block) for axis, block in changes.items()}, typed


def _held(changes: Blocks, keys: TypedOn, model: Blocks) -> TypedOn:
    """Of the keys that an entry sets, those that the choice has which it sets them for: its own, or the model's."""
    held = dict(keys)
    for axis, block in changes.items():
        if "choice" not in block.data:
            known = choice(axis, model[axis].data["choice"]).options
            held[axis] = frozenset(key for key in keys[axis] if key.split(".")[0] in known)
    return held


def _keys(block: Mapping[str, Any]) -> set[str]:
    """The keys that a block sets, dotted: `n_experts`, `expert`, `expert.d_ff`."""
    nested = {f"{key}.{name}" for key, value in block.items() if isinstance(value, Mapping) for name in _keys(value)}
    return {*map(str, block), *nested}


def refuse_idle(typed_on: TypedOn, pattern: Sequence[Entry]) -> None:
    """Raise ConfigError for an option that was typed for the model and that no layer takes from it."""
    for axis in layer_axes():
        for key in sorted(typed_on[axis]) if pattern else ():
            if all(axis in changes and _overrides(axis, changes[axis].data, key) for _, changes, _ in pattern):
                problem = "no layer would have it, for each entry of model.layers says otherwise; set it there"
                raise ConfigError(f"model.{axis}.{key}", problem)


def _overrides(axis: str, change: Mapping[str, Any], key: str) -> bool:
    """Whether a layer's block sets the option itself, or has a choice of its own that lacks it."""
    lacks = "choice" in change and key.split(".")[0] not in choice(axis, change["choice"]).options
    return lacks or key in _keys(change)


LONG_PATTERN = 100
"""Entries of a pattern from which on it is written as text: Hydra takes a minute over a list of 10,000."""


def pattern_text(pattern: Any) -> Any:
    """A pattern of layers as Hydra is given it: a long one as JSON text, one object instead of one a number."""
    if not isinstance(pattern, list | tuple) or len(pattern) < LONG_PATTERN:
        return pattern
    return json.dumps(pattern, separators=(",", ":"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("model.layers", f"{text[:40]!r} is not a list of layers, nor the text of one") from None
