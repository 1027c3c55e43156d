"""Two figures of many points against each other: which two, and what of the front and the rest there is to draw."""

from __future__ import annotations

from archlab.document import Chart
from archlab.errors import ConfigError
from archlab.frozen import Frozen
from archlab.report.compare import HEADLINE
from archlab.results import FRONT, Results, Row, front

WIDE = 30
"""How many times its least value an axis' greatest is, from where it is drawn by the logarithm."""


class Scatter(Frozen):
    """Points by two figures. best: the front of the two, by x; others: the rest that has both.

    better: of each figure, 1 more, -1 less, 0 neither. absent: how many points did not end well or lack one of the two.
    log_x, log_y: the axis spans more than `WIDE`.
    """

    x: str
    y: str
    units: tuple[str, str]
    better: tuple[int, int]
    best: list[Row]
    others: list[Row]
    absent: int
    log_x: bool
    log_y: bool

    def at(self, row: Row) -> tuple[float, float]:
        return row.values[self.x], row.values[self.y]


def axes(results: Results, asked: str | None) -> tuple[str, str]:
    """The two figures that were asked for, X,Y; else the first and the last of the front's that are not all equal.

    Raises ConfigError for what are not two figures.
    """
    if asked is None:
        telling = [name for name in dict.fromkeys((*FRONT, *HEADLINE, *results.units)) if _varies(results, name)]
        first = [name for name in telling if name in FRONT] or telling
        usual = [name for name in (*FRONT, *HEADLINE, *results.units) if name in results.units]
        names = list(dict.fromkeys((*first[:1], *first[-1:], *telling, *usual)))[:2]
        names.sort(key=lambda name: results.better(name) > 0)  # what is wanted stands upright
    else:
        names = [results.figure(name.strip(), "chart") for name in asked.split(",")]
    if len(set(names)) != 2:
        wanted = "two different figures are wanted, X,Y, such as params,kv"
        raise ConfigError("chart", wanted, value=asked)
    return names[0], names[1]


def _varies(results: Results, name: str) -> bool:
    held = {row.values[name] for row in results.rows if row.ok and name in row.values}
    return len(held) > 1 and results.better(name) != 0


def scatter(results: Results, asked: str | None = None) -> Scatter:
    """The points by the two figures asked for, or by two that tell them apart. Raises ConfigError."""
    x, y = axes(results, asked)
    able = [row for row in results.rows if row.ok and x in row.values and y in row.values]
    judged = [name for name in (x, y) if results.better(name)]
    best = front(results.only(able), judged) if len(judged) == 2 else []
    files = {row.file for row in best}
    return Scatter(
        x,
        y,
        (results.units[x], results.units[y]),
        (results.better(x), results.better(y)),
        best,
        [row for row in able if row.file not in files],
        len(results.rows) - len(able),
        *(_wide([row.values[name] for row in able]) for name in (x, y)),
    )


def _wide(values: list[float | int]) -> bool:
    return bool(values) and min(values) > 0 and max(values) > WIDE * min(values)


WISH = {-1: "less", 0: "", 1: "more"}


def in_terminal(shown: Scatter) -> Chart:
    """The points as a chart for the terminal, those on the front drawn over the others."""
    drawn = {
        f"{len(shown.others):,} others" if shown.best else f"{len(shown.others):,} points": shown.others,
        f"{len(shown.best):,} on the front of the two: {_wishes(shown)}": shown.best,
    }
    lacking = f", {shown.absent:,} points lack one of them" if shown.absent else ""
    return Chart(
        "Scatter",
        f"{shown.x}{', log' if shown.log_x else ''}{lacking}",
        f"{shown.y}{', log,' if shown.log_y else ''}",
        {name: [shown.at(row) for row in rows] for name, rows in drawn.items() if rows},
        log_x=shown.log_x,
        log_y=shown.log_y,
        unit=shown.units[1],
        x_unit=shown.units[0],
        joined=False,
    )


def _wishes(shown: Scatter) -> str:
    return f"{WISH[shown.better[0]]} {shown.x}, {WISH[shown.better[1]]} {shown.y}"
