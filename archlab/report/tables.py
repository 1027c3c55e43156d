"""A comparison on the terminal: a row a record, or, for few records and many fields, a column a record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from archlab.report.compare import HEADLINE, Comparison, Field
from archlab.report.compare import Cell as Compared
from archlab.report.grid import (
    LEAST_TEXT,
    Cell,
    Column,
    Grid,
    heading,
    least_width,
    line,
    natural_width,
    show,
    status_cell,
)
from archlab.report.text import broken, clean

if TYPE_CHECKING:
    from rich.console import Console

HEAD_WIDTH = 13
"""Columns after which a head is broken at an underscore."""
MOST_SIDE_BY_SIDE = 6
BEST = "bold green"


def show_comparison(compared: Comparison, console: Console) -> None:
    """Print the table, its numbers whole: what is wider than the console is turned, or split into several."""
    count = len(compared.records)
    rows, few = by_row(compared), count <= MOST_SIDE_BY_SIDE
    columns = by_column(compared, console.width) if few else rows
    turned = few and (compared.detail or least_width(columns) <= console.width < least_width(rows))
    show(columns if turned else rows, console, indent=0)
    if turned:
        _reasons(compared, console)
    _notes(compared, console)
    _legend(compared, console, "row" if turned else "column")


def by_row(compared: Comparison) -> Grid:
    """A row a record: what names it, the headline figures, and how it ended, where one did not end well."""
    names = [field for field in compared.labels if field.name != "status"]
    figures = [field for field in compared.figures if field.name in HEADLINE]
    ends = ["status"] if len(names) < len(compared.labels) else []
    columns = [Column(_head(field.name)) for field in names]
    columns += [Column(f"{_head(field.name)}\n{field.kind}", number=True) for field in figures]
    grid = Grid([*columns, *map(Column, ends)], labels=len(names))
    for index, record in enumerate(compared.records):
        cells = [Cell(field.cells[index].text) for field in names]
        cells += [_number(field.cells[index]) for field in figures]
        grid.add(*cells, *([status_cell(record)] if ends else []), note="" if record.ok else clean(record.reason or ""))
    return grid


def _head(name: str) -> str:
    """A name as a head: less the group that all share, and over several lines."""
    return broken(name.removeprefix("model/").removeprefix("model."), HEAD_WIDTH)


def by_column(compared: Comparison, width: int) -> Grid:
    """A column a record, a row a field, by section; names are broken where they would take room from numbers."""
    wide = _by_column(compared, broken_at=width)
    return wide if natural_width(wide) <= width else _by_column(compared, broken_at=LEAST_TEXT - 2)


def _by_column(compared: Comparison, broken_at: int) -> Grid:
    heads = [[_short(field.cells[i].text) for field in compared.labels] for i in range(len(compared.records))]
    grid = Grid([Column("\n".join(field.name for field in compared.labels))])
    grid.columns += [Column("\n".join(head), number=True) for head in heads]
    for section, fields in groupby(compared.figures, key=lambda field: field.section):
        _add_section(grid, section, list(fields), broken_at)
    return grid


def _add_section(grid: Grid, section: str, fields: Sequence[Field], broken_at: int) -> None:
    blank = [Cell()] * (len(grid.columns) - 1)
    kinds = dict.fromkeys(field.kind for field in fields)
    if grid.rows:
        grid.add(Cell(), *blank)
    grid.add(Cell(section, "bold", unit=", ".join(kind for kind in kinds if kind != section)), *blank)
    for field in fields:
        about = [field.kind if len(kinds) > 1 and field.kind != "exact" else "", _unit(field)]
        name = "  " + broken(field.name, broken_at).replace("\n", "\n  ")
        grid.add(Cell(name, unit=", ".join(filter(None, about))), *map(_number, field.cells))


def _unit(field: Field) -> str:
    """The unit, unless the name says it."""
    said = any(word in field.name for word in ("params", "bytes", "flops", "tok_s", "seconds"))
    return "" if said else field.unit


def _number(cell: Compared) -> Cell:
    """The star of the best goes before the number, so that digits stay aligned."""
    return Cell(f"*{cell.text}", BEST) if cell.best else Cell(cell.text)


def _short(text: str, most: int = 24) -> str:
    """Of a long head (a folder, a reason) the end is kept of a path, and the first word of a status."""
    if len(text) <= most:
        return text
    return text.split(":")[0] if ": " in text else f"..{text[2 - most :]}"


def _reasons(compared: Comparison, console: Console) -> None:
    """Why records are not ok, where the table had no room for it."""
    failed = [record for record in compared.records if not record.ok]
    if failed:
        heading(console, "Not ok")
    for record in failed:
        reason = f": {record.reason}" if record.reason else ""
        line(console, Cell(clean(record.title), "dim"), indent=2)
        line(console, Cell(clean(f"{record.status}{reason}"), "red"), indent=4)


def _legend(compared: Comparison, console: Console, what: str) -> None:
    records = compared.records
    failed = sum(not record.ok for record in records)
    marked = any(cell.best for field in compared.figures for cell in field.cells)
    parts = [
        "1 record" if len(records) == 1 else f"{len(records)} records",
        f"{failed} not ok" if failed else "",
        f"* best of its {what}" if marked else "",
    ]
    console.print()
    line(console, Cell(", ".join(filter(None, parts)), "dim"))


def _notes(compared: Comparison, console: Console) -> None:
    """What was dropped to compose the records."""
    for note in compared.notes:
        line(console, Cell(clean(note), "dim"))
