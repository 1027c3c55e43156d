"""archlab lab attention: the weights of one head, query by query, and whether they are what they must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from archlab import model as models
from archlab.components.span import Span
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.document import Column, Document, Heatmap, Row, Table
from archlab.errors import ConfigError
from archlab.lab.catalog import Attention
from archlab.lab.heard import hear
from archlab.lab.setup import Setup, cut

ROUNDING = 1e-5
"""How far a sum of float32 weights may be from 1."""

COLUMNS = (
    Column("query", "1"),
    Column("token", "1", "", "its id"),
    Column("keys", "1", "exact", "that the mask lets it see"),
    Column("hidden", "1", "measured", "sum of the weights on the other keys"),
    Column("sum", "1", "measured", "of its weights"),
    Column("most", "1", "measured", "its largest weight"),
    Column("at", "1", "measured", "the key that has it"),
    Column("perplexity", "1", "measured", "e^entropy: how many equal weights would be as undecided"),
)


def run(setup: Setup) -> Document:
    """The weights of a head in a real pass, row by row and as a picture."""
    asked: Attention = setup.settings
    decoder, what = _decoder(setup)
    _check("layer", asked.layer, decoder.spec.n_layers)
    _check("head", asked.head, decoder.spec.layers[asked.layer].attention.n_heads)
    ids = _ids(setup, decoder)
    heard = hear(decoder, ids, asked.layer)
    with torch.inference_mode():
        weights = heard.weights()[0, asked.head].double()
    visible = _visible(decoder, asked.layer, ids.shape[1])
    rows = [_row(query, ids, weights[query], visible[query]) for query in range(ids.shape[1])]
    about = f"layer {asked.layer}, head {asked.head}, {decoder.spec.layers[asked.layer].attention.choice}, fp32"
    return Document(
        command="lab attention",
        model=setup.spec.name,
        verdict=_seen(rows, heard.sinks is not None),
        tables=[Table("rows", "Rows", COLUMNS, rows, about)],
        assumptions={"tried": what, "tokens": "given" if asked.ids else "random", "seed": setup.seed},
        charts=[Heatmap("weights", "Attention weights", "key", "query", _shown(weights, visible))],
    )


def _decoder(setup: Setup) -> tuple[Decoder, str]:
    """The model with weights of a file, whole; or as many of its layers as are needed, random."""
    weights = setup.request.run.weights
    if weights is not None:
        return models.build(setup.spec, weights=weights).eval(), f"all layers, weights of {weights}"
    if setup.settings.layer >= setup.spec.n_layers:
        _check("layer", setup.settings.layer, setup.spec.n_layers)
    tried = cut(setup.spec, min(setup.spec.n_layers, setup.settings.layer + 1))
    return build(tried.spec, seed=setup.seed).eval(), tried.what


def _check(key: str, value: int, count: int) -> None:
    if value >= count:
        raise ConfigError(key, f"{value} is not there; there are {count:,}, 0 to {count - 1:,}", value=value)


def _ids(setup: Setup, decoder: Decoder) -> Tensor:
    """The ids that were given, or random ones: [1, n]. Raises ConfigError for one that is no token."""
    given = setup.settings.ids
    if given is None:
        return setup.ids(decoder.spec, 1, setup.settings.tokens)
    _check("ids", max(given), decoder.spec.vocab_size)
    decoder.spec.check_length(len(given))
    return torch.tensor([given])


def _visible(decoder: Decoder, layer: int, tokens: int) -> Tensor:
    """Bool [n, n]: what the layer's mask lets each query see."""
    places = Span(0, tokens).positions(torch.device("cpu"))
    return decoder.spec.layers[layer].attention.locality.visible(places, places)


def _row(query: int, ids: Tensor, weights: Tensor, visible: Tensor) -> Row:
    row: dict[str, Any] = {"query": query, "token": int(ids[0, query]), "keys": int(visible.sum())}
    row |= {"hidden": float(weights[~visible].sum()), "sum": float(weights.sum())}
    row |= {"most": float(weights.max()), "at": int(weights.argmax())}
    return {**row, "perplexity": float(torch.special.entr(weights / weights.sum()).sum().exp())}


def _shown(weights: Tensor, visible: Tensor) -> list[list[float | None]]:
    return [
        [float(weight) if seen else None for weight, seen in zip(row, there, strict=True)]
        for row, there in zip(weights, visible, strict=True)
    ]


def _seen(rows: Sequence[Row], sinks: bool) -> str:
    """Whether rows sum to 1, what is on hidden keys, and how undecided the last query is."""
    sums, hidden = [row["sum"] for row in rows], max(row["hidden"] for row in rows)
    whole = all(abs(total - 1) <= ROUNDING for total in sums)
    total = f"all {len(rows)} rows sum to 1" if whole else f"rows sum to {min(sums):.3f} to {max(sums):.3f}"
    total += ", the rest falls to the sink" if sinks and not whole else ""
    keys = sum(row["keys"] for row in rows)
    mask = "no weight lies" if hidden == 0 else f"up to {hidden:.2g} lies"
    last = rows[-1]
    seen = f"{keys:,} of {len(rows) ** 2:,} pairs are visible, {mask} on the others"
    return f"{total}; {seen}; the last query has a perplexity of {last['perplexity']:.1f} over {last['keys']} keys"
