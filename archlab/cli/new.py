"""archlab new: a start for a choice of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import Debug


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(new)


def new(
    axis: Annotated[
        str,
        typer.Argument(
            help="norm, position, attention, ffn, head or block; place for an axis of its own.",
            autocompletion=completion.complete_axis,
        ),
    ],
    name: Annotated[str, typer.Argument(help="What the choice, or the place, is to be called.")],
    folder: Annotated[str, typer.Option("--output", "-o", help="The folder to write into.")] = ".",
    debug: Debug = False,
) -> None:
    """Write a start for a choice of your own: one Python file that works as it is, and a test beside it.

    archlab new norm dyt

    archlab new place conv -o mine
    """
    from archlab.new import SHIFT, write_start

    files = write_start(axis, name, Path(folder))
    for file in files:
        print(f"{file}: written")
    at, chosen = (name, SHIFT) if axis == "place" else (axis, name)
    print(f"archlab verify --component {at}/{chosen} --plugin {files[0]} tries it")
    print(f"archlab build --plugin {files[0]} model=gqa model/{at}={chosen} builds with it")
