"""Typed options: a class of frozen fields is the schema, the validator and the help text of a choice.

A field made by `option` is what a user may set. With `auto` it has no fixed default: `Spec.derive` works it
out from the other values and from the model, and the resolved number is what the spec holds and every table
shows. A field made by `inherited` comes from the model and cannot be set on the choice. A field made by `part` is a
choice in its own right, with options of its own: the FFN of the experts of `ffn=moe`.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self, dataclass_transform

from archlab.errors import EMPTY, ConfigError, Unsaid, nearest, unknown_key
from archlab.frozen import MISSING, Frozen, field, fields_of, replace


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    auto: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    lt: float | None = None,
    valid: Sequence[Any] | None = None,
    excludes: str | None = None,
    words: Sequence[str] = (),
) -> Any:
    """A field that a user may set.

    auto: the rule, in words, that gives the value when the user does not. ge, gt, lt: bounds.
    valid: the only values. excludes: an option that says the same thing another way; setting one clears it.
    words: rules by name that may stand for a number; `Spec.derive` puts the number in their place.
    """
    bounds = {"ge": ge, "gt": gt, "lt": lt, "valid": valid}
    about = {"help": help, "auto": auto, "excludes": excludes, "part": None, "rules": tuple(words)}
    return field(default=default, metadata=about | bounds)


def part(axis: str, choice: str, help: str) -> Any:
    """A field that holds another spec: a block of options of `axis`, of `choice` unless the block names another.

    Which choices it may name is the field's type: those whose spec is of that class.
    """
    made = option(help=help, auto=f"{choice} with its own defaults")
    return field(metadata={**made.metadata, "part": (axis, choice)})


def inherited() -> Any:
    """A field that the model supplies: the width, the vocabulary, the layer's norm."""
    return field(metadata={"inherited": True})


class Option(Frozen):
    """One settable field of a spec class, as the validator and the help read it."""

    name: str
    types: tuple[Any, ...]
    item: Any
    default: Any
    help: str
    auto: str | None
    excludes: str | None
    ge: float | None
    gt: float | None
    lt: float | None
    valid: tuple[Any, ...] | None
    part: tuple[str, str] | None
    rules: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.auto is None

    def describe(self) -> str:
        """The default as the help shows it: a value, a rule in words, or `required`."""
        if self.required:
            return "required"
        return f"auto: {self.auto}" if self.auto is not None else _show(self.default)

    def read(self, value: Any) -> Any:
        """The value, checked and converted (an int where a float is meant). Raises ConfigError."""
        value = _coerce(self, value)
        for item in value if isinstance(value, tuple) else (value,):
            may_be = (self.default, *(self.valid or ()))  # an empty text too, where it stands there
            if isinstance(item, str) and not item.strip() and item not in may_be:
                raise ConfigError(self.name, EMPTY, value=item)
            if self.valid is not None and item is not None and item not in self.valid:
                problem = f"{_show(item)} is not one of its values"
                raise ConfigError(
                    self.name, problem, value=item, valid=self.valid, nearest=nearest(str(item), self.words)
                )
            _check_bounds(self, item)
        return value

    @property
    def words(self) -> list[str]:
        return [word for word in (*(self.valid or ()), *self.rules) if isinstance(word, str)]


def _show(value: Any) -> str:
    if value == "":
        return "''"
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if _scalar(value) else str(value)


def _scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _coerce(opt: Option, value: Any) -> Any:
    kinds = opt.types
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, bool):
        matched = bool in kinds
    elif isinstance(value, int):
        matched = int in kinds or float in kinds
        value = float(value) if int not in kinds and float in kinds and abs(value) < 2**53 else value
    elif isinstance(value, float):
        matched = float in kinds and math.isfinite(value)
    elif isinstance(value, list | tuple):
        matched = tuple in kinds
        value = tuple(_coerce_item(opt, item) for item in value) if matched else value
    elif isinstance(value, Spec):
        matched = opt.part is not None and isinstance(value, kinds)
    else:
        matched = isinstance(value, str) and (str in kinds or value in opt.rules)
    if not matched:
        wanted = " or ".join((*(_TYPE_NAMES.get(kind, "a block of options") for kind in kinds), *opt.rules))
        near = nearest(value, opt.rules) if isinstance(value, str) else None
        raise ConfigError(opt.name, f"{value!r} is not {wanted}", value=value, nearest=near)
    return value


def _coerce_item(opt: Option, item: Any) -> Any:
    return _coerce(replace(opt, types=(opt.item,)), item)


_TYPE_NAMES = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a word",
    tuple: "a list",
    type(None): "null",
}


MOST = 2**31 - 1
"""Of whole numbers that have no bound of their own: no model has more of anything, and torch counts in 64 bits."""


