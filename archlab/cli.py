"""The command line: parse, call, print."""

from __future__ import annotations

import gc
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import archlab
from archlab import completion
from archlab.errors import ArchlabError, RequestError
from archlab.record import finite

app = typer.Typer(
    name="archlab",
    help="Compose a decoder-only language model from swappable parts; see what it costs, build it, time it.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
_OPEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help", "-h"]}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Format = Annotated[str, typer.Option("--format", help="table, json, csv or md.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="A file to write; without it, print.")]
Sort = Annotated[str | None, typer.Option("--sort", help="A figure to sort by; -NAME for descending.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archlab {archlab.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """archlab answers: if I choose this norm, these positions, this attention, this FFN: what does it cost?"""


@app.command(context_settings=_OPEN, epilog=completion.BUILD_HELP)
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

    outcome = launch_from(source, overrides or [])
    if outcome.records or outcome.interrupted:
        _show(outcome, as_json)
    if outcome.interrupted:
        raise typer.Exit(130)
    if outcome.problem is not None:
        print(f"archlab: the sweep ended early: {outcome.problem}", file=sys.stderr)
    if outcome.problem is not None or any(not record.ok for record in outcome.records):
        raise typer.Exit(1)


def _show(outcome: Any, as_json: bool) -> None:
    if outcome.multirun:
        _print_comparison(outcome.records, None, "json" if as_json else "table", detail=False)
        if outcome.folder is not None:
            print(f"records: {outcome.folder}", file=sys.stderr if as_json else sys.stdout)
    elif outcome.records:
        _print_build(outcome.records[0], as_json)


def _print_json(document: Any) -> None:
    """One line of ASCII, so that no terminal, pipe or name can break it."""
    print(json.dumps(finite(document), ensure_ascii=True, allow_nan=False, default=str))


def _print_build(record: Any, as_json: bool) -> None:
    if as_json:
        _print_json(record.as_dict())
        return
    from archlab.report.build import show_build
    from archlab.report.console import console

    show_build(record, console())


def _print_comparison(records: Any, sort: str | None, form: str, detail: bool) -> None:
    from archlab.report.compare import comparison
    from archlab.report.console import console
    from archlab.report.formats import render

    render(comparison(records, sort, detail), form, console())


@app.command(context_settings=_OPEN)
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
    _print_comparison(gather(models), sort, "json" if as_json else form, detail=True)


@app.command()
def components(
    axis: Annotated[
        str | None, typer.Argument(help="One axis; all without.", autocompletion=completion.complete_axis)
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Every choice of every axis: its options, its parameters, which presets use it."""
    from archlab.compose import preset_users
    from archlab.report.catalog import components_data, show_components
    from archlab.report.console import console

    if as_json:
        _print_json(components_data(axis, preset_users()))
    else:
        show_components(axis, preset_users(), console())


@app.command()
def models(as_json: Json = False, debug: Debug = False) -> None:
    """The presets with their totals."""
    from archlab.report.catalog import models_data, show_models
    from archlab.report.console import console
    from archlab.sources import preset_records

    found = preset_records()
    if as_json:
        _print_json(models_data(found))
    else:
        show_models(found, console())


@app.command("import")
def import_(
    path: Annotated[str, typer.Argument(help="A Hugging Face config.json, or a folder that holds one.")],
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Turn a Hugging Face config.json into an archlab YAML to edit, with its exact size on top.

    archlab import Qwen3-8B -o conf/model/my-qwen.yaml
    """
    from archlab.interop.card import import_preset

    _deliver(*import_preset(path, output), output)


@app.command("export", context_settings=_OPEN)
def export_(
    model: Annotated[str, typer.Argument(help="A preset, a YAML, a run.", autocompletion=completion.complete_model)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="What to change first.", autocompletion=completion.complete_override),
    ] = None,
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Turn a model into a Hugging Face config.json, where some family can express it.

    archlab export minimind model.n_layers=4 -o config.json
    """
    from archlab.compose import load
    from archlab.interop.card import export_config

    _deliver(*export_config(load(model, *(overrides or []))), output)


def _deliver(text: str, told: str, output: str | None) -> None:
    """Print the text, or write it and say what was written."""
    if output is None:
        print(text, end="")
        return
    from archlab.record import write_atomically

    try:
        write_atomically(Path(output), text)
    except OSError as error:
        raise RequestError(f"{output}: cannot be written: {error.strerror}") from None
    print(f"{output}: {told}")


def main() -> None:
    """Run the command line; every error is one message and an exit code."""
    arguments = sys.argv[1:]
    gc.set_threshold(50_000, 20, 100)  # imports make many objects and little garbage: a tenth of a short command
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal has no letters for
    sys.exit(run(lambda: app(args=arguments, prog_name="archlab", standalone_mode=False), arguments))


def run(call: Callable[[], Any], arguments: list[str]) -> int:
    """The exit code of a call: 0 fine, 1 not ok, 2 a wrong request, 130 Ctrl-C. Prints the error, if any."""
    try:
        result = call()
    except ArchlabError as error:
        return _refuse(error, arguments)
    except SystemExit as stop:  # 2 is Hydra's own parser, which has said why; 1 is rich at a pipe that was closed
        if stop.code in (0, 1, None):
            return 0
        return _refuse(RequestError("Hydra refused the command line"), arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = None
        return 0
    except Exception as error:
        if isinstance(error, typer.Abort):
            return 130
        if hasattr(error, "format_message"):  # a usage error of Typer's own parser, which it does not export
            return _refuse(RequestError(error.format_message()), arguments)
        raise
    return result if isinstance(result, int) else 0


def _refuse(error: ArchlabError, arguments: list[str]) -> int:
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()
    if "--json" in arguments:
        _print_json({"error": error.as_dict()})
    else:
        print(f"archlab: {error}", file=sys.stderr)
    return error.exit_code
