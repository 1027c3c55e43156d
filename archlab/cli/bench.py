"""archlab bench: how fast models run on the device that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from archlab import completion, stdout
from archlab.cli.options import OPEN, Debug, Explain, Format, Json, Plugins, listed, print_answer
from archlab.document import Document
from archlab.errors import RequestError
from archlab.interrupt import exit_code

if TYPE_CHECKING:
    from archlab.bench.figures import Figures
    from archlab.timing.points import Point


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(context_settings=OPEN)(bench)


def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Presets, YAML files, config.json, run folders; overrides follow the model that they are for, or come "
            "first, for all.",
            autocompletion=completion.complete_model_or_override,
        ),
    ],
    compile: Annotated[
        bool, typer.Option("--compile", help="torch.compile first; its seconds are told apart.")
    ] = False,
    graphs: Annotated[
        bool, typer.Option("--graphs", help="Decode steps as CUDA graphs, with a static KV cache.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option("--backend", help="Attention that must run: sdpa,flash,efficient,cudnn,math,flex.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Of weights and arithmetic: bf16,fp32.")] = None,
    phases: Annotated[str | None, typer.Option("--phases", help="What is timed: prefill,decode,train.")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Sequences at once: 1,8.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="Tokens of each prompt: 512,2k.")] = None,
    in_turns: Annotated[
        bool,
        typer.Option(
            "--interleave", help="Points take turns, A B C, B C A, in bench.processes each; ratios to the first."
        ),
    ] = False,
    explain: Explain = None,
    form: Format = "table",
    as_json: Json = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Time prefill, decoding and training, beside the ceilings of this device measured in the same run.

    archlab bench gqa --batch 1,8 --context 512,2k

    archlab bench bench=full minimind minimind model/attention=mha --interleave

    archlab bench llama-3.2-1b --dtype bf16 --backend flash,math --compile --phases decode
    """
    from archlab.timing.document import document
    from archlab.timing.run import Timed

    done: list[Timed] = []

    def answer() -> Document:
        from archlab.timing.points import Asked, points
        from archlab.timing.run import fresh_folder, time_points
        from archlab.units import read_count, read_tokens

        asked = Asked(
            models,
            dtypes=listed(dtype, str),
            backends=listed(backend, str),
            batches=listed(batch, lambda text: read_count(text, "batch")),
            contexts=listed(context, lambda text: read_tokens(text, "context")),
            phases=listed(phases, str),
            compile=compile,
            graphs=graphs,
        )
        done.append(time_points(points(asked), in_turns, _tell, fresh_folder()))
        return document(done[0])

    try:
        print_answer(answer, form, as_json, explain)
    except RequestError:
        if done and not as_json:  # a name that no figure has is found out when all is timed
            print_answer(lambda: document(done[0]), form, as_json, None)
        raise
    if done[0].interrupted:
        raise typer.Exit(exit_code())
    if not done[0].ok:
        raise typer.Exit(1)


def _tell(point: Point, made: Figures) -> None:
    """A line on stderr for a phase that is done."""
    from archlab.report.text import clean, digits

    for figure_name, figure in made.items():
        phase, _, what = figure_name.partition("_")
        if what != "tok_s":
            continue
        if figure.value is None:
            said = figure.reason if figure.status == "ok" else f"{figure.status}: {figure.reason}"
        else:
            spread = f" ({digits(figure.low)} to {digits(figure.high)})" if figure.low and figure.high else ""
            said = f"{digits(figure.value)} tok/s{spread}"
        stdout.say(clean(f"{point.called(point.labels)}  {phase}  {said}"))
