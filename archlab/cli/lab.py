"""archlab lab: experiments with real tensors and clocks, on any composition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import OPEN, Debug, Format, Json, Plugins, print_answer
from archlab.document import Document


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings=OPEN)(lab)


def lab(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment; without it, the list of all.", autocompletion=completion.complete_experiment
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="model=PRESET or a path, settings of the experiment as key=value, overrides of the model.",
            autocompletion=completion.complete_override,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of random weights and tokens; 0.")] = None,
    png: Annotated[str | None, typer.Option("--png", help="Draw the charts into this file too.")] = None,
    plugins: Plugins = None,
    form: Format = "table",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Experiments with real tensors and clocks: rope, order, residual, .., on any model.

    archlab lab residual model=gqa scales=1,0.1 layers=12

    archlab lab rope model=qwen3-8b bases=1e4,1e6 --png rope.png
    """

    def answer() -> Document:
        from archlab.lab.catalog import document

        if name is None:
            return document()
        if png is None:
            return conducted(name, words or [], seed)
        from archlab.report.drawn import check_picture, draw

        check_picture(png)
        made = conducted(name, words or [], seed)
        print(f"{draw(made, png)}: drawn", file=sys.stderr)
        return made

    print_answer(answer, form, as_json, None)


def conducted(name: str, words: Sequence[str], seed: int | None = None) -> Document:
    """The experiment of that name on the model that the words after it say; seed: in short for `seed=`."""
    from archlab.lab.catalog import find, sort

    experiment = find(name)
    source, settings, overrides = sort(experiment, words)
    from archlab.compose import request
    from archlab.frozen import replace

    asked = request(source, overrides)
    if seed is not None:
        asked = replace(asked, run=replace(asked.run, seed=seed))
    from archlab.lab.conduct import conduct  # torch, once all that was asked for is there

    return conduct(experiment, asked, settings)