def _check_bounds(opt: Option, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and value > MOST and opt.lt is None:
        raise ConfigError(opt.name, f"{value} must be <= {MOST}", value=value)
    for sign, bound, holds in (
        (">=", opt.ge, opt.ge is None or value >= opt.ge),
        (">", opt.gt, opt.gt is None or value > opt.gt),
        ("<", opt.lt, opt.lt is None or value < opt.lt),
    ):
        if not holds:
            raise ConfigError(opt.name, f"{value} must be {sign} {bound}", value=value)


_options: dict[type, Mapping[str, Option]] = {}


def options_of(cls: type) -> Mapping[str, Option]:
    """The settable fields of a spec class by name, in the order they are declared."""
    if cls not in _options:
        _options[cls] = types.MappingProxyType(_find_options(cls))
    return _options[cls]


def _find_options(cls: Any) -> dict[str, Option]:
    hints = typing.get_type_hints(cls)
    found = {}
    for name, made in fields_of(cls).items():
        if "help" not in made.metadata:
            continue
        valid = made.metadata["valid"]
        found[name] = Option(
            name=name,
            types=_type_names(hints[name]),
            item=_item_type(hints[name]),
            default=made.default,
            **{**made.metadata, "valid": None if valid is None else tuple(valid)},
        )
    return found


def _type_names(hint: Any) -> tuple[Any, ...]:
    return tuple(typing.get_origin(member) or member for member in _members(hint))


def _item_type(hint: Any) -> Any:
    """The type of a tuple's items, None where the option takes no tuple."""
    tuples = [member for member in _members(hint) if typing.get_origin(member) is tuple]
    return typing.get_args(tuples[0])[0] if tuples else None


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def inherited_of(cls: Any) -> tuple[str, ...]:
    """The fields that the model supplies to this spec class."""
    return tuple(name for name, item in fields_of(cls).items() if item.metadata.get("inherited"))


class Verbatim(str):
    """Plain data by how it is written, as a key: so that 1, 1.0 and true stay apart."""

    data: Any

    def __new__(cls, data: Any) -> Self:
        written = super().__new__(cls, repr(data))
        written.data = data
        return written


class Settled(dict[str, Any]):
    """A block of a config that nobody changes any more, so that it is written down once."""

    @functools.cached_property
    def verbatim(self) -> Verbatim:
        return Verbatim(self)


def verbatim(block: Mapping[str, Any]) -> Verbatim:
    """A block by how it is written."""
    return block.verbatim if isinstance(block, Settled) else Verbatim(block)


NOTHING = Verbatim({})
BLOCK = (dict, Mapping)
"""A block of a config, for isinstance: an abstract class alone takes three times as long to ask for."""


def read_options(cls: type, raw: Mapping[str, Any], skip: Collection[str] = ()) -> dict[str, Any]:
    """Check `raw` against the options of `cls` but `skip`: unknown keys, types, bounds, missing ones.

    An option with a rule (`auto`) that is absent or null stays out of the result, for `derive` to fill in.
    """
    known = {name: opt for name, opt in options_of(cls).items() if name not in skip}
    for key in raw:
        if key not in known:
            raise unknown_key(key, known)
    values = {}
    for name, opt in known.items():
        value = raw.get(name, MISSING)
        if opt.auto is not None and (value is MISSING or value is None):
            continue
        if value is MISSING:
            if opt.default is MISSING:
                raise ConfigError(name, f"is required ({opt.help})")
            values[name] = opt.default
        else:
            values[name] = opt.read(value)
    return values


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, part, inherited))
class Spec(Frozen):
    """Base of every spec: frozen, validated, torch-free. `axis` and `choice` are what it is registered under."""

    axis: str
    choice: str

    @classmethod
    def resolve(cls, axis: str, choice: str, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> Self:
        """A checked spec from read options and from what the model supplies. Raises ConfigError."""
        filled = {name: sizes[name] for name in inherited_of(cls)} | dict(values)
        cls.derive(filled)
        spec = cls(axis=axis, choice=choice, **filled)
        spec.check()
        return spec

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        """Fill in, in place, the options that have a rule and were not given."""

    def check(self) -> None:
        """Raise ConfigError where the values do not fit together."""

    def remarks(self) -> tuple[str, ...]:
        """What somebody who set these options might not expect, a line each."""
        return ()

    def unsaid(self, name: str) -> Unsaid:
        """The error where the class leaves out what others ask of a spec of its axis."""
        problem = f"{self.choice} does not say its {name}, which is needed here; {type(self).__name__} lacks it"
        return Unsaid(f"model/{self.axis}", problem, value=self.choice)

    def options(self) -> dict[str, Any]:
        """Every settable option with its resolved value."""
        return {name: getattr(self, name) for name in options_of(type(self))}


def read_plain(cls: type, raw: Mapping[str, Any] | None, prefix: str) -> Any:
    """A class of options that is no choice (a workload, a bench setting), read and checked."""
    return _read_plain(cls, Verbatim(raw) if raw else NOTHING, prefix)


@functools.lru_cache(2**10)
def _read_plain(cls: type, raw: Verbatim, prefix: str) -> Any:
    try:
        return cls(**read_options(cls, raw.data))
    except ConfigError as error:
        raise error.under(prefix) from None
