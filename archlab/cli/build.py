"""archlab build and archlab compare: runs and records."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

from archlab import completion, stdout
from archlab.cli.options import OPEN, Debug, Explain, Format, Json, Plugins, Quiet, Sort, print_json
from archlab.errors import RequestError
from archlab.interrupt import exit_code
from archlab.units import counted


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings=OPEN, epilog=completion.BUILD_HELP)(build)
    app.command(context_settings=OPEN)(compare)


def build(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides and Hydra's flags, in any order.", autocompletion=completion.complete_override),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="A config.json, a folder with one, a YAML or a run to start from.")
    ] = None,
    explain: Explain = None,
    as_json: Json = False,
    quiet: Quiet = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Compose a model; report parameters, KV cache, FLOPs and measured throughput; leave a record.

    archlab build model=gqa model/norm=layernorm model.n_layers=4 bench=none

    archlab build -m model/attention=mha,gqa,mqa model/norm=layernorm,rmsnorm

    archlab build --from Qwen3-8B/config.json workload.batch=8
    """
    from archlab.overrides import shown_by_hydra

    shown = shown_by_hydra(overrides or [])
    if shown is not None and as_json:
        raise RequestError(f"{shown} prints text of Hydra's own; leave out {shown} or --json")
    from archlab.launch import launch_from

    finish(launch_from(source, overrides or [], debug, quiet), as_json, explain)


def finish(outcome: Any, as_json: bool, explain: str | None = None) -> None:
    """Show what a launch left, and exit as its records and its end say."""
    all_ok = _show(outcome, as_json, explain)
    if outcome.missing or (outcome.interrupted and outcome.goes_on):
        left = f"{counted(outcome.missing, 'point')} without a record" if outcome.missing else "interrupted"
        stdout.say(f"archlab: {left}; archlab resume {outcome.folder} goes on")
    if outcome.interrupted:
        raise typer.Exit(exit_code())
    if outcome.problem is not None:
        stdout.say(f"archlab: {'the sweep ended early: ' if outcome.multirun else ''}{outcome.problem}")
    if outcome.problem is not None or outcome.missing or not all_ok:
        raise typer.Exit(1)


def _show(outcome: Any, as_json: bool, explain: str | None) -> bool:
    """Print the records; whether all of them are ok, and kept."""
    from archlab.record import row

    if outcome.multirun and outcome.files:
        print(f"records: {outcome.folder}", file=sys.stderr if as_json else sys.stdout)
    if outcome.multirun and explain is None:
        from archlab.summary import print_end

        return print_end(outcome.files, as_json, outcome.lost)
    found = [*map(row, outcome.files), *outcome.lost]
    if outcome.multirun:
        print_comparison(found, None, "json" if as_json else "table", explain)
    elif found:  # none, where Hydra showed something of its own
        _print_build(found[0], as_json, explain)
    return all(record.ok for record in found) and not outcome.lost


def _print_build(record: Any, as_json: bool, explain: str | None) -> None:
    _check_explained(explain, [record])
    if as_json:
        from archlab.report.formats import point

        print_json(point(record, _explained))
    elif explain is not None:
        _show_explained(explain, [record])
    else:
        from archlab.report.build import show_build
        from archlab.report.console import console

        show_build(record, console())


def print_comparison(
    records: Any, sort: str | None, form: str, explain: str | None = None, detail: bool = False
) -> None:
    """Print records side by side, or how a figure of each was got."""
    from archlab.report.compare import comparison

    compared = comparison(records, sort, detail)
    _check_explained(explain, compared.records)
    if explain is not None and form != "json":
        _show_explained(explain, compared.records, form)
    else:
        from archlab.report.console import console
        from archlab.report.formats import render

        render(compared, form, console(), _explained)


def _check_explained(explain: str | None, records: Any) -> None:
    """Refuse a figure that no record has."""
    if explain is not None:
        from archlab.report.explanations import check_figure

        check_figure(explain, (name for record in records for name in record.figures))


def _show_explained(explain: str, records: Any, form: str = "table") -> None:
    from archlab.report.console import console
    from archlab.report.explanations import print_explanations

    models = [(record.title, _explained(record)) for record in records]
    print_explanations(explain, models, form, console())


def _explained(record: Any) -> Any:
    from archlab.explained import explanations  # what most answers do without

    return explanations(record)


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Presets, YAML files, config.json, run folders, records; overrides follow the model that they change, "
            "or come first, for all.",
            autocompletion=completion.complete_model_or_override,
        ),
    ],
    sort: Sort = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Put models side by side.

    archlab compare gpt2 minimind model/attention=mqa outputs/2026-01-31/12-00-00-000000
    """
    from archlab.report.formats import check_format
    from archlab.sources import gather

    check_format(form)
    with contextlib.redirect_stdout(sys.stderr):  # what code of others prints
        found = gather(models)
    print_comparison(found, sort, "json" if as_json else form, explain, detail=True)
