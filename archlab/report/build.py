"""What `archlab build` prints: one record, in sections, each saying which kind its numbers are."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab.errors import ConfigError
from archlab.options import Option
from archlab.record import Figure, Record
from archlab.registry import choice
from archlab.report.grid import Cell, Column, Grid, heading, line, show, status_cell
from archlab.report.text import clean, number, options_text, share, value_text, whole
from archlab.report.throughput import show_throughput, why_none
from archlab.units import show_bytes, show_count, show_flops

if TYPE_CHECKING:
    from rich.console import Console

AXES = ("attention", "position", "ffn", "norm", "block", "head", "dropout")
"""The axes, what tells a model most first."""

TELLING = (
    *("n_heads", "n_kv_heads", "head_dim", "qk_norm", "window", "d_ff", "rule"),
    *("n_experts", "experts_per_token", "expert", "n_shared", "scoring"),
    *("base", "factor", "original_context", "rope_length", "eps", "p", "n_outputs"),
)
"""Options that come first, and are shown even at their default."""

NULLS = {"rope_length": "of the run, fixed at its start"}
"""Options whose null says something too: what is told instead."""

TOTALS = ("params", "params_active", "params_non_embedding")


def show_build(record: Record, console: Console) -> None:
    """Print the whole record."""
    _title(record, console)
    _composition(record, console)
    shown: set[str] = set()
    for section in (_parameters, _budget, _kv_cache, _flops, show_throughput):
        shown |= section(record, console)
    _others(record, console, shown)
    _ending(record, console)


def _title(record: Record, console: Console) -> None:
    total = record.value("params")
    params = "" if total is None else f"{whole(total)} parameters ({show_count(total)})"
    line(console, Cell(clean(record.name), "bold"), Cell(params), status_cell(record))
    if record.reason:
        line(console, Cell(clean(record.reason), "" if record.ok else "red"), indent=2)


# --- composition ------------------------------------------------------------------------------------------------------


def _composition(record: Record, console: Console) -> None:
    whole_model = record.composition
    if not whole_model:
        return
    heading(console, "Composition")
    grid = Grid([Column(style="dim"), Column(), Column()])
    sizes = {name: whole_model[name] for name in ("d_model", "n_layers", "vocab_size", "context")}
    grid.add("model", "", options_text(sizes))
    if "tokenizer_vocab" in whole_model:
        grid.add("vocabulary", "", _padding(whole_model))
    axes = whole_model["axes"]
    for axis in _ordered(axes, AXES):
        grid.add(axis, clean(axes[axis]["choice"]), options_text(telling_options(axis, axes[axis])))
    kinds = whole_model["layer_kinds"] if len(whole_model["layer_kinds"]) > 1 else []
    for kind in kinds:
        grid.add(*_layer_kind(kind, axes))
    if "more_kinds" in whole_model:
        grid.add("other layers", "", f"{value_text(whole_model['more_kinds'])} more kinds")
    for plugin in record.plugins:
        grid.add("plugin", clean(Path(str(plugin.get("word"))).name), _version(plugin))
    show(grid, console)


def _version(plugin: Mapping[str, Any]) -> str:
    """The start of a file's checksum; of an installed package, its version."""
    checksum = str(plugin.get("sha256") or "")[:12]
    return clean(f"sha256 {checksum}" if checksum else str(plugin.get("version") or ""))


def _padding(whole_model: Mapping[str, Any]) -> str:
    """`50,257 padded to 50,304 (47 rows, 36,096 parameters unused)`."""
    names = ("tokenizer_vocab", "vocab_size", "unused_rows", "unused_params")
    tokens, padded, rows, params = (value_text(whole_model.get(name)) for name in names)
    return f"{tokens} padded to {padded} ({rows} rows, {params} parameters unused)"


