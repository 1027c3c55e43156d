"""archlab lab residual: the skip path scaled, what is left of the input at each layer, and of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from archlab.components.attention.module import Step
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.frozen import replace
from archlab.lab.catalog import Residual
from archlab.lab.setup import Setup, cut, each_layer, variant
from archlab.lab.streams import cosine, rms, streams, trained
from archlab.report.text import digits

COLUMNS = (
    Column("scale", "", "", "factor of the skip path, `residual_scale`"),
    Column("layer", "1", "", "0: the stream as it enters the first"),
    Column("skip", "1", "measured", "size that the input has here with all branches taken away, over that at layer 0"),
    Column("cosine", "1", "measured", "between the stream after this layer and the one that entered, token by token"),
    Column("rms", "1", "measured", "of the stream"),
    Column("gradient", "1", "measured", "norm of the loss's gradient on this stream, over that after the last layer"),
    Column("weight_gradient", "1", "measured", "norm of the gradient on this layer's weights, over the last layer's"),
)


def run(setup: Setup) -> Document:
    """The stream and its gradient at each layer, for each scale."""
    asked: Residual = setup.settings
    tried = cut(setup.spec, asked.layers)
    decoder = build(tried.spec, seed=setup.seed)
    rows = [row for scale in asked.scales for row in _rows(setup, decoder, scale)]
    return Document(
        command="lab residual",
        model=setup.spec.name,
        verdict=_seen(asked.scales, rows),
        tables=[Table("residual", "What reaches each layer, and comes back to it", COLUMNS, rows)],
        assumptions={"tried": tried.what, "tokens": asked.tokens, "block": tried.spec.block.choice, "seed": setup.seed},
        charts=[_chart("Cosine with the input", "cosine", rows), _chart("Gradient that comes back", "gradient", rows)],
    )


def blocks(spec: DecoderSpec, **changes: Any) -> DecoderSpec:
    """The model whose layers all have these options of the residual layout."""

    def change(layer: LayerSpec) -> LayerSpec:
        return replace(layer, block=replace(layer.block, **changes))

    return replace(each_layer(spec, change), block=replace(spec.block, **changes))


def _rows(setup: Setup, decoder: Decoder, scale: float) -> list[Row]:
    made = variant(decoder, blocks(decoder.spec, residual_scale=scale), setup.seed)
    ids = setup.ids(made.spec, 1, setup.settings.tokens + 1)
    passed, alone = trained(made, ids), _skipped(made, ids[:, :-1])
    top, weights = passed.gradients[-1], passed.weights[-1]
    rows: list[Row] = []
    for layer, stream in enumerate(passed.streams):
        row: dict[str, Any] = {"scale": scale, "layer": layer, "skip": alone[layer] / alone[0]}
        row |= {"cosine": cosine(passed.streams[0], stream), "rms": rms(stream)}
        row["gradient"] = passed.gradients[layer] / top if top else None
        row["weight_gradient"] = passed.weights[layer - 1] / weights if layer and weights else None
        rows.append(row)
    return rows


class _Nothing(nn.Module):
    """In the place of a branch that is taken away."""

    def forward(self, x: Tensor, *step: Step) -> Tensor:
        return torch.zeros_like(x)


@torch.no_grad()
def _skipped(decoder: Decoder, ids: Tensor) -> list[float]:
    """The size of the stream at each layer where nothing is added to it; the decoder has lost its branches then."""
    for layer in decoder.layers:
        layer.attention, layer.ffn = _Nothing(), _Nothing()
    return [rms(stream) for stream in streams(decoder, ids)]


def _seen(scales: Sequence[float], rows: Sequence[Row]) -> str:
    """Of each scale, what is left of the input at the last layer, and of the gradient there at the first."""
    told = []
    for scale in scales:
        own = [row for row in rows if row["scale"] == scale]
        first, last = own[1], own[-1]
        there = f"skip paths alone bring {digits(last['skip'])} of the input to layer {last['layer']}"
        times = "none of" if not first["gradient"] else f"{digits(first['gradient'])} times"
        back = f"layer 1 gets {times} the gradient of layer {last['layer']}"
        told.append(f"scale {scale:g}: {there} (cosine {last['cosine']:.3f}), {back}")
    return "; ".join(told)


def _chart(title: str, name: str, rows: Sequence[Row]) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[name] is not None:
            series.setdefault(f"scale {row['scale']:g}", []).append((row["layer"], row[name]))
    return Chart(title, "layer", name, series, log_y=name == "gradient")
