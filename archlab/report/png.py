"""Pictures for papers: matplotlib, which needs no browser, on white, in the page's colours, sized for a column."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab.errors import RequestError
from archlab.frozen import Frozen, field
from archlab.record import write_named
from archlab.report.text import clean

SIZE, DPI = (6.0, 3.8), 300
"""Inches, and dots an inch: 1,800 x 1,140."""
ACCENT, INK, MUTED, FAINT, RULE = "#0b5fa5", "#1b1e23", "#63696f", "#a9b0b7", "#e3e4e3"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8689a", "#c98a00", "#4aa8dc", "#6b5b95", "#7c8086")
MARKS = "oDs^Pv*X"
MOST_TICKS = 12
"""Places of curves up to which each has a tick; beyond it they are matplotlib's."""
BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
DECIMAL = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
STYLE = {
    "font.family": ["DejaVu Sans"], "font.size": 8, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": RULE,
    "grid.linewidth": 0.5, "axes.axisbelow": True, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 3,
    "ytick.major.size": 3, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.frameon": False,
    "legend.fontsize": 7, "text.parse_math": False, "savefig.facecolor": "white", "figure.dpi": DPI,
}  # fmt: skip


class Quantity(Frozen):
    """What an axis is of: the figure's name, its unit, how it was got, and whether it is drawn by the logarithm."""

    name: str
    unit: str
    kind: str
    log: bool = False

    @property
    def label(self) -> str:
        about = ", ".join(filter(None, (self.unit, self.kind, "log" if self.log else "")))
        return f"{clean(self.name)} ({about})" if about else clean(self.name)


class Cloud(Frozen):
    """Points by two figures: groups by what colours them, and the front of them in rising x.

    less_x: whether the front wants less of x, so that its steps go along x first.
    """

    x: Quantity
    y: Quantity
    groups: Mapping[str, Sequence[tuple[float, float]]]
    front: Sequence[tuple[float, float]]
    less_x: bool
    by: str = ""


class Bars(Frozen):
    """Medians with their 10th and 90th percentile, None where there is none; marked ones in the accent colour."""

    x: Quantity
    names: Sequence[str]
    values: Sequence[float]
    spreads: Sequence[tuple[float, float] | None]
    marked: Sequence[bool]


class Curves(Frozen):
    """Curves by name, each of (x, y) points; marked ones stand out. limits: lines at a y, by name."""

    x: Quantity
    y: Quantity
    series: Mapping[str, Sequence[tuple[float, float]]]
    marked: Sequence[bool]
    title: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)


class Shades(Frozen):
    """Numbers of 0 or more in rows and columns; None where nothing is to be seen."""

    title: str
    x: str
    y: str
    rows: Sequence[Sequence[float | None]]


Drawn = Cloud | Bars | Curves | Shades


def figure(*drawn: Drawn) -> Any:
    """The matplotlib figure, one below the other where there are several. Raises RequestError without matplotlib."""
    matplotlib = load()
    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

        made = Figure(figsize=(SIZE[0], SIZE[1] * len(drawn)), layout="constrained")
        for place, each in enumerate(drawn, 1):
            _draw(made.add_subplot(len(drawn), 1, place), each)
    return made


def _draw(axes: Any, drawn: Drawn) -> None:
    if isinstance(drawn, Cloud):
        _cloud(axes, drawn)
    elif isinstance(drawn, Bars):
        _bars(axes, drawn)
    elif isinstance(drawn, Curves):
        _curves(axes, drawn)
    else:
        _shades(axes, drawn)


def save(drawn: Drawn | Sequence[Drawn], file: Path) -> Path:
    """Write a picture, whole or not at all. Raises RequestError."""
    several = drawn if isinstance(drawn, Sequence) else [drawn]
    made, picture = figure(*several), io.BytesIO()
    with load().rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        made.savefig(picture, dpi=DPI, format="png")
    return write_named(file, picture.getvalue())


