"""archlab explain: what there is, in words and in a model's numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import OPEN, Debug, Format, Json, Plugins, given, print_answer, tokens
from archlab.document import Document

WHAT = "An axis, a choice (rope; ffn/gelu) or a figure (params, kv, flops, mfu)."


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(context_settings=OPEN)(explain)


def explain(
    what: Annotated[str, typer.Argument(help=WHAT, autocompletion=completion.complete_subject)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="model=MODEL, and what to change first.", autocompletion=completion.complete_override),
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Tokens of each sequence: 4096, 8k.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Sequences at once.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Of weights and cache: bf16, fp16, fp32, fp64.")] = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """What an axis, a choice or a figure is and why, its formula with a model's numbers, what it costs there.

    archlab explain rope

    archlab explain gqa model=minimind --context 8k

    archlab explain mfu model=llama-3-8b hardware=h100-sxm
    """

    def answer() -> Document:
        from archlab.hardware import chosen
        from archlab.paper.explain import document
        from archlab.paper.explain.asked import Asked

        device, others = chosen(overrides or [])
        workload = given(batch=batch, dtype=dtype)
        return document(what, Asked.given(others, tokens=tokens(context), workload=workload, hardware=device))

    print_answer(answer, form, as_json, None)
