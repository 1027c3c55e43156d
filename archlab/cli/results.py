"""archlab results and archlab resume: what sweeps left, and going on with one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from archlab import stdout
from archlab.cli.options import Debug, Json, Plugins, Quiet, Sort

Folders = Annotated[list[str], typer.Argument(help="Folders of sweeps and runs, or records.")]
Where = Annotated[str | None, typer.Option("--where", help="Only these: 'params<200M and attention!=mha'.")]
Pareto = Annotated[
    str | None,
    typer.Option("--pareto", help="Only the front of these figures: params,kv,decode. Long lists are folded to it."),
]
GroupBy = Annotated[str | None, typer.Option("--group-by", help="Best and median by an option: attention.")]
ChartAxes = Annotated[str | None, typer.Option("--chart", help="Draw two figures against each other: params,kv.")]
Form = Annotated[str, typer.Option("--format", help="table, csv, json, md or parquet.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="A file to write; without it, print.")]
All = Annotated[bool, typer.Option("--all", help="Every point, however many.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(results)
    app.command()(resume)


def read_all(folders: list[str]) -> Any:
    """What is in some folders; which of their records cannot be used is said on stderr."""
    from archlab.results import find, read, unread

    found = read(find(folders))
    told = unread(found)
    if told is not None:
        stdout.say(f"archlab: {told}")
    return found


def results(
    folders: Folders,
    where: Where = None,
    sort: Sort = None,
    pareto: Pareto = None,
    group_by: GroupBy = None,
    chart: ChartAxes = None,
    everything: All = False,
    form: Form = "table",
    output: Output = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """What sweeps came to: the points that nothing beats, and what each choice did.

    archlab results outputs/2026-01-31/12-00-00-000000 --where 'params<200M and kv<=32KiB' --pareto params,kv

    archlab results sweep --group-by attention --format md

    archlab results sweep --chart params,kv
    """
    from archlab.errors import RequestError
    from archlab.report.formats import FORMATS, check_format
    from archlab.summary import Selection, print_summary

    form = "json" if as_json else check_format(form, (*FORMATS, "parquet"))
    if chart is not None and form != "table":
        raise RequestError(f"--chart draws in the terminal; leave out --chart or --format {form}")
    output = None if stdout.is_named(output) else output
    print_summary(read_all(folders), Selection(where, sort, pareto, group_by, everything, chart), form, output)


def resume(
    folder: Annotated[str, typer.Argument(help="The folder of a sweep that was ended, or whose points failed.")],
    as_json: Json = False,
    quiet: Quiet = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Go on with a sweep: run the points without a record, and those that failed, ran out of memory or of time.

    archlab resume outputs/2026-01-31/12-00-00-000000
    """
    from archlab.cli.build import finish
    from archlab.launch import go_on

    finish(go_on(folder, quiet), as_json)
