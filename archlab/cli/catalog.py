"""archlab components and archlab models: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import Debug, Json, Plugins, print_json
from archlab.record import SCHEMA


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(components)
    app.command()(models)


def components(
    axis: Annotated[
        str | None, typer.Argument(help="One axis; all without.", autocompletion=completion.complete_axis)
    ] = None,
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Every choice of every axis: its options, its parameters, which presets use it."""
    from archlab.compose import preset_users
    from archlab.report.catalog import components_data, show_components
    from archlab.report.console import console

    if as_json:
        print_json(components_data(axis, preset_users()))
    else:
        show_components(axis, preset_users(), console())


def models(as_json: Json = False, plugins: Plugins = None, debug: Debug = False) -> None:
    """The presets with their totals."""
    from archlab.presets import names, summaries

    rows = summaries()
    if not rows:  # a YAML was edited
        from archlab.compose import summary

        rows = [summary(name) for name in names()]
    if as_json:
        print_json({"schema": SCHEMA, "models": rows})
        return
    from archlab.report.console import console
    from archlab.report.models import show_models

    show_models(rows, console())
