"""The commands that answer on paper: MODEL, overrides after it, and the workload in short."""

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
    listed,
    print_answer,
    tokens,
)
from archlab.document import Document

Context = Annotated[str | None, typer.Option("--context", help="Tokens of each sequence: 4096, 8k.")]
Contexts = Annotated[str | None, typer.Option("--context", help="Tokens of each sequence: 2k,8k,128k.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Sequences at once.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Of the weights: bf16, fp16, fp32, fp64.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings=OPEN)(flops)
    app.command(context_settings=OPEN)(kv)
    app.command(context_settings=OPEN)(memory)
    app.command(context_settings=OPEN)(diff)


def typed(key: str, overrides: list[str] | None) -> bool:
    """Whether an override sets this key."""
    return any(word.partition("=")[0].lstrip("+") == key for word in overrides or [])


def flops(
    model: Model,
    overrides: Overrides = None,
    context: Context = None,
    batch: Batch = None,
    trained_on: Annotated[
        str | None, typer.Option("--tokens", help="Tokens of a whole training run: 15T, 300B.")
    ] = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """FLOPs part by part, decoded, trained, and by named conventions.

    archlab flops llama-3.1-8b --context 8k --tokens 15T hardware=h100-sxm
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.frozen import replace
        from archlab.hardware import chosen
        from archlab.paper.flops import document
        from archlab.units import read_count

        device, others = chosen(overrides or [])
        asked = request(model, others, **given(prompt=tokens(context), batch=batch))
        run = None if trained_on is None else read_count(trained_on, "tokens")
        return document(replace(asked, hardware=device), run)

    print_answer(answer, form, as_json, explain)


def kv(
    model: Model,
    overrides: Overrides = None,
    context: Contexts = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sequences at once: 1,32.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Of the cache: bf16,fp8,int8,int4.")] = None,
    tp: Annotated[int, typer.Option("--tp", help="Devices that share the heads.")] = 1,
    beams: Annotated[int, typer.Option("--beams", help="Beams of each sequence.")] = 1,
    engine: Annotated[str, typer.Option("--engine", help="paged, full_pages or llama_cpp.")] = "paged",
    block: Annotated[int | None, typer.Option("--block", help="Tokens of an engine's block; 16.")] = None,
    micro_batch: Annotated[
        int | None, typer.Option("--micro-batch", help="Of llama_cpp: tokens a prefill step; 512.")
    ] = None,
    cache: Annotated[str | None, typer.Option("--cache", help="Of latent attention: latent or expanded.")] = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """What the KV cache takes: required, allocated, and set aside by a serving engine.

    archlab kv gemma-3-1b --context 2k,32k --dtype bf16,int4
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.cost.kv import Engine
        from archlab.errors import ConfigError
        from archlab.hardware import chosen
        from archlab.paper.kv import document
        from archlab.units import read_count, read_tokens

        if chosen(overrides or [])[0] is not None:
            raise ConfigError("hardware", "plays no part in a cache; archlab fit says what a device holds")
        contexts = listed(context, lambda text: read_tokens(text, "context"))
        batches = listed(batch, lambda text: read_count(text, "batch"))
        kept = Engine.given(engine, block, micro_batch)
        asked = request(model, overrides or [], **given(contexts=contexts))
        return document(asked, batches, listed(dtype, str), beams, tp, kept, cache)

    print_answer(answer, form, as_json, explain)


def memory(
    model: Model,
    overrides: Overrides = None,
    train: Annotated[bool, typer.Option("--train", help="A training step instead of inference.")] = False,
    context: Context = None,
    batch: Annotated[
        int | None, typer.Option("--batch", help="Sequences at once; in training of a micro-batch.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Of weights and arithmetic: bf16, fp16, fp32, fp64.")
    ] = None,
    weights_dtype: Annotated[
        str | None, typer.Option("--weights-dtype", help="How weights are kept: bf16, fp8, int8, int4.")
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option("--kv-dtype", help="How the cache is kept: bf16, fp8, int8, int4.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help="Recipe: mixed-16, mixed-18, fp32, adam-8bit, muon, ..")
    ] = None,
    recompute: Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")] = None,
    attention: Annotated[str | None, typer.Option("--attention", help="sdpa (fused), math (explicit) or flex.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Whose kernels: cpu or cuda.")] = None,
    dp: Annotated[int, typer.Option("--dp", help="Data-parallel ranks.")] = 1,
    tp: Annotated[int, typer.Option("--tp", help="Devices that share heads, widths and vocabulary.")] = 1,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")] = 1,
    ep: Annotated[int, typer.Option("--ep", help="Ranks of dp that share the experts.")] = 1,
    zero: Annotated[int, typer.Option("--zero", help="ZeRO stage: 1 optimizer, 2 gradients too, 3 weights too.")] = 0,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="The tp devices share the tokens of norms and stream.")
    ] = False,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """What a model takes on each device, part by part.

    archlab memory llama-3-8b --train --context 8k --dp 8 --zero 3 --recompute selective
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.cost.parallel import Split
        from archlab.frozen import replace
        from archlab.hardware import chosen
        from archlab.paper.memory import document

        found, others = chosen(overrides or [])
        asked = request(model, others, **given(prompt=tokens(context), batch=batch, recompute=recompute))
        return document(
            replace(asked, hardware=found),
            train=train,
            context=asked.workload.prompt if context or typed("workload.prompt", overrides) else None,
            dtype=dtype,
            weights_dtype=weights_dtype,
            kv_dtype=kv_dtype,
            optimizer=optimizer,
            attention=attention,
            device=device,
            split=Split(dp, tp, pp, ep, zero, sequence_parallel),
        )

    print_answer(answer, form, as_json, explain)


def diff(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Two models, or one and what to change; overrides follow the model that they change, or come first, "
            "for both.",
            autocompletion=completion.complete_model_or_override,
        ),
    ],
    context: Contexts = None,
    batch: Batch = None,
    dtype: Dtype = None,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """What changes, part by part, from one model to another or by what is changed.

    archlab diff llama-3-8b model/attention=mha

    archlab diff gpt2 gpt2 model/norm=rmsnorm model/position=rope --context 1k

    archlab diff llama-3-8b model/attention=mha hardware=h200
    """

    def answer() -> Document:
        from archlab.compose import request
        from archlab.frozen import replace
        from archlab.hardware import chosen
        from archlab.paper.diff import document
        from archlab.sources import pair
        from archlab.units import read_tokens

        contexts = listed(context, lambda text: read_tokens(text, "context"))
        workload = given(contexts=contexts, batch=batch, dtype=dtype)
        pairs = pair(models)
        sides = []
        for source, overrides in pairs:
            device, others = chosen(overrides)
            sides.append(replace(request(source, others, **workload), hardware=device))
        return document(sides[0], sides[1], [" ".join((source, *overrides)) for source, overrides in pairs])

    print_answer(answer, form, as_json, explain)
