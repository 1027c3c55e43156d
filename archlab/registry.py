"""Axes and their choices: register, look up, suggest.

An axis is one place where a choice is made; it has the same name here, in `archlab/components/` and in
`conf/model/`. A choice is a spec class, some of whose options it may fix. Its module is registered by
`implements` in `archlab/components/<axis>/module.py`, which is imported only when a model is built.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen, derived, field
from archlab.options import Option, Spec, options_of

AXES = ("norm", "position", "attention", "ffn", "dropout", "head", "block")

Fixed = Mapping[str, Any]
"""Options that a choice fixes: a constant, or a function of the other options (`n_kv_heads` of `mha`)."""

_choices: dict[str, dict[str, Choice]] = {axis: {} for axis in AXES}
_modules: dict[type[Spec], Any] = {}
M = TypeVar("M")


class Choice(Frozen):
    """One registered option of an axis."""

    axis: str
    name: str
    spec: type[Spec]
    summary: str
    formula: str
    fixed: Fixed = field(default_factory=dict)

    @derived
    def options(self) -> dict[str, Option]:
        """What a user may set on this choice."""
        return {name: opt for name, opt in options_of(self.spec).items() if name not in self.fixed}

    def apply_fixed(self, values: dict[str, Any]) -> None:
        """Put the fixed options into `values`, in place."""
        for name, value in self.fixed.items():
            values[name] = value(values) if callable(value) else value


def register(axis: str, name: str, spec: type[Spec], *, summary: str, formula: str, fixed: Fixed | None = None) -> None:
    """Register a choice. summary: one line on what it is; formula: its parameters, in the design's words."""
    if axis not in _choices:
        raise ConfigError("", f"no axis {axis!r}", valid=AXES, nearest=nearest(axis, AXES))
    if name in _choices[axis]:
        raise ConfigError("", f"{axis}/{name} is registered already")
    _choices[axis][name] = Choice(axis, name, spec, summary, formula, fixed or {})


def implements(spec: type[Spec]) -> Callable[[type[M]], type[M]]:
    """Class decorator: this module is what a spec of class `spec` builds."""

    def bind(module: type[M]) -> type[M]:
        _modules[spec] = module
        return module

    return bind


def choices(axis: str) -> dict[str, Choice]:
    """The choices of an axis by name."""
    _load_specs()
    if axis not in _choices:
        raise ConfigError("", f"no axis {axis!r}", valid=AXES, nearest=nearest(axis, AXES))
    return _choices[axis]


def choice(axis: str, name: Any) -> Choice:
    """The registered choice, or an error with the nearest spelling."""
    known = choices(axis)
    if not isinstance(name, str) or name not in known:
        near = nearest(str(name), known)
        spelled = f"model/{axis}={near}" if near else None
        raise ConfigError(f"model/{axis}", f"no choice {name!r}", value=name, valid=known, nearest=spelled)
    return known[name]


def part_choices(opt: Option) -> dict[str, Choice]:
    """The choices that an option's block may name (`part`); none where the option holds a plain value."""
    found = choices(opt.part[0]) if opt.part is not None else {}
    return {name: choice for name, choice in found.items() if issubclass(choice.spec, opt.types)}


def module_class(axis: str, spec: Spec) -> Any:
    """The torch module class that a spec builds; imports torch."""
    importlib.import_module(f"archlab.components.{axis}.module")
    for base in type(spec).__mro__:
        if base in _modules:
            return _modules[base]
    raise ConfigError(f"model/{axis}", f"{spec.choice!r} has no module")


@functools.cache
def _load_specs() -> None:
    for axis in AXES:
        importlib.import_module(f"archlab.components.{axis}.spec")
