"""The commands about a device on paper: what there is, what bounds a model on it, what fits."""

from __future__ import annotations

from typing import Annotated

import typer

from archlab import completion
from archlab.cli.options import (
    OPEN,
    Debug,
    Explain,
    Format,
    Json,
    Model,
    Overrides,
    Plugins,
    given,
    print_answer,
    tokens,
)
from archlab.cli.paper import Batch, Context, Dtype
from archlab.document import Document

WeightsDtype = Annotated[
    str | None, typer.Option("--weights-dtype", help="How weights are kept: bf16, fp8, int8, int4, ..")
]
KvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="How the cache is kept: bf16, fp8, int8, int4, ..")]
Tp = Annotated[int, typer.Option("--tp", help="Devices that share each layer.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(hardware)
    app.command(context_settings=OPEN)(roofline)
    app.command(context_settings=OPEN)(fit)


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


def roofline(
    model: Model,
    overrides: Overrides = None,
    context: Context = None,
    batch: Batch = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Of the arithmetic: bf16, fp8, int8, ..")] = None,
    weights_dtype: WeightsDtype = None,
    kv_dtype: KvDtype = None,
    tp: Tp = 1,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """What bounds prefill, decode and training on a device: arithmetic or memory, and by how much.

    archlab roofline llama-3-8b hardware=h100-sxm --context 2k
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.cost.roofline import Setting
        from archlab.hardware import AUTO, chosen
        from archlab.hardware import hardware as device
        from archlab.paper.roofline import document

        found, others = chosen(overrides or [])
        asked = request(model, others, **given(prompt=tokens(context), batch=batch))
        setting = Setting.given(asked.workload, dtype, weights_dtype, kv_dtype, tp)
        return document(asked, found or device(AUTO), setting)

    print_answer(answer, form, as_json, explain)


def fit(
    model: Model,
    overrides: Overrides = None,
    context: Context = None,
    batch: Batch = None,
    dtype: Dtype = None,
    weights_dtype: WeightsDtype = None,
    kv_dtype: KvDtype = None,
    tp: Tp = 1,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Share of the memory that may be used.")] = 0.9,
    reserve: Annotated[str, typer.Option("--reserve", help="Memory that the driver and the engine take.")] = "1GiB",
    engine: Annotated[str, typer.Option("--engine", help="paged, full_pages or llama_cpp.")] = "paged",
    block: Annotated[int | None, typer.Option("--block", help="Tokens of an engine's block; 16.")] = None,
    micro_batch: Annotated[
        int | None, typer.Option("--micro-batch", help="Of llama_cpp: tokens a prefill step; 512.")
    ] = None,
    chunk: Annotated[str, typer.Option("--chunk", help="Tokens of a prefill step at most; all: whole prompts.")] = "8k",
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Does it fit; the largest context and batch, the fewest devices. Without hardware=: which device holds it.

    archlab fit llama-3.1-8b hardware=rtx-4090 --context 32k --kv-dtype fp8
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.cost.fit import Serving
        from archlab.cost.kv import Engine
        from archlab.cost.roofline import Setting
        from archlab.hardware import chosen
        from archlab.overrides import typed_keys
        from archlab.paper.fit import document
        from archlab.units import read_bytes, read_tokens

        found, others = chosen(overrides or [])
        asked = request(model, others, **given(prompt=tokens(context), batch=batch))
        setting = Setting.given(asked.workload, dtype, weights_dtype, kv_dtype, tp)
        kept = 0 if reserve.strip() == "0" else read_bytes(reserve, "reserve")
        step = None if chunk == "all" else read_tokens(chunk, "chunk")
        serving = Serving(setting, Engine.given(engine, block, micro_batch), utilisation, kept, step)
        said = context is not None or "workload.prompt" in typed_keys(others)
        return document(asked, found, serving, asked.workload.prompt if said else None)

    print_answer(answer, form, as_json, explain)
