"""archlab lab dropout: what goes into dropout and what comes out, at each place, in training and in eval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from archlab.components.dropout.spec import PLACES
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import replace
from archlab.lab.catalog import Dropout
from archlab.lab.heard import hear
from archlab.lab.setup import Setup, cut, each_layer, variant
from archlab.lab.streams import rms
from archlab.lab.words import listed

DRAWS = (1, 4, 16, 64)
"""Draws over which the chart takes means; the table is of the most."""

Curve = list[tuple[float, float]]

COLUMNS = (
    Column("place"),
    Column("model", "1", "", "the model's own rate there"),
    Column("rate", "1", "", "the one that is tried: the model's, else p"),
    Column("zeros", "%", "measured", "elements that training made 0, on average over the draws, as what follows"),
    Column("mean", "1", "measured", "what is kept of the input: output along it, over its own size"),
    Column("square", "1", "measured", "mean square of the output over that of the input; 1 / (1 - rate) is expected"),
    Column("training", "", "", "whether two training passes end equal, bit for bit"),
    Column("eval", "", "", "whether two eval passes do, and equal the model without dropout"),
)


def run(setup: Setup) -> Document:
    """Each place by itself: the tensor before and after it in a training pass, and what becomes of whole passes."""
    asked: Dropout = setup.settings
    tried = cut(setup.spec, 1)
    decoder = build(_dropping(tried.spec, {}), seed=setup.seed)
    ids = setup.ids(tried.spec, 1, asked.tokens)
    rows, means = [], {}
    for place in PLACES:
        own = _own_rate(setup.spec, place)
        made = variant(decoder, _dropping(tried.spec, {place: own or asked.p}), setup.seed)
        row, means[place] = _row(setup, decoder, made, ids, place)
        rows.append({"place": place, "model": own, "rate": own or asked.p, **row})
    return Document(
        command="lab dropout",
        model=setup.spec.name,
        verdict=_seen(rows),
        tables=[Table("dropout", "Places", COLUMNS, rows, f"{asked.tokens:,} tokens, {DRAWS[-1]} draws, fp32")],
        assumptions={"tried": tried.what, "model": setup.spec.dropout.choice, "seed": setup.seed},
        charts=[Chart("Mean of draws against the input", "draws", "distance over size", means, log_x=True, log_y=True)],
    )


def _own_rate(spec: DecoderSpec, place: str) -> float:
    return float(getattr(spec.layers[0].dropout if place in ("attention", "residual", "ffn") else spec.dropout, place))


def _dropping(spec: DecoderSpec, rates: dict[str, float]) -> DecoderSpec:
    """The model that drops with these rates and nowhere else."""
    dropout = replace(spec.dropout.off, **rates)
    return replace(each_layer(spec, lambda layer: replace(layer, dropout=dropout)), dropout=dropout)


def _row(setup: Setup, plain: Decoder, made: Decoder, ids: Tensor, place: str) -> tuple[dict[str, Any], Curve]:
    """What a place does to its tensor over many draws, and how far the mean of some is from what went in."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(setup.seed)
        before, drop = _at_place(made, ids, place)
        made.train()
        draws = [drop() for _ in range(DRAWS[-1])]
        there, size = before != 0, before.square().mean()
        zeros = [float(((after == 0) & there).sum() / there.sum()) for after in draws]
        along = [float((after * before).mean() / size) for after in draws]
        squares = [float(after.square().mean() / size) for after in draws]
        row: dict[str, Any] = {"zeros": 100 * fmean(zeros), "mean": fmean(along), "square": fmean(squares)}
        row["training"] = "equal" if torch.equal(made(ids), made(ids)) else "differ"
        made.eval()
        same = torch.equal(made(ids), made(ids)) and torch.equal(made(ids), plain.eval()(ids))
        row["eval"] = "equal" if same else "differ"
        gaps = [(float(n), rms(torch.stack(draws[:n]).mean(0) - before) / rms(before)) for n in DRAWS]
        return row, gaps


def _at_place(decoder: Decoder, ids: Tensor, place: str) -> tuple[Tensor, Callable[[], Tensor]]:
    """What goes into a place in an eval pass, and what drops of it as the module does, anew at each call."""
    if place == "attention":
        heard = hear(decoder, ids)
        heard.module.eval()
        return heard.weights(), heard.weights
    module, found = _module(decoder, place), []
    hook = module.register_forward_hook(lambda _, given, y: found.append(given[0]))
    decoder.eval()(ids)
    hook.remove()
    return found[0], lambda: module(found[0])


def _module(decoder: Decoder, place: str) -> nn.Module:
    """The nn.Dropout of a place, of the first layer where it is inside of layers. Raises RequestError."""
    layer = decoder.layers[0]
    parts = {"embedding": (decoder, "embedding_dropout"), "residual": (layer.attention, "residual_dropout")}
    parts |= {"ffn": (layer.ffn, "dropout"), "output": (decoder, "output_dropout")}
    owner, name = parts[place]
    module = getattr(owner, name, None)
    if not isinstance(module, nn.Dropout):
        raise RequestError(f"{type(owner).__name__} has no {name}; there is nothing to look at for {place}")
    return module


def _seen(rows: Sequence[Row]) -> str:
    """What was made 0 and what stayed, over all places."""
    zeros, kept, squares = ([row[name] for row in rows] for name in ("zeros", "mean", "square"))
    stays = f"{min(zeros):.1f} to {max(zeros):.1f} % become 0, {min(kept):.3f} to {max(kept):.3f} of the mean stays"
    grown = f"the mean square becomes {min(squares):.3f} to {max(squares):.3f} times as large"
    own = [row["place"] for row in rows if row["model"]]
    where = f"the model drops at {listed(own)}" if own else "the model itself drops nowhere"
    return f"{stays}, {grown}; {_told(rows, 'training')}, {_told(rows, 'eval')}; {where}"


def _told(rows: Sequence[Row], mode: str) -> str:
    """`two eval passes are equal`."""
    differ = [row["place"] for row in rows if row[mode] == "differ"]
    if not differ:
        return f"two {mode} passes are equal"
    return f"two {mode} passes differ" if len(differ) == len(rows) else f"two {mode} passes differ by {listed(differ)}"
