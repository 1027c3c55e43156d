"""archlab lab order: the tokens shuffled, with and without the mask, for each way to know positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from archlab.components.locality import Locality
from archlab.components.position.module import NoPosition
from archlab.components.position.spec import Learned, Position
from archlab.components.span import Span, TensorSpan
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import replace
from archlab.lab.catalog import Order
from archlab.lab.setup import Setup, Tried, cut, each_layer, variant
from archlab.lab.streams import rms, streams
from archlab.lab.words import listed, others
from archlab.registry import choices

SAME = 1e-9
"""Largest gap, as a share of the stream's size, that float64 leaves between outputs that are equal."""
MASKS = ("none", "the model's")

COLUMNS = (
    Column("position", "", "", "the choice; options are the model's where it has them"),
    Column("mask", "", "", "none: every query sees every key"),
    Column("gap", "1", "measured", "largest difference between the output of the shuffled tokens and the shuffled one"),
    Column("only_permuted", "", "", f"whether that is below {SAME:g} of the stream's size"),
)


def run(setup: Setup) -> Document:
    """Every position choice, with no mask and with the model's."""
    asked: Order = setup.settings
    tried = cut(setup.spec, asked.layers, "fp64", copies=1)
    decoder = build(_short(tried.spec, asked.tokens), dtype="fp64", seed=setup.seed).eval()
    rows: list[Row] = []
    problems: list[str] = []
    drawn: dict[str, list[tuple[float, float]]] = {}
    for name in choices("position"):
        for row, gaps in _shuffled(setup, tried, decoder, name, problems):
            rows.append(row)
            if name in ("none", tried.spec.position.choice):
                drawn[f"{name}, mask: {row['mask']}"] = [(float(place), gap) for place, gap in enumerate(gaps)]
    table = Table("order", "Shuffled tokens", COLUMNS, rows, "gap over the RMS of the stream after the last layer")
    return Document(
        command="lab order",
        model=setup.spec.name,
        verdict=_seen(rows),
        tables=[table],
        assumptions={"tried": f"{tried.what}, float64", "tokens": asked.tokens, "seed": setup.seed},
        charts=[Chart("Gap of each token's output", "place in the shuffled text", "gap", drawn)],
        notes=problems,
    )


def _shuffled(
    setup: Setup, tried: Tried, decoder: Decoder, name: str, problems: list[str]
) -> Iterator[tuple[Row, list[float]]]:
    """One position choice with each mask, and the gap of each token; problems: why it cannot be had."""
    try:
        spec = _short(tried.also(_placed(setup, name)), setup.settings.tokens)
        ids = setup.ids(spec, 1, setup.settings.tokens)
        made = variant(decoder, spec.on_backend("sdpa"), setup.seed).eval()  # flex attention asks for no mask
    except RequestError as error:
        problems.append(f"position {name} cannot be had: {error}")
        return
    order = torch.randperm(ids.shape[1], generator=setup.random())
    for mask in MASKS:
        with _unmasked(made) if mask == "none" else nullcontext():
            gaps = _gaps(made, ids, order)
        told = "yes" if max(gaps) <= SAME else "no"
        yield {"position": name, "mask": mask, "gap": max(gaps), "only_permuted": told}, gaps


def _placed(setup: Setup, name: str) -> DecoderSpec:
    """The model with a position choice in every layer, those too that name one; with its own choice as it is."""
    spec = setup.swapped(position=name)
    if name == setup.spec.position.choice:
        return spec
    position = _learned_for(spec.position, setup.settings.tokens)
    return each_layer(replace(spec, position=position), lambda layer: replace(layer, position=position))


def _learned_for(position: Position, tokens: int) -> Position:
    """A position choice whose rows, if it learns any, are of so many tokens or fewer."""
    return replace(position, context=min(position.context, tokens)) if isinstance(position, Learned) else position


def _short(spec: DecoderSpec, tokens: int) -> DecoderSpec:
    """The model with tables of so many tokens or fewer: those of a long context outweigh the layers that are tried."""
    return replace(spec, context=min(spec.context, tokens))


@torch.no_grad()
def _gaps(decoder: Decoder, ids: Tensor, order: Tensor) -> list[float]:
    straight, shuffled = streams(decoder, ids)[-1], streams(decoder, ids[:, order])[-1]
    return ((shuffled - straight[:, order]).abs().amax((0, 2)) / rms(straight)).tolist()


@contextmanager
def _unmasked(decoder: Decoder) -> Iterator[None]:
    """Every query sees every key; what positions add to the scores stays."""
    for position in decoder.positions:
        position.mask = _all_seen(position)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for position in decoder.positions:
            del position.mask


def _all_seen(position: NoPosition) -> Any:
    def mask(span: Span | TensorSpan, locality: Locality, device: torch.device) -> Tensor:
        queries = span.positions(device)
        if position.biases:
            return position.bias(queries, queries)
        return torch.ones(len(queries), len(queries), dtype=torch.bool, device=device)

    return mask


def _seen(rows: Sequence[Row]) -> str:
    """Which choices leave the output only permuted, with each mask."""
    return "; ".join(_told(mask, [row for row in rows if row["mask"] == mask]) for mask in MASKS)


def _told(mask: str, rows: Sequence[Row]) -> str:
    free = [row["position"] for row in rows if row["only_permuted"] == "yes"]
    bound = len(rows) - len(free)
    which = "without a mask" if mask == "none" else "with the model's mask"
    if not free:
        return f"{which} order shows with each of the {bound} position choices"
    rest = f"; with {others(bound)} order shows" if bound else ""
    return f"{which} the output is only permuted with position {listed(free)}{rest}"