def telling_options(axis: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """A choice's options worth a reader's time: the telling ones first, then what is not at its default.

    Of a choice of others all of them: nobody knows its defaults by heart.
    """
    known: Mapping[str, Option] = {}
    with contextlib.suppress(ConfigError):  # a third party's choice, not installed here
        made = choice(axis, described["choice"])
        known = {} if made.origin else made.options
    told = {**described, **{name: text for name, text in NULLS.items() if described.get(name, ...) is None}}
    options = {name: _telling_part(known, name, value) for name, value in told.items() if value is not None}
    options.pop("choice", None)
    kept = [name for name, value in options.items() if name not in known or value != known[name].default]
    return {name: options[name] for name in _ordered(options, TELLING) if name in TELLING or name in kept}


def _telling_part(known: Mapping[str, Option], name: str, value: Any) -> Any:
    """An option's value; of a block of options, its choice and the telling ones."""
    opt = known.get(name)
    if opt is None or opt.part is None:
        return value
    return {"choice": value["choice"]} | telling_options(opt.part[0], value)


def _layer_kind(kind: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[str, str, str]:
    """What a kind of layer changes: the choice where it differs, and the options that do."""
    from archlab.cost.figures import show_indices

    changes = []
    for axis in _ordered(kind["axes"], AXES):
        described, base = kind["axes"][axis], axes[axis]
        named = axis if described["choice"] == base["choice"] else f"{axis} {described['choice']}"
        differing = {k: v for k, v in described.items() if k != "choice" and base.get(k, ...) != v}
        changes.append(f"{clean(named)}: {options_text(differing)}" if differing else clean(named))
    return _layers_text(show_indices(kind["layers"])), "", "; ".join(changes) or "as above"


def _layers_text(indices: str) -> str:
    """`layers 0-4, 6`; of many runs the first and the last: `layers 0, 2, 4, .., 62`."""
    if indices == "others":
        return "other layers"
    runs = indices.split(",")
    return "layers " + ", ".join(runs if len(runs) <= 6 else [*runs[:3], "..", runs[-1]])


def _ordered(names: Iterable[str], first: tuple[str, ...]) -> list[str]:
    """Names by their place in `first`, then as they came."""
    return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


# --- on paper ---------------------------------------------------------------------------------------------------------


def _parameters(record: Record, console: Console) -> set[str]:
    found = _named(record, "params.", "params_", "params", "weight_bytes")
    if not found:
        return set()
    total = record.value("params") or 0
    heading(console, "Parameters", *_kinds(found))
    grid = Grid([Column(), Column(number=True), Column(number=True), Column(number=True)])
    layers = {name: figure for name, figure in found.items() if name.startswith("params.layers.")}
    for name, figure in found.items():
        if name.startswith("params.") and name not in layers:
            _add_part(grid, name.removeprefix("params."), figure, total)
    for name, figure in layers.items() if len(layers) > 1 else ():
        _add_count(grid, _layers_text(name.removeprefix("params.layers.")), figure, total, note=figure.how)
    grid.add(*[""] * 4)
    for name in TOTALS:
        if name in found and (name != "params_active" or found[name].value != total):
            _add_count(grid, name, found[name], total, note=found[name].how)
    if "weight_bytes" in found:
        size, short = _bytes_cells(found["weight_bytes"])
        grid.add("weight_bytes", size._replace(unit=""), short, "", note=found["weight_bytes"].how)
    show(grid, console)
    _checks(record, console)
    return set(found)


def _add_part(grid: Grid, part: str, figure: Figure, total: float) -> None:
    tied = figure.how.startswith("tied")
    if tied and not figure.value:
        grid.add(part, Cell("tied", "dim"), "", "", note=figure.how.removeprefix("tied: "))
    elif figure.value:
        _add_count(grid, part, figure, total, note=figure.how if tied else "")


def _add_count(grid: Grid, label: str, figure: Figure, total: float, note: str = "") -> None:
    value = figure.value or 0
    grid.add(clean(label), whole(value), Cell(show_count(value), "dim"), share(value, total), note=clean(note))


def _bytes_cells(figure: Figure) -> tuple[Cell, Cell]:
    """All of the bytes, and the short form where it says more."""
    if figure.value is None:
        return Cell("-"), Cell(clean(figure.reason or figure.status), "red")
    short = show_bytes(figure.value)
    return Cell(whole(figure.value), unit="B"), Cell("" if short.endswith(" B") else short, "dim")


def _checks(record: Record, console: Console) -> None:
    """The self-check: one line each, a mismatch loud."""
    for check in record.checks:
        ok = bool(check.get("ok"))
        sides = f"{value_text(check.get('expected'))} {'=' if ok else '!='} {value_text(check.get('found'))}"
        text = f"{clean(check.get('name', 'check'))}: {sides} {'ok' if ok else 'MISMATCH'}"
        line(console, Cell(text, "green" if ok else "bold red"), indent=2)


def _budget(record: Record, console: Console) -> set[str]:
    """What was asked for, what is left of it, and the size that was found."""
    found = _named(record, "solved_", "budget_")
    if not found:
        return set()
    heading(console, "Budget", *_kinds(found))
    grid = Grid([Column(), Column(number=True)])
    for name, figure in found.items():
        value = Cell("-") if figure.value is None else Cell(whole(figure.value))
        grid.add(clean(name.removeprefix("budget_").removeprefix("solved_")), value, note=clean(figure.how))
    show(grid, console)
    return set(found)


def _kv_cache(record: Record, console: Console) -> set[str]:
    found = _named(record, "kv_")
    if not found:
        return set()
    workload = record.config.get("workload") or {}
    dtype = found["kv_bytes_per_token"].how.rsplit(" ", 1)[-1] if "kv_bytes_per_token" in found else None
    batch = workload.get("batch")
    heading(console, "KV cache", *_kinds(found), f"batch {batch}" if batch else "", clean(dtype or ""))
    grid = Grid([Column(number=True), Column(number=True), Column(number=True)])
    for name, figure in found.items():
        grid.add(_kv_label(name), *_bytes_cells(figure), note=_measured_note(figure))
    show(grid, console)
    return set(found)


def _kv_label(name: str) -> str:
    context = name.removeprefix("kv_bytes.")
    if context.isdecimal():
        return f"{int(context):,} tokens"
    return {"kv_bytes_per_token": "per token", "kv_allocated_bytes": "allocated"}.get(name, clean(name))


def _measured_note(figure: Figure) -> str:
    return "" if figure.kind == "exact" else clean(f"{figure.how} ({figure.kind})")


def _flops(record: Record, console: Console) -> set[str]:
    found = _named(record, "flops_")
    if not found:
        return set()
    shared = _shared_how(found.values())
    heading(console, "FLOPs per token", *_kinds(found), *shared)
    grid = Grid([Column(), Column(number=True), Column(number=True)])
    for name, figure in found.items():
        label = name.removeprefix("flops_").replace("_per_token", "").replace(".", ", ")
        value = figure.value
        cells = (Cell("-"), Cell()) if value is None else (Cell(whole(value)), Cell(show_flops(value), "dim"))
        grid.add(clean(label), *cells, note=clean(", ".join(figure.how.split(", ")[len(shared) :])))
    show(grid, console)
    return set(found)


def _shared_how(figures: Iterable[Figure]) -> list[str]:
    """The convention that all of them begin with, said once."""
    parts = [figure.how.split(", ") for figure in figures]
    same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))
    return [clean(column[0]) for column in same]


