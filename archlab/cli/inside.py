"""The commands that show how a model works inside: they build it, on the meta device, and so import torch."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import OPEN, Debug, Format, Json, Model, Overrides, Plugins, print_answer
from archlab.document import Document
from archlab.errors import RequestError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings=OPEN)(shapes)
    app.command(context_settings=OPEN)(verify)


def shapes(
    model: Model,
    overrides: Overrides = None,
    batch: Annotated[int, typer.Option("--batch", help="Sequences at once.")] = 2,
    context: Annotated[str, typer.Option("--context", help="Tokens of each sequence: 128, 8k.")] = "128",
    layer: Annotated[
        int | None, typer.Option("--layer", help="The layer to show; without it, the first of each kind.")
    ] = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """The path of a token: each step's shapes, parameters, FLOPs, and what training keeps of it.

    archlab shapes minimind model/attention=mha --batch 1 --context 2k
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.inside.shapes import document
        from archlab.units import read_tokens

        asked = request(model, overrides or [])
        return document(asked.spec, batch, read_tokens(context, "context"), layer)

    print_answer(answer, form, as_json, None)


def verify(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A preset, an archlab YAML, a config.json, a run.", autocompletion=completion.complete_model
        ),
    ] = None,
    overrides: Overrides = None,
    component: Annotated[
        str | None, typer.Option("--component", help="The contract of one choice instead: norm/rmsnorm.")
    ] = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> int:
    """The self-check in full: closed forms, cache, causality, backends, tables, tie, gradients. Exit code 1 if not so.

    archlab verify qwen3-0.6b model/position=alibi

    archlab verify --component norm/dyt --plugin dyt.py
    """
    made: list[Document] = []

    def answer() -> Document:
        made.append(_of_model(model, overrides) if component is None else _of_choice(component, model))
        return made[0]

    print_answer(answer, form, as_json, None)
    return int(any(row["ok"] == "no" for row in made[0].tables[0].rows))


def _of_model(model: str | None, overrides: list[str] | None) -> Document:
    """The self-check of a model."""
    if model is None:
        raise RequestError("name a model, or a choice by --component AXIS/CHOICE")
    from archlab.compose import request
    from archlab.host import available_memory
    from archlab.inside.checks import document

    return document(request(model, overrides or []).spec, available_memory() // 2)


def _of_choice(name: str, beside: str | None) -> Document:
    """The contract of a choice."""
    if beside is not None:
        raise RequestError(f"--component {name} is tried in models of its own; leave out {beside}")
    from archlab.inside.contract import document
    from archlab.registry import choice

    axis, _, chosen = name.partition("/")
    return document(axis, choice(axis, chosen).name)
