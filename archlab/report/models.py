"""The presets with their totals (`archlab models`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archlab.report.grid import Cell, Column, Grid, heading, natural_width, show
from archlab.report.text import clean, whole
from archlab.units import show_count

if TYPE_CHECKING:
    from rich.console import Console


def show_models(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """The presets' summaries, one row each; what each is made of goes into a second table where one is wide."""
    heads = ("parameters", "", "non-embedding", "KV B/token", "context")
    columns = [Column("model"), *(Column(head, number=True) for head in heads), Column("choices"), Column()]
    grid = Grid(columns)
    for row in rows:
        short = Cell(show_count(row["params"]), "dim")
        numbers = (whole(row[name]) for name in ("params_non_embedding", "kv_bytes_per_token", "context"))
        words = (clean(row["choices"]), Cell(clean(row["about"]), "dim"))
        grid.add(clean(row["name"]), whole(row["params"]), short, *numbers, *words)
    dtypes = dict.fromkeys(row["kv_dtype"] for row in rows)
    heading(console, "Models", "exact", f"KV cache in {', '.join(dtypes)}", first=True)
    wide = natural_width(grid) <= console.width - 2
    for piece in (grid,) if wide else (grid.pick(range(6)), grid.pick((0, 6, 7))):
        show(piece, console)
        if piece.columns[-1].number:
            console.print()
