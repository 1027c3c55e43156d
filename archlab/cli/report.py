"""archlab report: records as a page or as pictures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from archlab.cli.options import Debug, deliver
from archlab.cli.results import ChartAxes, Folders, Pareto, Where, read_all
from archlab.errors import RequestError
from archlab.units import counted, show_bytes


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(report)


def report(
    folders: Folders,
    output: Annotated[str | None, typer.Option("--output", "-o", help="The HTML file to write.")] = None,
    png: Annotated[str | None, typer.Option("--png", help="A folder for pictures, or a .png for the first.")] = None,
    where: Where = None,
    chart: ChartAxes = None,
    pareto: Pareto = None,
    debug: Debug = False,
) -> None:
    """Sweeps and runs as one HTML page that opens offline, or as pictures for a paper.

    archlab report outputs/2026-01-31/12-00-00-000000 -o report.html

    archlab report sweep --where 'params<200M' --chart params,decode --png figures
    """
    if output is None and png is None:
        raise RequestError("name a file to write: -o report.html, or --png FOLDER for pictures")
    from archlab.overview import Asked

    found, asked = read_all(folders), Asked(where, pareto, chart)
    if output is not None:
        _page(found, asked, folders, output)
    if png is not None:
        _pictures(found, asked, png)


def _page(found: Any, asked: Any, folders: list[str], output: str) -> None:
    from archlab.overview import overview
    from archlab.report.html.page import page

    made = overview(found, asked, folders)
    text = page(made)
    deliver(text, f"written, {counted(made['count'], 'point')}, {show_bytes(len(text.encode()))}", output)


def _pictures(found: Any, asked: Any, where_to: str) -> None:
    from archlab.pictures import draw

    for file in draw(found, asked, where_to):
        print(f"{file}: written")
