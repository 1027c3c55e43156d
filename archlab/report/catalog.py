"""What there is: the choices of each axis (`archlab components`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab.components.counted.costs import counted_costs
from archlab.frozen import MISSING
from archlab.options import Option
from archlab.record import SCHEMA
from archlab.registry import Choice, axes, choices, places
from archlab.report.grid import Cell, Column, Grid, heading, line, show
from archlab.report.text import clean, options_text, value_text

if TYPE_CHECKING:
    from rich.console import Console

Users = Mapping[tuple[str, str], list[str]]
"""Which presets make a choice: (axis, choice) to their names."""

SYMBOLS = {
    "d": "d_model",
    "h": "n_heads",
    "kv": "n_kv_heads",
    "hd": "head_dim",
    "nope": "nope_dim",
    "rope": "rope_dim",
    "r": "kv_rank",
    "v": "v_dim",
    "f": "d_ff",
    "E": "n_experts",
    "w": "features normed",
    "V": "vocab_size",
    "C": "n_outputs",
}
"""What the letters of the formulas stand for."""

TYPES = {int: "whole number", float: "number", str: "word", tuple: "list of numbers"}


# --- components -------------------------------------------------------------------------------------------------------


def show_components(axis: str | None, users: Users, console: Console) -> None:
    """The choices of every axis, with the names of their options; of one axis, with all about its options."""
    for index, name in enumerate(_axes(axis)):
        known = choices(name)
        heading(console, name, *([places()[name].words] if name in places() else []), first=index == 0)
        _show_choices(known, users, console)
        if axis:
            _show_options(known, console)
        else:
            names = dict.fromkeys(option for chosen in known.values() for option in chosen.options)
            line(console, Cell("options:"), Cell(", ".join(names) or "none", "dim"), indent=2)
    if not axis:
        console.print()
        line(console, Cell("archlab components AXIS tells what each option does", "dim"))


def _axes(axis: str | None) -> tuple[str, ...]:
    """The axis that is asked for; without one all, those that installed packages bring too."""
    if axis is not None:
        return (axis,)
    choices(axes()[0])  # imports what is installed
    return axes()


def _show_choices(known: Mapping[str, Choice], users: Users, console: Console) -> None:
    grid = Grid([Column("choice"), Column(), Column("parameters")])
    for name, chosen in known.items():
        used = users.get((chosen.axis, name), [])
        grid.add(clean(name), clean(chosen.summary), clean(chosen.formula), note=_choice_note(chosen, used))
    show(grid, console)
    letters = {word for chosen in known.values() for word in re.findall("[A-Za-z]+", chosen.formula)}
    legend = ", ".join(f"{letter} {meaning}" for letter, meaning in SYMBOLS.items() if letter in letters)
    line(console, Cell(legend and f"where {legend}", "dim"), indent=2)


def _choice_note(chosen: Choice, used: Iterable[str]) -> str:
    """`fixes n_kv_heads 1; used by gpt2`."""
    constants = {name: value for name, value in chosen.fixed.items() if not callable(value)}
    rules = {name: "by rule" for name, value in chosen.fixed.items() if callable(value)}
    fixed, names = options_text(constants | rules), clean(", ".join(used))
    said = (f"fixes {fixed}" if fixed else "", f"used by {names}" if names else "")
    return "; ".join(filter(None, (*said, f"from {clean(Path(chosen.origin).name)}" if chosen.origin else "")))


def _show_options(known: Mapping[str, Choice], console: Console) -> None:
    """One row an option: its default or rule, its help, its valid values, and the choices that have it if not all."""
    owners: dict[Option, list[str]] = {}
    for name, chosen in known.items():
        for opt in chosen.options.values():
            owners.setdefault(opt, []).append(clean(name))
    having = sum(bool(chosen.options) for chosen in known.values())
    grid = Grid([Column("option"), Column("default"), Column("meaning; valid values")])
    for opt, names in owners.items():
        of = f"; of {', '.join(names)}" if len(names) < having else ""
        grid.add(opt.name, _default(opt), Cell(f"{clean(opt.help)};" if opt.help else "", unit=f"{_values(opt)}{of}"))
    if grid.rows:
        console.print()
    show(grid, console)


def _default(opt: Option) -> str:
    """The default, or the rule that gives it."""
    if opt.required:
        return "required"
    return clean(opt.auto) if opt.auto is not None else value_text(opt.default)


def _values(opt: Option) -> str:
    """`none, head, full`; `true, false`; `whole number >= 1`."""
    if opt.part is not None:
        return f"choice and options of {opt.part[0]}"
    if opt.valid is not None:
        return ", ".join(value_text(value) for value in opt.valid)
    if bool in opt.types:
        return "true, false"
    kinds = [TYPES[kind] for kind in opt.types if kind in TYPES]
    bounds = [f"{sign} {value_text(bound)}" for sign, bound in _bounds(opt) if bound is not None]
    nullable = [" or null"] if type(None) in opt.types else []
    return " ".join([" or ".join(kinds), ", ".join(bounds)]).strip() + "".join(nullable)


def _bounds(opt: Option) -> tuple[tuple[str, float | None], ...]:
    return (">=", opt.ge), (">", opt.gt), ("<", opt.lt)


def components_data(axis: str | None, users: Users) -> dict[str, Any]:
    """The same as plain JSON data: {"schema", "axes": {axis: {choice: {...}}}}."""
    return {
        "schema": SCHEMA,
        "axes": {
            name: {key: _choice_data(chosen, users.get((name, key), [])) for key, chosen in choices(name).items()}
            for name in _axes(axis)
        },
    }


def _choice_data(chosen: Choice, used: Iterable[str]) -> dict[str, Any]:
    return {
        "summary": chosen.summary,
        "params": chosen.formula,
        "fixed": {name: None if callable(value) else value for name, value in chosen.fixed.items()},
        "options": {name: _option_data(opt) for name, opt in chosen.options.items()},
        "used_by": list(used),
        **_others(chosen),
    }


def _others(chosen: Choice) -> dict[str, Any]:
    """What is told of a choice that is not archlab's own: where it is from, and which costs are counted."""
    told = {"source": chosen.source, "origin": chosen.origin, "counted": list(counted_costs(chosen.spec))}
    return {name: value for name, value in told.items() if value}


def _option_data(opt: Option) -> dict[str, Any]:
    shown: dict[str, Any] = {"help": opt.help, "values": _values(opt), "required": opt.required}
    if opt.auto is not None:
        shown["rule"] = opt.auto
    elif opt.default is not MISSING:
        shown["default"] = opt.default
    bounds = {"ge": opt.ge, "gt": opt.gt, "lt": opt.lt, "valid": None if opt.valid is None else list(opt.valid)}
    return shown | {name: bound for name, bound in bounds.items() if bound is not None}