# --- the rest ---------------------------------------------------------------------------------------------------------


def _others(record: Record, console: Console, shown: set[str]) -> None:
    """Figures that no section claims, so that none is ever hidden."""
    rest = {name: figure for name, figure in record.figures.items() if name not in shown}
    if not rest:
        return
    heading(console, "Other figures")
    grid = Grid([Column(), Column(number=True), Column(style="dim")])
    for name, figure in rest.items():
        text = "-" if figure.value is None else number(figure.value, figure)
        unit = "" if text.endswith("B") else figure.unit
        grid.add(clean(name), Cell(text, unit=clean(unit)), figure.kind, note=why_none(figure) or clean(figure.how))
    show(grid, console)


def _ending(record: Record, console: Console) -> None:
    if record.notes:
        heading(console, "Notes")
        for note in record.notes:
            line(console, Cell(clean(note)), indent=2)
    if record.folder:
        console.print()
        console.print(f"Record  {clean(record.folder)}", soft_wrap=True)  # a path that is folded cannot be copied


def _named(record: Record, *prefixes: str) -> dict[str, Figure]:
    return {name: figure for name, figure in record.figures.items() if name.startswith(prefixes)}


def _kinds(figures: Mapping[str, Figure]) -> list[str]:
    """The kinds of a section's figures, in the order they come."""
    return list(dict.fromkeys(figure.kind for figure in figures.values()))
