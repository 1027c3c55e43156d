"""Axes and their choices: register, look up, suggest.

An axis is one place where a choice is made; it has the same name here, in `archlab/components/` and in
`conf/model/`. A choice is a spec class, some of whose options it may fix. Its module is registered by
`implements` in `archlab/components/<axis>/module.py`, which is imported only when a model is built.

Choices of others are registered as archlab's own are (`archlab.components.own`), and so are places: axes that stand
before or after attention or FFN in every layer. Those of installed packages are imported when something is asked for
that is not here yet, or all that there is.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen, derived, field
from archlab.options import Option, Spec, options_of

AXES = ("norm", "position", "attention", "ffn", "dropout", "head", "block")
"""archlab's own."""

PARTS = ("attention", "ffn")
"""What a place may stand beside."""

REMEMBERED = 2**14
"""Blocks that are kept as read: a sweep writes the same ones again and again."""

Fixed = Mapping[str, Any]
"""Options that a choice fixes: a constant, or a function of the other options (`n_kv_heads` of `mha`)."""

_choices: dict[str, dict[str, Choice]] = {axis: {} for axis in AXES}
_places: dict[str, Place] = {}
_modules: dict[type[Spec], Any] = {}
_forget: list[Callable[[], None]] = []
M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")


class Place(Frozen):
    """An axis beside archlab's own: its choice stands before a part of every layer, or after it.

    part: one of PARTS. origin: the file or the module that registered it.
    """

    name: str
    part: str
    before: bool
    origin: str

    @property
    def words(self) -> str:
        return f"{'before' if self.before else 'after'} {self.part}"


class Choice(Frozen):
    """One registered option of an axis.

    source: the paper it is from. origin: the file or the module that registered it, nothing for archlab's own.
    """

    axis: str
    name: str
    spec: type[Spec]
    summary: str
    formula: str
    fixed: Fixed = field(default_factory=dict)
    source: str = ""
    origin: str = ""

    @derived
    def options(self) -> dict[str, Option]:
        """What a user may set on this choice."""
        return {name: opt for name, opt in options_of(self.spec).items() if name not in self.fixed}

    def apply_fixed(self, values: dict[str, Any]) -> None:
        """Put the fixed options into `values`, in place."""
        for name, value in self.fixed.items():
            values[name] = value(values) if callable(value) else value


def register(
    axis: str,
    name: str,
    spec: type[Spec],
    *,
    summary: str,
    formula: str,
    fixed: Fixed | None = None,
    source: str = "",
    origin: str = "",
) -> None:
    """Register a choice. summary: one line on what it is; formula: its parameters, in the design's words.

    What the same origin registered under this name before is replaced: a file that is read again, a cell run again.
    """
    if axis not in _choices:
        raise _no_axis(axis)
    held = _choices[axis].get(name)
    if held is not None and (not origin or held.origin != origin):
        raise _taken(f"{axis}/{name}", held.origin)
    _choices[axis][name] = Choice(axis, name, spec, summary, formula, fixed or {}, source, origin)
    forget_reads()


def register_place(place: Place) -> None:
    """Register an axis of its own. Raises ConfigError where there is one of that name elsewhere."""
    if place.part not in PARTS:
        raise ConfigError("", f"{place.name}: no part {place.part!r}", valid=PARTS, nearest=nearest(place.part, PARTS))
    held = _places.get(place.name)
    if place.name in AXES or (held is not None and held.origin != place.origin):
        raise _taken(f"the axis {place.name}", "" if held is None else held.origin)
    _places[place.name] = place
    _choices.setdefault(place.name, {})
    forget_reads()


def _taken(what: str, by: str) -> ConfigError:
    return ConfigError("", f"{what} is registered already, by {by or 'archlab itself'}; choose another name")


def _no_axis(axis: str) -> ConfigError:
    return ConfigError("", f"no axis {axis!r}", valid=axes(), nearest=nearest(axis, axes()))


def read_once(function: Callable[P, R]) -> Callable[P, R]:
    """Keep what a function makes of its arguments, until the choices that there are change."""
    kept = functools.lru_cache(REMEMBERED)(function)
    _forget.append(kept.cache_clear)
    return kept  # type: ignore[return-value]


def forget_reads() -> None:
    """Let go what was read by the choices that there were."""
    for clear in _forget:
        clear()


def axes() -> tuple[str, ...]:
    """All axes: archlab's own, and the places."""
    return (*AXES, *_places)


def places() -> dict[str, Place]:
    """The places by name, in the order in which they were registered."""
    return _places


def origins() -> dict[str, str]:
    """What others registered, `norm/dyt`, by the file or the module that did."""
    found = {name: place.origin for name, place in _places.items()}
    choices = (known for axis in _choices.values() for known in axis.values())
    return found | {f"{known.axis}/{known.name}": known.origin for known in choices if known.origin}


def is_axis(name: str) -> bool:
    """Whether there is such an axis, of an installed package too."""
    if name not in _choices:
        _load_installed()
    return name in _choices


def implements(spec: type[Spec]) -> Callable[[M], M]:
    """Class decorator: this module is what a spec of class `spec` builds."""

    def bind(module: M) -> M:
        _modules[spec] = module
        return module

    return bind


def choices(axis: str) -> dict[str, Choice]:
    """The choices of an axis by name, those of installed packages too."""
    _load_specs()
    _load_installed()
    if axis not in _choices:
        raise _no_axis(axis)
    return _choices[axis]


def choice(axis: str, name: Any) -> Choice:
    """The registered choice, or an error with the nearest spelling."""
    _load_specs()
    found = _choices.get(axis, {}).get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    known = choices(axis)
    if not isinstance(name, str) or name not in known:
        near = nearest(str(name), known)
        spelled = f"model/{axis}={near}" if near else None
        raise ConfigError(f"model/{axis}", f"no choice {name!r}", value=name, valid=known, nearest=spelled)
    return known[name]


def knows_option(axis: str, key: str) -> bool:
    """Whether some choice of the axis has the option, as its own or as one that it fixes."""
    _load_specs()
    own = any(key in options_of(known.spec) for known in _choices[axis].values())
    return own or any(key in options_of(known.spec) for known in choices(axis).values())


def takes(opt: Option, name: Any) -> bool:
    """Whether an option's block (`part`) may name this choice."""
    if opt.part is None or not isinstance(name, str):
        return False
    found = _choices[opt.part[0]].get(name) or choices(opt.part[0]).get(name)
    return found is not None and issubclass(found.spec, opt.types)


def part_choices(opt: Option) -> dict[str, Choice]:
    """The choices that an option's block may name (`part`); none where the option holds a plain value."""
    found = choices(opt.part[0]) if opt.part is not None else {}
    return {name: choice for name, choice in found.items() if takes(opt, name)}


def module_class(axis: str, spec: Spec) -> Any:
    """The torch module class that a spec builds; imports torch."""
    if axis in AXES:
        importlib.import_module(f"archlab.components.{axis}.module")
    for base in type(spec).__mro__:
        if base in _modules:
            return _modules[base]
    raise ConfigError(f"model/{axis}", f"{spec.choice!r} has no module")


@functools.cache
def _load_specs() -> None:
    for axis in AXES:
        importlib.import_module(f"archlab.components.{axis}.spec")


def _load_installed() -> None:
    importlib.import_module("archlab.plugins").load_installed()
