"""A command's answer on the terminal, and for other programs: JSON, CSV, Markdown."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from archlab.document import Column, Document, Explanation, Heatmap, Table
from archlab.record import json_line
from archlab.report.formats import check_format, md_escape
from archlab.report.grid import Cell, Grid, heading, line, show
from archlab.report.grid import Column as GridColumn
from archlab.report.text import broken, clean, digits, value_text, whole
from archlab.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console

HEAD_WIDTH = 14
"""Columns after which a head is broken at an underscore."""


def print_document(document: Document, form: str, console: Console, explain: str | None = None) -> None:
    """Print a document in a format; with `explain`, how that figure was got (`all`: every one) instead of tables."""
    check_format(form)
    if explain is not None:
        from archlab.report.explanations import check_figure, print_explanations

        models = _explained(document)
        check_figure(explain, (figure for _, known in models for figure in known))
    if form == "json":
        console.file.write(json_line(document.as_dict()))
    elif explain is not None:
        print_explanations(explain, models, form, console)
    elif form == "csv":
        console.file.write(csv_text(document))
    elif form == "md":
        console.file.write(md_text(document))
    else:
        show_document(document, console)


def _explained(document: Document) -> list[tuple[str, dict[str, Explanation]]]:
    """The explanations by figure, for each model that the answer is about."""
    models: dict[str, dict[str, Explanation]] = {}
    for made in document.explanations:
        models.setdefault(made.model or document.model, {})[made.figure] = made
    return list(models.items())


def show_document(document: Document, console: Console) -> None:
    """The verdict, what there is to read, drawings, tables, charts, what they rest on."""
    line(console, Cell(clean(document.subject or document.model), "bold"), Cell(clean(document.verdict)))
    _show_texts(document.texts, console)
    if document.drawings:
        from archlab.report.drawing import show_drawing

        for drawing in document.drawings:
            show_drawing(drawing, console)
    for table in document.tables:
        kinds = dict.fromkeys(column.kind for column in table.columns if column.kind)
        heading(console, table.title, ", ".join(kinds), table.about)
        show(grid(table), console)
    for chart in document.charts:
        if isinstance(chart, Heatmap):
            from archlab.report.heatmap import show_heatmap

            show_heatmap(chart, console)
        else:
            from archlab.report.chart import show_chart

            show_chart(chart, console)
    if document.worked:
        from archlab.report.explanations import show_explanations

        show_explanations(document.explanations, console)
    if document.assumptions:
        console.print()
        line(console, Cell("Assumed", "bold"), Cell(_assumed(document.assumptions), "dim"))
    for note in document.notes:
        line(console, Cell(f"note: {clean(note)}", "dim"))


def _show_texts(texts: Mapping[str, str], console: Console) -> None:
    """Each text beside its title, folded."""
    laid = Grid([GridColumn(style="dim"), GridColumn()])
    for title, text in texts.items():
        laid.add(clean(title), clean(text))
    if laid.rows:
        console.print()
        show(laid, console)


def _assumed(assumptions: Mapping[str, Any]) -> str:
    return ", ".join(f"{clean(name.replace('_', ' '))} {value_text(value)}" for name, value in assumptions.items())


def grid(table: Table) -> Grid:
    """The table as a grid; bytes also in a binary unit, where that is shorter."""
    columns = [GridColumn(_head(column), number=bool(column.unit)) for column in table.columns]
    laid = Grid(columns, labels=max(1, _labels(table)))
    for row in table.rows:
        laid.add(*(_cell(row.get(column.name), column) for column in table.columns))
    return laid


def _labels(table: Table) -> int:
    """How many of the first columns name a row: those that hold no figure; where no column says what kind, no unit."""
    figures = [bool(column.kind) for column in table.columns]
    figures = figures if any(figures) else [bool(column.unit) for column in table.columns]
    return next((index for index, figure in enumerate(figures) if figure), len(figures))


def _head(column: Column) -> str:
    unit = f"\n{column.unit}" if column.unit and column.unit not in ("B", "FLOP", "1", "parameters") else ""
    return broken(column.name, HEAD_WIDTH) + unit


def _cell(value: Any, column: Column) -> Cell:
    if value is None:
        return Cell("-", "dim")
    if isinstance(value, bool) or not isinstance(value, int | float) or not column.unit:
        return Cell(value_text(value))
    return Cell(number_text(value, column))


def number_text(value: float | int, column: Column) -> str:
    """Every digit of an exact figure below a GiB, or 10^18 FLOPs; a short form beyond; four digits of any other.

    Shares and changes to a tenth of a per cent, or to the digit that makes a small one no zero; four digits of an exact
    fraction too.
    """
    if column.unit == "%":
        return f"{value:.1g}" if 0 < abs(value) < 0.05 else f"{value:,.1f}"
    if column.unit == "B" and (abs(value) >= 2**30 or column.kind != "exact"):
        return show_bytes(value)
    if column.unit == "FLOP" and abs(value) >= 1e18:
        return f"{value:.4g}"
    counted = column.kind == "exact" and (abs(value) >= 1 or value == 0)
    return whole(value) if counted or isinstance(value, int) else digits(value)


def csv_text(document: Document) -> str:
    """Every row of every table, unrounded; the columns of all tables, empty where a table has none.

    `model` is the row's where its table has such a column, else the document's.
    """
    import csv

    tables = _all_tables(document)
    names = dict.fromkeys(column.name for table in tables for column in table.columns)
    columns = [name for name in names if name != "model"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "table", *columns])
    for table in tables:
        for row in table.rows:
            values = [row.get(name) for name in columns]
            texts = [clean(value) if isinstance(value, str) else value for value in values]
            writer.writerow([clean(row.get("model") or document.model), table.name, *texts])
    return out.getvalue()


def _all_tables(document: Document) -> list[Table]:
    """The tables, texts before them and explanations that are part of the answer after them as tables too."""
    texts = [{"about": title, "text": text} for title, text in document.texts.items()]
    read = [Table("texts", "Texts", [Column("about"), Column("text")], texts)] if texts else []
    made = list(document.explanations) if document.worked else []
    worked = [{"figure": one.figure, "formula": one.formula, "worked": one.worked} for one in made]
    names = [Column(name) for name in ("figure", "formula", "worked")]
    return [*read, *document.tables, *([Table("formulas", "Formulas", names, worked)] if worked else [])]


def md_text(document: Document) -> str:
    """A GitHub table for each table, drawings as they are, what they rest on below."""
    parts = [f"**{md_escape(document.subject or document.model)}** {md_escape(document.verdict)}".strip()]
    for drawing in document.drawings:
        parts.append("\n".join([md_escape(drawing.title), "", "```text", *drawing.lines, "```"]))
    parts += [f"{md_escape(table.title)}\n\n{md_table(table)}" for table in _all_tables(document)]
    if document.assumptions:
        parts.append(f"Assumed: {md_escape(_assumed(document.assumptions))}")
    parts += [f"- {md_escape(note)}" for note in document.notes]
    return "\n\n".join(parts) + "\n"


def md_table(table: Table) -> str:
    """The rows as a GitHub table, without the title."""
    head = [md_escape(_md_head(column)) for column in table.columns]
    rule = ["---:" if column.unit else "---" for column in table.columns]
    rows = [[md_escape(_cell(row.get(c.name), c).text) for c in table.columns] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _md_head(column: Column) -> str:
    about = ", ".join(filter(None, (column.unit.removeprefix("1"), column.kind)))
    return f"{column.name} ({about})" if about else column.name
