"""How a figure was got, on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from archlab.document import Explanation
from archlab.errors import ConfigError, nearest
from archlab.report.grid import Cell, heading, line
from archlab.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

ALL = "all"


def check_figure(figure: str, known: Iterable[str]) -> None:
    """Raise ConfigError, with the figures that there are, where none is called so."""
    names = [ALL, *dict.fromkeys(known)]
    if figure not in names:
        near = nearest(figure, names)
        raise ConfigError("explain", f"no figure {figure!r} here", value=figure, valid=names, nearest=near)


def show_explanations(figure: str, models: Sequence[tuple[str, Mapping[str, Explanation]]], console: Console) -> None:
    """Print how a figure, or `all`, was got for each model that has it, under the models' names if they are several."""
    check_figure(figure, (name for _, known in models for name in known))
    first = True
    for model, known in models:
        for made in known.values() if figure == ALL else filter(None, [known.get(figure)]):
            _show(made, model if len(models) > 1 else "", console, first)
            first = False


def _show(made: Explanation, model: str, console: Console, first: bool) -> None:
    """A figure, its kind, its formula, the same with numbers, and what it assumes."""
    heading(console, clean(made.figure), clean(model), made.kind, first=first)
    for text in (made.formula, made.worked):
        line(console, Cell(clean(text)), indent=2)
    for assumption in made.assumptions:
        line(console, Cell(f"assumes {clean(assumption)}", "dim"), indent=2)
