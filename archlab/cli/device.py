"""The commands about a device on paper: what there is, what bounds a model on it, what fits."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import Debug, Format, Json
from archlab.cli.paper import print_answer


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(hardware)


def hardware(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One device: a name, a YAML of your own, auto; all without.",
            autocompletion=completion.complete_hardware,
        ),
    ] = None,
    form: Format = "table",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The devices that roofline and fit know: memory, bandwidth, dense peaks.

    archlab hardware h200
    """
    from archlab.paper.hardware import document

    print_answer(lambda: document(name), form, as_json, None)
