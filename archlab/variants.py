"""Many variants of one model without Hydra: the overrides of a sweep, as Python values.

A composition that shares most of its blocks with others is read in a tenth of a millisecond, so that a hundred
thousand are a matter of seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab.compose import base_config
from archlab.decoder.resolve import merge
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, RequestError, nearest, shortened
from archlab.frozen import Frozen
from archlab.options import BLOCK, Settled
from archlab.overrides import check_key
from archlab.registry import axes, choice, is_axis
from archlab.request import Request, read_request, read_settings

Choices = Mapping[str, Any]
"""Overrides by key: `model/ffn` names a choice, `model.ffn.d_ff` holds a value."""


class Point(Frozen):
    """One combination of a sweep. request: what it asks for; where it cannot be, `error` says why instead."""

    choices: Choices
    request: Request | None = None
    error: RequestError | None = None

    @property
    def ok(self) -> bool:
        return self.request is not None

    @property
    def spec(self) -> DecoderSpec:
        """The model. Raises the point's error where it cannot be."""
        if self.request is None:
            raise self.error or RequestError("there is no model")
        return self.request.spec


def sweep(source: str | Path, choices: Mapping[str, Iterable[Any]]) -> Iterator[Point]:
    """Every combination of the values of `choices` over a model source.

    `sweep("gqa", {"model/ffn": ["swiglu", "gelu"], "model.n_layers": range(1, 9)})`. Choices are made before values are
    set, as Hydra does; among each the first key varies slowest. A point means what `load` makes of the same overrides,
    and so does a combination that cannot be: it is a point with an error, and the sweep goes on. Values are data:
    nothing in them is interpolated. A key or a choice that there is not is raised at once, before the first point:
    ConfigError, or RequestError for the source.
    """
    if not isinstance(choices, BLOCK) or not all(isinstance(key, str) for key in choices):
        raise RequestError(
            f"what is swept is values by key, such as {{'model.n_layers': [1, 2]}}, not {shortened(repr(choices))}"
        )
    config = _settled(base_config(source))
    values = [(key, _checked(key, choices[key])) for key in sorted(choices, key=_is_value)]
    typed = frozenset(filter(_is_value, choices))
    model_alone = all(key.startswith(("model.", "model/")) for key in choices)
    settings = read_settings(config) if model_alone else None
    return (_point(made, chosen, typed, settings) for chosen, made in _combined(config, values, {}))


def _combined(
    config: Mapping[str, Any], values: Sequence[tuple[str, list[Any]]], chosen: Choices
) -> Iterator[tuple[Choices, Mapping[str, Any]]]:
    """What is chosen, and the config with it put in; what combinations have in common is put in once."""
    if not values:
        yield chosen, config
        return
    (key, given), *rest = values
    path = tuple(key.split(".")) if _is_value(key) else (*key.split("/"), "choice")
    for value in given:
        yield from _combined(_put(config, path, value), rest, {**chosen, key: value})


def _settled(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose model is of settled blocks, for all combinations write down what they have in common."""
    model = {name: Settled(held) if isinstance(held, BLOCK) else held for name, held in config["model"].items()}
    return {**config, "model": model}


def _checked(key: str, values: Iterable[Any]) -> list[Any]:
    """The values of a key, all of which there is. Raises ConfigError."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(key, f"{values!r} is not a list of values", value=values)
    group, _, axis = key.partition("/")
    values = list(values)
    if axis:
        if group != "model" or not is_axis(axis):
            groups = [f"model/{axis}" for axis in axes()]
            raise ConfigError(key, "no such group", valid=groups, nearest=nearest(key, groups))
        for name in values:
            choice(axis, name)
    elif key == "model":
        raise ConfigError(key, "is what a sweep starts from; give it as the source")
    elif "[" in key:
        raise ConfigError(key, "is a part of a list; set the list as a whole", value=key)
    else:
        blocks = all(isinstance(value, Mapping) for value in values)
        check_key(key, "{" if blocks else "")
    return values


def _point(
    config: Mapping[str, Any], choices: Choices, typed: frozenset[str], settings: Mapping[str, Any] | None
) -> Point:
    try:
        return Point(choices, read_request(config, typed, settings), None)
    except RequestError as error:
        return Point(choices, None, error)


def _is_value(key: str) -> bool:
    """Whether an override sets a value; `model/ffn` makes a choice."""
    return "/" not in key


def _put(block: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Settled:
    """The block with a value at the path, a block merged with what is there; what is not on the path is shared."""
    name, below = path[0], path[1:]
    held = block.get(name)
    if below:
        value = _put(held if isinstance(held, BLOCK) else {}, below, value)
    elif isinstance(value, BLOCK) and isinstance(held, BLOCK):
        value = merge(held, value)
    made = Settled(block)
    made[name] = value
    return made
