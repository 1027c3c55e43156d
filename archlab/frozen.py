"""Immutable values with named fields: what `dataclass(frozen=True)` gives, without compiling code for each class.

A class costs 0.03 ms instead of 1.1 ms (Python 3.11), and a command that is to answer in 0.3 s needs sixty of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, dataclass_transform, overload

T = TypeVar("T", bound="Frozen")
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""The default of a field that has none."""


class Field:
    """A field's default, or what makes one anew for each value, and what else is said about it."""

    __slots__ = ("default", "factory", "metadata")

    def __init__(self, default: Any, factory: Callable[[], Any] | None, metadata: Mapping[str, Any]) -> None:
        self.default, self.factory, self.metadata = default, factory, metadata


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """A field of a Frozen class that has more to say than its default."""
    return Field(default, default_factory, metadata or {})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen:
    """Base of values that never change. Annotated names are fields, in the order of declaration; equal by value.

    `__post_init__` may check them.
    """

    _fields: ClassVar[dict[str, Field]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    _factories: ClassVar[dict[str, Callable[[], Any]]] = {}

    def __init_subclass__(cls) -> None:
        fields = {name: made for base in reversed(cls.__bases__) for name, made in getattr(base, "_fields", {}).items()}
        for name, hint in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 inspect takes 10 ms to import
            if not str(hint).startswith("ClassVar"):
                given = cls.__dict__.get(name, MISSING)
                fields[name] = given if isinstance(given, Field) else Field(given, None, {})
                if isinstance(given, Field):  # the class shows the default, as a dataclass does
                    delattr(cls, name) if given.default is MISSING else setattr(cls, name, given.default)
        cls._fields = fields
        cls._factories = {name: made.factory for name, made in fields.items() if made.factory is not None}
        cls._defaults = {name: made.default for name, made in fields.items() if made.default is not MISSING}

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self._fields
        if values:
            named.update(zip(fields, values, strict=False))
        if named.keys() != fields.keys() or len(values) > len(fields):
            named = self._filled(len(values), named)
        object.__setattr__(self, "__dict__", named)
        self.__post_init__()

    @classmethod
    def _filled(cls, places: int, named: dict[str, Any]) -> dict[str, Any]:
        """The values with the defaults of the fields that have none. Raises TypeError for what does not fit."""
        fields = cls._fields
        made = {name: make() for name, make in cls._factories.items() if name not in named}
        filled = {**cls._defaults, **made, **named}
        if places > len(fields) or filled.keys() != fields.keys():
            raise TypeError(f"{cls.__name__} has the fields {', '.join(fields)}; given: {', '.join(named)}")
        return filled

    def __post_init__(self) -> None:
        """Raise where the values do not fit together."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} never changes: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} never changes: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return values_of(self) == values_of(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        held = self.__dict__
        if "_hash" not in held:
            held["_hash"] = hash((type(self), *values_of(self).values()))
        return int(held["_hash"])

    def __getstate__(self) -> dict[str, Any]:
        return values_of(self)  # what was worked out of them is not theirs, and a hash of text holds in one process

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in values_of(self).items())
        return f"{type(self).__name__}({shown})"


def fields_of(kind: type[Frozen]) -> Mapping[str, Field]:
    """The fields of a class by name."""
    return kind._fields


def values_of(value: Frozen) -> dict[str, Any]:
    """The values of its fields by name, in the order of declaration."""
    held = value.__dict__
    return {name: held[name] for name in value._fields}


class derived(Generic[V, R]):
    """A property of a Frozen value that is worked out when it is first read, and then stays with the value.

    `functools.cached_property` does the same, but up to Python 3.11 under a lock, which torch.compile cannot trace.
    """

    def __init__(self, function: Callable[[V], R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, value: None, owner: type) -> Self: ...
    @overload
    def __get__(self, value: V, owner: type) -> R: ...
    def __get__(self, value: V | None, owner: type) -> Self | R:
        if value is None:
            return self
        made = value.__dict__[self.name] = self.function(value)  # found there from now on: this is no data descriptor
        return made


def remembered(function: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
    """Keep what a function makes of a Frozen value, its first argument, with that value, by the other arguments.

    By the value itself and not by what it equals: an int that remembers more than its number equals a plain one. What
    is made is shared, and not to be changed.
    """

    @functools.wraps(function)
    def kept(value: V, *others: P.args, **named: P.kwargs) -> R:
        store = value.__dict__.setdefault("_remembered", {})
        key = (function, others, *map(type, others), *named.items())
        if key not in store:
            store[key] = function(value, *others, **named)
        found: R = store[key]
        return found

    return kept


def replace(value: T, **changes: Any) -> T:
    """The same value with some fields changed, checked anew."""
    return type(value)(**values_of(value) | changes)
