"""A document's charts as one picture, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from archlab.document import Chart, Document, Heatmap
from archlab.errors import RequestError
from archlab.report.palette import SERIES, Key, key_of
from archlab.report.png import Curves, Quantity, Shades, load, save


def check_picture(file: str) -> None:
    """Raise RequestError where no picture can be drawn into such a file, before anything is run for it."""
    if Path(file).suffix.lower() != ".png":
        raise RequestError(f"{file}: pictures are PNG; name a file that ends in .png")
    load()


def draw(document: Document, file: str) -> Path:
    """Write the picture; its file. Raises RequestError where there is nothing to draw, or it cannot be written."""
    check_picture(file)
    if not document.charts:
        raise RequestError(f"{file}: there is no chart to draw")
    key = _key([chart for chart in document.charts if isinstance(chart, Chart)])
    return save([_drawn(chart, key) for chart in document.charts], Path(file))


def _key(charts: Sequence[Chart]) -> Key | None:
    """One for all charts, so that a curve has its colour in each; None where one has more curves than there are."""
    few = all(len(chart.series) <= len(SERIES) for chart in charts)
    return key_of("", [name for chart in charts for name in chart.series]) if few else None


def _drawn(chart: Chart | Heatmap, key: Key | None) -> Curves | Shades:
    if isinstance(chart, Heatmap):
        return Shades(chart.title, chart.x, chart.y, chart.rows)
    x, y = Quantity(chart.x, chart.x_unit, "", chart.log_x), Quantity(chart.y, chart.unit, "", chart.log_y)
    return Curves(x, y, chart.series, [True] * len(chart.series), chart.title, chart.ceilings, key, list(chart.series))
