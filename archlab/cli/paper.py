"""The commands that answer on paper: MODEL, overrides after it, and the workload in short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from archlab.cli.options import OPEN, Debug, Format, Json, Model, Overrides
from archlab.document import Document

Context = Annotated[str | None, typer.Option("--context", help="Tokens of each sequence: 4096, 8k.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Sequences at once.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Of the weights: bf16, fp16, fp32, fp64.")]
Explain = Annotated[
    str | None, typer.Option("--explain", help="How a figure was got: its formula with the numbers; all for every one.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings=OPEN)(flops)


def print_answer(answer: Callable[[], Document], form: str, as_json: bool, explain: str | None) -> None:
    """Print the document that a command makes; a wrong format is refused before it is made."""
    from archlab.report.console import console
    from archlab.report.document import print_document
    from archlab.report.formats import check_format

    check_format(form)
    print_document(answer(), "json" if as_json else form, console(), explain)


def tokens(text: str | None) -> int | None:
    """`8k` as 8,192; None stays."""
    from archlab.units import read_tokens

    return None if text is None else read_tokens(text, "context")


def given(**settings: Any) -> dict[str, Any]:
    """The workload settings that an option in short gave."""
    return {name: value for name, value in settings.items() if value is not None}


def flops(
    model: Model,
    overrides: Overrides = None,
    context: Context = None,
    batch: Batch = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """FLOPs of a prompt, part by part, full and causal side by side.

    archlab flops llama-3-8b --context 8k
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.paper.flops import document

        return document(request(model, overrides or [], **given(prompt=tokens(context), batch=batch)))

    print_answer(answer, form, as_json, explain)
