"""archlab lab flash: the explicit softmax against torch's fused attention, and the online softmax block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from archlab.bench.backends import seen
from archlab.components.attention.module import Step
from archlab.components.span import Span
from archlab.decoder.build import build
from archlab.decoder.dtype import torch_dtype
from archlab.decoder.generate import evaluating
from archlab.decoder.module import Decoder
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.lab.catalog import Flash
from archlab.lab.heard import Heard, hear
from archlab.lab.memory import peak
from archlab.lab.race import race
from archlab.lab.setup import Setup, cut
from archlab.report.text import digits
from archlab.units import dtype_bytes, show_bytes

SECONDS = 0.8
"""Budget of the clock at each length."""
LENGTHS = (256, 512, 1024, 2048)
"""Tokens of the sequence, where no others are asked for."""
HELD = 5
"""Matrices of scores in float32 that the explicit softmax holds at once, at most."""
WAYS = {"explicit": "math", "fused": "sdpa"}

MEASURED = (
    Column("tokens", "tokens"),
    Column("scores", "B", "exact", "n^2 of all heads of one layer, in the dtype that is timed"),
    Column("gap", "1", "measured", "largest difference between the outputs"),
    Column("explicit_peak", "B", "measured", "most that was allocated at once, for a mask too"),
    Column("fused_peak", "B", "measured", "most that was allocated at once, for a mask too"),
    Column("explicit", "ms", "measured", "median"),
    Column("fused", "ms", "measured", "median"),
    Column("fused_ran", "", "", "what torch's fused attention took, as its profiler saw it"),
)
COUNTED = (
    Column("context", "tokens"),
    Column("a_head", "B", "exact", "n^2 x bytes"),
    Column("a_layer", "B", "exact", "of all query heads"),
    Column("all_layers", "B", "exact", "where they are all kept, as for a backward pass"),
)
BLOCKS = (
    Column("block", "1"),
    Column("keys"),
    Column("block_max", "1", "measured", "of its scores; - where all are hidden"),
    Column("max", "1", "measured", "of all scores so far"),
    Column("rescale", "1", "measured", "e^(old max - new max): what the sum and the output so far are multiplied by"),
    Column("sum", "1", "measured", "of e^(score - max) so far"),
    Column("gap", "1", "measured", "of the output so far, divided by the sum, to the whole softmax's"),
)


def run(setup: Setup) -> Document:
    """Both ways at each length; the matrix that one of them holds; one query's softmax block by block."""
    asked: Flash = setup.settings
    device, dtype = setup.device, setup.device.native_dtype
    tried = cut(setup.spec, 1, dtype)
    decoder = build(tried.spec, device.name, dtype, setup.seed)
    lengths = sorted(asked.lengths or {setup.within(tokens) for tokens in LENGTHS})
    setup.spec.check_length(max(*lengths, asked.keys))
    heard = hear(decoder, setup.ids(tried.spec, 1, 2).to(device.name))
    rows = [_row(setup, decoder, heard, tokens) for tokens in lengths]
    blocks = list(_blocks(setup, decoder, heard))
    return Document(
        command="lab flash",
        model=setup.spec.name,
        verdict=f"{_seen(rows)}; {_seen_blocks(blocks)}",
        tables=[
            Table("flash", "Explicit and fused", MEASURED, rows, f"one layer, one sequence, {dtype}, in turn"),
            Table("scores", "The matrix of scores", COUNTED, _counted(setup), asked.dtype),
            Table("online", "Online softmax of the last query, head 0", BLOCKS, blocks, f"blocks of {asked.block}"),
        ],
        assumptions={
            "heads": f"{heard.q.shape[1]} of {heard.q.shape[3]}, {heard.k.shape[1]} for keys and values, unit normal",
            "device": device.describe()["device_name"],
            "seed": setup.seed,
        },
        charts=[_chart(rows), _climb(blocks)],
    )


