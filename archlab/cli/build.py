"""archlab build and archlab compare: runs and records."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from archlab import completion
from archlab.cli.options import OPEN, Debug, Format, Json, Sort, print_json
from archlab.errors import RequestError


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
    as_json: Json = False,
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

    finish(launch_from(source, overrides or []), as_json)


def finish(outcome: Any, as_json: bool) -> None:
    """Show what a launch left, and exit as its records and its end say."""
    all_ok = _show(outcome, as_json)
    if outcome.missing:
        print(
            f"archlab: {outcome.missing:,} points have no record; archlab resume {outcome.folder} goes on",
            file=sys.stderr,
        )
    if outcome.interrupted:
        raise typer.Exit(130)
    if outcome.problem is not None:
        print(f"archlab: the sweep ended early: {outcome.problem}", file=sys.stderr)
    if outcome.problem is not None or outcome.missing or not all_ok:
        raise typer.Exit(1)


def _show(outcome: Any, as_json: bool) -> bool:
    """Print the records; whether all of them are ok."""
    if not outcome.multirun:
        from archlab.record import load

        record = load(outcome.files[0])
        _print_build(record, as_json)
        return record.ok
    from archlab.summary import print_end

    print(f"records: {outcome.folder}", file=sys.stderr if as_json else sys.stdout)
    return print_end(outcome.files, as_json)


def _print_build(record: Any, as_json: bool) -> None:
    if as_json:
        print_json(record.as_dict())
        return
    from archlab.report.build import show_build
    from archlab.report.console import console

    show_build(record, console())


def print_comparison(records: Any, sort: str | None, form: str, detail: bool) -> None:
    from archlab.report.compare import comparison
    from archlab.report.console import console
    from archlab.report.formats import render

    render(comparison(records, sort, detail), form, console())


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Presets, YAML files, config.json, run folders, records; overrides follow the model they change.",
            autocompletion=completion.complete_model_or_override,
        ),
    ],
    sort: Sort = None,
    form: Format = "table",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Put models side by side.

    archlab compare gpt2 minimind model/attention=mqa outputs/2026-01-31/12-00-00-000000
    """
    from archlab.report.formats import check_format
    from archlab.sources import gather

    check_format(form)
    print_comparison(gather(models), sort, "json" if as_json else form, detail=True)