def load() -> Any:
    """The library. Raises RequestError where it is not installed."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise RequestError("pictures need matplotlib, which is not installed: pip install 'archlab[report]'") from None
    return matplotlib


def _cloud(axes: Any, drawn: Cloud) -> None:
    _quantities(axes, drawn.x, drawn.y)
    for index, (name, points) in enumerate(drawn.groups.items()):
        colour = SERIES[index % len(SERIES)] if drawn.by else FAINT
        look = {"color": colour, "marker": MARKS[index % len(MARKS)], "s": 14, "linewidths": 0, "alpha": 0.8}
        axes.scatter(*_columns(points), label=clean(name), **look)
    if drawn.front:
        steps = "steps-post" if drawn.less_x else "steps-pre"
        axes.plot(*_columns(drawn.front), color=ACCENT, linewidth=0.9, drawstyle=steps, zorder=3)
        ring = {"s": 42, "facecolors": "none", "edgecolors": ACCENT, "linewidths": 1.0, "zorder": 4}
        axes.scatter(*_columns(drawn.front), label=f"front ({len(drawn.front):,})", **ring)
    axes.legend(title=clean(drawn.by) or None, title_fontsize=7, loc="best")


def _bars(axes: Any, drawn: Bars) -> None:
    places = range(len(drawn.names))
    colours = [ACCENT if marked else FAINT for marked in drawn.marked]
    axes.barh(places, drawn.values, color=colours, height=0.66)
    for place, value, spread in zip(places, drawn.values, drawn.spreads, strict=True):
        if spread is not None:
            reach = [[value - spread[0]], [spread[1] - value]]
            axes.errorbar(value, place, xerr=reach, color=INK, linewidth=0.7, capsize=1.8)
    axes.set_yticks(places, [clean(name) for name in drawn.names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(drawn.x.label)
    axes.xaxis.set_major_formatter(_written(drawn.x.unit))


def _curves(axes: Any, drawn: Curves) -> None:
    _quantities(axes, drawn.x, drawn.y)
    legend = len(drawn.series) <= len(SERIES)
    for index, (name, points) in enumerate(drawn.series.items()):
        colour = SERIES[index] if legend else ACCENT if drawn.marked[index] else FAINT
        width, order = (1.4, 3) if drawn.marked[index] else (0.8, 2)
        axes.plot(*_columns(points), color=colour, linewidth=width, zorder=order, marker="o", ms=2.2, label=clean(name))
    for name, y in drawn.limits.items():
        axes.axhline(y, color=MUTED, linewidth=0.8, linestyle="--", label=clean(name))
    axes.set_title(clean(drawn.title))
    places = sorted({x for points in drawn.series.values() for x, _ in points})
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places)
        axes.minorticks_off()
    if legend and (len(drawn.series) > 1 or drawn.limits):
        axes.legend(loc="best")


def _shades(axes: Any, drawn: Shades) -> None:
    cells = [[math.nan if value is None else value for value in row] for row in drawn.rows]
    shown = axes.imshow(cells, cmap="Blues", vmin=0.0, interpolation="nearest")
    axes.figure.colorbar(shown, ax=axes)
    axes.grid(visible=False)
    axes.set_facecolor(RULE)  # what cannot be seen
    axes.set(title=clean(drawn.title), xlabel=clean(drawn.x), ylabel=clean(drawn.y))


def _quantities(axes: Any, x: Quantity, y: Quantity) -> None:
    """Name the axes, scale them, and write their values in the units of the field."""
    for axis, quantity, scale, name in (
        (axes.xaxis, x, axes.set_xscale, axes.set_xlabel),
        (axes.yaxis, y, axes.set_yscale, axes.set_ylabel),
    ):
        name(quantity.label)
        if quantity.log:
            scale("log", base=2 if _binary(quantity.unit) or quantity.unit == "tokens" else 10)
        axis.set_major_formatter(_written(quantity.unit))
        axis.set_minor_formatter(lambda value, place: "")


def _written(unit: str) -> Callable[[float, int], str]:
    """How an axis of a unit writes its values."""
    steps = BINARY if _binary(unit) else DECIMAL

    def text(value: float, place: int) -> str:
        if unit == "tokens":
            return f"{value:,.0f}"
        size, power = next(((size, power) for power, size in steps if abs(value) >= size), (1, ""))
        return f"{value / size:,.4g} {power}".strip()

    return text


def _binary(unit: str) -> bool:
    return unit.split("/")[0] == "B"


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
