"""archlab size: the words after MODEL say a budget, and what is solved for to meet it."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import OPEN, Debug, Explain, Format, Json, Model, Plugins, given, print_answer, tokens
from archlab.cli.paper import Context
from archlab.document import Document


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings=OPEN)(size)


def size(
    model: Model,
    budget: Annotated[
        list[str] | None,
        typer.Argument(
            help="The budget: params=, params_active=, params_non_embedding=, kv=, flops= or base=PRESET; "
            "solve=d_ff|n_layers|d_model, multiple=, round=down|up|nearest; overrides of the model.",
            autocompletion=completion.complete_budget,
        ),
    ] = None,
    context: Context = None,
    kv_dtype: Annotated[str | None, typer.Option("--dtype", help="Of the KV cache: bf16, fp16, fp32, fp64.")] = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """The d_ff, n_layers or d_model at which a model meets a budget.

    archlab size gqa params=124M solve=n_layers

    archlab size gqa model/ffn=gelu base=gqa solve=d_ff multiple=8

    archlab size llama-3-8b kv=96KiB solve=n_layers
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.overrides import split_budget
        from archlab.paper.size import document

        settings, overrides = split_budget(budget or [])
        workload = given(prompt=tokens(context), kv_dtype=kv_dtype)
        asked = request(model, overrides, budget=settings, **workload)
        if context is not None:
            asked.spec.check_length(asked.workload.prompt)
        return document(asked)

    print_answer(answer, form, as_json, explain)