def _heads(setup: Setup, heard: Heard, tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Unit normal queries, keys and values of the layer's shapes."""
    random = setup.random()
    shapes = [(*heads.shape[:2], tokens, heads.shape[3]) for heads in (heard.q, heard.k, heard.v)]
    q, k, v = (torch.randn(shape, generator=random).to(setup.device.name, dtype) for shape in shapes)
    return q, k, v


def _step(decoder: Decoder, tokens: int) -> Step:
    """What the first layer's attention is told of a pass over so many tokens: its mask, where it has one."""
    position = decoder.positions[decoder.position_of[0]]
    position.reach(tokens)
    locality, device = decoder.spec.layers[0].attention.locality, decoder.embedding.weight.device
    return Step(sight=position.mask(Span(0, tokens), locality, device))


def _row(setup: Setup, decoder: Decoder, heard: Heard, tokens: int) -> Row:
    """Raises RequestError where the explicit softmax does not fit."""
    heads, dtype = heard.q.shape[1], setup.device.native_dtype
    needed, room = HELD * 4 * heads * tokens**2, setup.device.available()
    if needed > room:
        problem = f"the explicit softmax of {tokens:,} tokens takes about {show_bytes(needed)}"
        raise RequestError(f"{problem}, and there are {show_bytes(room)}; lengths= takes shorter ones")
    with evaluating(decoder):
        q, k, v = _heads(setup, heard, tokens, torch_dtype(dtype))
        step = _step(decoder, tokens)

        def way(backend: str, step: Step) -> Tensor:
            heard.module.backend = backend
            return heard.attend(q, k, v, step)

        calls = {name: partial(way, backend, step) for name, backend in WAYS.items()}
        whole = {name: partial(_masked, decoder, tokens, partial(way, backend)) for name, backend in WAYS.items()}
        gap = float((calls["explicit"]() - calls["fused"]()).abs().max())
        peaks = {f"{name}_peak": peak(call, setup.device) for name, call in whole.items()}
        ran = ", ".join(seen(calls["fused"], 1))
        timed = race(calls, setup.device, SECONDS, 3)
    row: dict[str, Any] = {"tokens": tokens, "scores": heads * tokens**2 * dtype_bytes(dtype), "gap": gap, **peaks}
    row["fused_ran"] = ran
    return {**row, **{name: 1e3 * timed.timing(name).median for name in calls}}


def _masked(decoder: Decoder, tokens: int, way: Callable[[Step], Tensor]) -> Tensor:
    """The attention and the mask that it needs, made anew: a model makes it once a pass, for all layers."""
    return way(_step(decoder, tokens))


def _counted(setup: Setup) -> list[Row]:
    asked: Flash = setup.settings
    each, layers = dtype_bytes(asked.dtype), setup.spec.layers
    rows: list[Row] = []
    for context in sorted(asked.contexts):
        head = context**2 * each
        whole = sum(layer.attention.n_heads for layer in layers)
        one = layers[0].attention.n_heads
        rows.append({"context": context, "a_head": head, "a_layer": one * head, "all_layers": whole * head})
    return rows


def _blocks(setup: Setup, decoder: Decoder, heard: Heard) -> Iterator[Row]:
    """The last query's softmax, block by block. Milakov and Gimelshein 2018; Dao et al. 2022, algorithm 1."""
    asked: Flash = setup.settings
    with evaluating(decoder):
        scores, values, sink = _last_row(setup, decoder, heard, asked.keys)
    whole = _softmax(scores, sink) @ values
    most, total, output = (-math.inf, 0.0, torch.zeros_like(whole)) if sink is None else (sink, 1.0, 0.0 * whole)
    for number, start in enumerate(range(0, asked.keys, asked.block)):
        part = scores[start : start + asked.block]
        highest = float(part.max())
        new = max(most, highest)
        rescale = math.exp(most - new) if most > -math.inf else 0.0
        weights = (part - new).exp() if new > -math.inf else torch.zeros_like(part)
        total = rescale * total + float(weights.sum())
        output = rescale * output + weights @ values[start : start + asked.block]
        most = new
        gap = float((output / total - whole).abs().max()) if total else None
        keys = f"{start} to {start + len(part) - 1}"
        row: dict[str, Any] = {"block": number, "keys": keys, "block_max": _finite(highest), "max": _finite(most)}
        yield {**row, "rescale": rescale, "sum": total, "gap": gap}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _last_row(setup: Setup, decoder: Decoder, heard: Heard, keys: int) -> tuple[Tensor, Tensor, float | None]:
    """Scores [m] of the last query of head 0, capped and masked as the layer does, its values [m, hv], its sink."""
    q, k, v = (heads[0, 0].cpu().double() for heads in _heads(setup, heard, keys, torch.float32))
    scores, mask, cap = q[-1] @ k.T * heard.scale, _step(decoder, keys).mask, heard.module.logit_cap
    if cap is not None:
        scores = cap * (scores / cap).tanh()
    if mask is not None:
        last = mask.cpu()[..., -1, :].reshape(-1, keys)[0]
        scores = scores.masked_fill(~last, -math.inf) if last.dtype == torch.bool else scores + last
    return scores, v, None if heard.sinks is None else float(heard.sinks[0])


def _softmax(scores: Tensor, sink: float | None) -> Tensor:
    """Over the keys, the sink in the denominator."""
    if sink is None:
        return scores.softmax(-1)
    return torch.cat((scores, scores.new_tensor([sink]))).softmax(-1)[:-1]


def _seen(rows: Sequence[Row]) -> str:
    """How the outputs, the peaks and the times compare from the shortest to the longest."""
    first, last = rows[0], rows[-1]
    same = f"outputs within {max(row['gap'] for row in rows):.1e}"
    speed = last["explicit"] / last["fused"]
    ran = last["fused_ran"]
    time = f"at {last['tokens']:,} tokens fused ({ran}) takes 1/{digits(speed)} of the time"
    if first is last or None in (first["explicit_peak"], first["fused_peak"]):
        return f"{same}; {time}"
    grown = [f"{way} {digits(last[f'{way}_peak'] / first[f'{way}_peak'])} times" for way in WAYS]
    length = f"{digits(last['tokens'] / first['tokens'])} times the tokens take"
    return f"{same}; {length} {' and '.join(grown)} the memory; {time}"


def _seen_blocks(rows: Sequence[Row]) -> str:
    rescaled = sum(0 < row["rescale"] < 1 for row in rows)
    rose = f"the running maximum rose {rescaled} times after the first of {len(rows)} blocks"
    return f"online, {rose}, and the output ends {rows[-1]['gap']:.1e} from the whole softmax's"


def _chart(rows: Sequence[Row]) -> Chart:
    series = {
        name: [(float(row["tokens"]), float(row[key])) for row in rows if row[key]]
        for name, key in (("explicit", "explicit_peak"), ("fused", "fused_peak"), ("the scores alone", "scores"))
    }
    return Chart("Memory", "tokens", "bytes", series, log_x=True, log_y=True, unit="B")


def _climb(rows: Sequence[Row]) -> Chart:
    """The maximum of each block, and the one so far."""
    series = {
        name: [(float(row["block"]), row[key]) for row in rows if row[key] is not None]
        for name, key in (("of the block", "block_max"), ("so far", "max"))
    }
    return Chart("Online softmax: the maximum", "block", "score", series)
