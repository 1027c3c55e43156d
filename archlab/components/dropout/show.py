"""Where dropout drops, and how much."""

from __future__ import annotations

from collections.abc import Iterable

from archlab.components.dropout.spec import PLACES, Dropout
from archlab.document import Column, Table
from archlab.meaning import Here, Part
from archlab.options import options_of


def rates(here: Here) -> Iterable[Part]:
    """The rate at each place, and what the numbers that stay are multiplied by."""
    dropout = here.axes["dropout"]
    if not isinstance(dropout, Dropout):
        return
    known = options_of(type(dropout))
    rows = [_row(place, getattr(dropout, place), known[place].help) for place in PLACES]
    columns = [Column("place"), Column("rate", "1"), Column("scale", "1", how="1 / (1 - rate)"), Column("where")]
    yield Table("places", "Places", columns, rows, "in training only")


def _row(place: str, rate: float, where: str) -> dict[str, str | float]:
    return {"place": place, "rate": rate, "scale": 1 / (1 - rate), "where": where}
