"""A document's charts as one picture, one below the other."""

from __future__ import annotations

from pathlib import Path

from archlab.document import Chart, Document, Heatmap
from archlab.errors import RequestError
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
    return save([_drawn(chart) for chart in document.charts], Path(file))


def _drawn(chart: Chart | Heatmap) -> Curves | Shades:
    if isinstance(chart, Heatmap):
        return Shades(chart.title, chart.x, chart.y, chart.rows)
    x, y = Quantity(chart.x, chart.x_unit, "", chart.log_x), Quantity(chart.y, chart.unit, "", chart.log_y)
    return Curves(x, y, chart.series, [True] * len(chart.series), chart.title, chart.ceilings)
