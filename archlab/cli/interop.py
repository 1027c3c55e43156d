"""archlab import and archlab export: Hugging Face config.json, in and out."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from archlab.cli.options import OPEN, Debug, Model, Output, Overrides, Plugins, deliver


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("import")(import_)
    app.command("export", context_settings=OPEN)(export_)


def import_(
    path: Annotated[str, typer.Argument(help="A Hugging Face config.json, or a folder that holds one.")],
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Turn a Hugging Face config.json into an archlab YAML to edit, with its exact size on top.

    archlab import Qwen3-8B -o conf/model/my-qwen.yaml
    """
    from archlab.interop.card import import_preset
    from archlab.interop.reader import refuse_itself

    refuse_itself(path, output)
    text, said, notes = import_preset(path, output)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    deliver(text, said, output)


def export_(
    model: Model,
    overrides: Overrides = None,
    output: Output = None,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Turn a model into a Hugging Face config.json, where some family can express it.

    archlab export minimind model.n_layers=4 -o config.json
    """
    from archlab.compose import load, shadowed
    from archlab.interop.card import export_config
    from archlab.interop.reader import refuse_itself

    refuse_itself(model, output)
    for note in shadowed(model):
        print(f"note: {note}", file=sys.stderr)
    deliver(*export_config(load(model, *(overrides or []))), output)
