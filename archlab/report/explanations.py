"""How a figure was got: on the terminal, as CSV, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from archlab.document import Explanation
from archlab.record import no_figure
from archlab.report.formats import md_escape
from archlab.report.grid import Cell, heading, line
from archlab.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

ALL = "all"


def check_figure(figure: str, known: Iterable[str]) -> None:
    """Raise ConfigError, with the figures that there are, where none is called so."""
    names = [ALL, *dict.fromkeys(known)]
    if figure not in names:
        raise no_figure("explain", figure, names)


Explained = Sequence[tuple[str, Mapping[str, Explanation]]]
"""Explanations by figure, for each model by its name."""


def print_explanations(figure: str, models: Explained, form: str, console: Console) -> None:
    """Print how a figure, or `all`, was got for each model that has it, in a format but JSON, which holds them all."""
    check_figure(figure, (name for _, known in models for name in known))
    made = [(model, why) for model, known in models for name, why in known.items() if figure in (name, ALL)]
    if form == "table":
        _show_all([(model if len(models) > 1 else "", why) for model, why in made], console)
    else:
        console.file.write({"csv": _csv, "md": _md}[form](made))


def show_explanations(made: Iterable[Explanation], console: Console) -> None:
    """Print explanations that are part of an answer, one after the other."""
    for why in made:
        _show(why, why.model, console, first=False)


def _show_all(made: Sequence[tuple[str, Explanation]], console: Console) -> None:
    for index, (model, why) in enumerate(made):
        _show(why, model, console, first=index == 0)


def _show(made: Explanation, model: str, console: Console, first: bool) -> None:
    """A figure, its kind, its formula, the same with numbers, and what it assumes."""
    heading(console, clean(made.figure), clean(model), made.kind, first=first)
    for text in (made.formula, made.worked):
        line(console, Cell(clean(text)), indent=2)
    for assumption in made.assumptions:
        line(console, Cell(f"assumes {clean(assumption)}", "dim"), indent=2)


COLUMNS = ("model", "figure", "kind", "formula", "worked", "assumptions")


def _cells(model: str, why: Explanation) -> list[str]:
    return [clean(text) for text in (model, why.figure, why.kind, why.formula, why.worked, "; ".join(why.assumptions))]


def _csv(made: Sequence[tuple[str, Explanation]]) -> str:
    """A row a model and figure."""
    import csv
    import io

    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *(_cells(*pair) for pair in made)])
    return out.getvalue()


def _md(made: Sequence[tuple[str, Explanation]]) -> str:
    """The same as a GitHub table."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *([md_escape(cell) for cell in _cells(*pair)] for pair in made)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
