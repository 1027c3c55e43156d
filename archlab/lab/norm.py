"""archlab lab norm: how the residual stream and its gradient grow with depth, for each norm and placement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from archlab.components.hosted import is_hosted, own_tensors
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.lab.catalog import Norm
from archlab.lab.setup import Setup, Tried, cut, variant
from archlab.lab.streams import rms, trained
from archlab.registry import choices
from archlab.report.text import digits

Curve = list[float]
"""RMS of the stream as it enters the first layer, and after each layer."""


def run(setup: Setup) -> Document:
    """Every norm in every placement, on the same weights."""
    asked: Norm = setup.settings
    tried = cut(setup.spec, asked.layers)
    decoder = build(tried.spec, seed=None)
    unit_weights(decoder, asked.gain, setup.random())
    rows: list[Row] = []
    problems: list[str] = []
    curves: dict[tuple[str, str], Curve] = {}
    for norm in choices("norm"):
        for block in choices("block"):
            try:
                row, curves[norm, block] = _row(setup, tried, decoder, norm, block)
                rows.append(row)
            except RequestError as error:
                problems.append(f"{norm} in {block} cannot be had: {error}")
    own = tried.spec.layers[0]
    layers = tried.spec.n_layers
    table = Table("norm", "Activations against depth", _columns(layers), rows, f"{layers} layers, fp32")
    drawn = [name for name in curves if name[1] == own.block.choice or name[0] == own.norm.choice]
    return Document(
        command="lab norm",
        model=setup.spec.name,
        verdict=_seen(rows, own.norm.choice, own.block.choice, layers),
        tables=[table],
        assumptions={
            "tried": tried.what,
            "tokens": asked.tokens,
            "weights": f"normal, {asked.gain:g} / sqrt(inputs); embedding {1:g}; the same for all",
            "seed": setup.seed,
        },
        charts=[_chart({f"{norm}, {block}": curves[norm, block] for norm, block in drawn})],
        notes=problems,
    )


def unit_weights(decoder: Decoder, gain: float, generator: torch.Generator) -> None:
    """Matrices that keep the size of what they are given, times `gain` (LeCun et al. 1998, section 4.6).

    The embedding has a standard deviation of 1; biases are 0, norms the identity. Modules of others keep what their
    constructors gave them.
    """
    others = {id(held) for module in decoder.modules() if is_hosted(module) for held in own_tensors(module).values()}
    for name, module in decoder.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) in others:
                continue
            with torch.no_grad():
                if parameter.dim() > 1 and not own.endswith("bias"):
                    fan_in = 1 if name == "embedding" else parameter.shape[-1]
                    parameter.normal_(0.0, gain * fan_in**-0.5 if fan_in > 1 else 1.0, generator=generator)
                else:
                    parameter.zero_()
        if name.endswith("norm") and hasattr(module, "reset_parameters"):
            module.reset_parameters()


def _columns(layers: int) -> list[Column]:
    shown = [Column(f"layer {layer}", "1", "measured", "RMS of the stream after it") for layer in _marked(layers)]
    gradient = Column("gradient", "1", "measured", "on the stream after layer 1, over that after the last layer")
    finite = Column("finite", "", "", "the last layer whose numbers float32 holds; - where it holds all")
    return [Column("norm"), Column("block"), *shown, gradient, finite]


def _marked(layers: int) -> list[int]:
    """1, 2, 4, .. and the last layer."""
    return [*(2**power for power in range(layers.bit_length()) if 2**power < layers), layers]


def _row(setup: Setup, tried: Tried, decoder: Decoder, norm: str, block: str) -> tuple[Row, Curve]:
    """A norm in a placement, and its curve as far as it is finite."""
    spec = tried.also(setup.swapped(norm=norm, block=block))
    made = variant(decoder, spec, setup.seed)
    passed = trained(made, setup.ids(spec, 1, setup.settings.tokens + 1), weights=False)
    curve = [rms(stream) for stream in passed.streams]
    layers = spec.n_layers
    held = next((layer - 1 for layer, size in enumerate(curve) if not math.isfinite(size)), None)
    row: dict[str, Any] = {f"layer {layer}": _finite(curve[layer]) for layer in _marked(layers)}
    back = passed.gradients[1] / passed.gradients[-1] if passed.gradients[-1] else math.nan
    row = {"norm": norm, "block": block, **row, "gradient": _finite(back), "finite": held}
    return row, [size for size in curve if math.isfinite(size)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _seen(rows: Sequence[Row], norm: str, block: str, layers: int) -> str:
    """Each norm in the model's own placement, then the other placements of the model's own norm."""
    norms = [f"{row['norm']} {_grown(row, layers)}" for row in rows if row["block"] == block]
    others = [f"{row['block']} {_grown(row, layers)}" for row in rows if row["norm"] == norm and row["block"] != block]
    return f"RMS over {layers} layers of {block}: {', '.join(norms)}; {norm} in {', '.join(others)}"


def _grown(row: Row, layers: int) -> str:
    """`1.249 to 2.581`."""
    last = row[f"layer {layers}"]
    return f"overflows after layer {row['finite']}" if last is None else f"{digits(row['layer 1'])} to {digits(last)}"


def _chart(curves: dict[str, Curve]) -> Chart:
    series = {name: list(enumerate(curve)) for name, curve in curves.items() if curve}
    return Chart("Size of the stream", "layer", "RMS", series, log_y=True)
