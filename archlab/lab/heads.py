"""archlab lab heads: each attention at one shape and at equal parameters: bytes, FLOPs, and a decode step in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.bench.clock import Call
from archlab.budget import Budget, solve
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.lab.catalog import Heads
from archlab.lab.race import Race, race
from archlab.lab.setup import Setup, Tried, cut
from archlab.registry import choices
from archlab.report.text import digits
from archlab.units import show_bytes

SECONDS = 3.0
CACHED = 1024
"""Tokens in the cache, where no others are asked for."""
MULTIPLE = 8
"""What d_ff is a multiple of where parameters are made equal."""
CONTEXTS = [2**power for power in range(8, 17)]
"""Of the chart."""
SHAPE, EQUAL = "one shape", "equal parameters"

COLUMNS = (
    Column("attention"),
    Column("at", "", "", f"{SHAPE}: only the attention differs; {EQUAL}: d_ff makes up for it"),
    Column("kv_heads", "1", "", "- where there are none as such"),
    Column("d_ff", "1", "", ""),
    Column("params", "parameters", "exact", "of the whole model"),
    Column("kv_bytes", "B", "exact", "a token, all layers, in the dtype that is timed"),
    Column("flops", "FLOP", "exact", "of a decoded token after the cached ones"),
    Column("step", "ms", "measured", "one token of each sequence, median"),
    Column("p10", "ms", "measured", "10th percentile"),
    Column("p90", "ms", "measured", "90th percentile"),
)


class Candidate(Frozen):
    """A model that is compared: its attention, and at what."""

    name: str
    at: str
    spec: DecoderSpec

    @property
    def label(self) -> str:
        return f"{self.name}, {self.at}"


def run(setup: Setup) -> Document:
    """Every attention that there is, timed side by side."""
    asked: Heads = setup.settings
    dtype = setup.device.native_dtype
    cached = _cached(setup)
    setup.spec.check_length(cached + 1)
    problems: list[str] = []
    found = list(_candidates(setup, problems))
    tried = cut(setup.spec, dtype=dtype, at_once=len(found))
    _check_room(setup, tried, found, dtype)
    clock = _race(setup, tried, found, dtype)
    rows = [_row(setup, each, clock, dtype) for each in found]
    about = f"{cached:,} tokens cached, batch {asked.batch:,}, {dtype}, in turn"
    return Document(
        command="lab heads",
        model=setup.spec.name,
        verdict=_seen(rows),
        tables=[Table("heads", "Attentions", COLUMNS, rows, about)],
        assumptions={
            "timed": tried.what,
            "cache": f"{cached:,} tokens, random numbers",
            "device": setup.device.describe()["device_name"],
            "seed": setup.seed,
        },
        charts=[_chart(found, dtype)],
        notes=problems,
    )


def _cached(setup: Setup) -> int:
    """Tokens that are cached before the one that is timed."""
    asked: Heads = setup.settings
    return asked.context or setup.within(CACHED + 1) - 1


def _candidates(setup: Setup, problems: list[str]) -> Iterator[Candidate]:
    """Each choice of attention at the model's shape, then with its parameters; problems: why others cannot be."""
    model = setup.request.config["model"]
    budget = Budget(params=parameters(setup.spec).total, multiple=MULTIPLE, round="nearest")
    for at in (SHAPE, EQUAL):
        for name in choices("attention"):
            changed = {**model, "attention": {**model["attention"], "choice": name}}
            try:
                spec = setup.swapped(attention=name)
                if at == EQUAL:
                    spec = solve(changed, (), budget, setup.request.workload).answer.resolved.spec
                yield Candidate(name, at, spec)
            except RequestError as error:
                problems.append(f"{name} at {at}: {error}")


def _check_room(setup: Setup, tried: Tried, found: Sequence[Candidate], dtype: str) -> None:
    """Raise RequestError where the caches of all candidates do not fit, with what they take and what there is."""
    asked: Heads = setup.settings
    needed = sum(
        kv_cache(tried.also(each.spec), asked.batch, _cached(setup) + 1, dtype).allocated or 0 for each in found
    )
    room = setup.device.available() // 2
    if needed > room:
        problem = f"the caches of {len(found)} models take {show_bytes(needed)}, and {show_bytes(room)} may be taken"
        raise RequestError(f"{problem}; a shorter context= or a smaller batch= fits")


def _race(setup: Setup, tried: Tried, found: Sequence[Candidate], dtype: str) -> Race:
    calls = {}
    with torch.inference_mode():
        for each in found:
            decoder = build(tried.also(each.spec), setup.device.name, dtype, setup.seed).eval()
            calls[each.label] = _decode(setup, decoder)
        return race(calls, setup.device, SECONDS)


def _decode(setup: Setup, decoder: Decoder) -> Call:
    """A step of one token a sequence, each time after the same number of cached ones."""
    asked: Heads = setup.settings
    device, dtype = decoder.embedding.weight.device, decoder.embedding.weight.dtype
    cached = _cached(setup)
    cache = KVCache(decoder.spec, asked.batch, cached + 1, dtype, device)
    random = torch.Generator(device).manual_seed(setup.seed)
    for layer in cache.layers:
        for tensor in layer.values():
            tensor.normal_(generator=random)
    ids = setup.ids(decoder.spec, asked.batch, 1).to(device)

    def step() -> Tensor:
        cache.reset()
        cache.advance(cached)
        return decoder(ids, cache, last_only=True)

    return step


def _row(setup: Setup, each: Candidate, clock: Race, dtype: str) -> Row:
    row: dict[str, Any] = {"attention": each.name, "at": each.at}
    layers, step = each.spec.layers, clock.timing(each.label)
    layer = next((layer for layer in layers if layer.attention.choice == each.name), layers[0])
    row |= {"kv_heads": getattr(layer.attention, "n_kv_heads", None), "d_ff": getattr(layer.ffn, "d_ff", None)}
    row["params"] = parameters(each.spec).total
    row["kv_bytes"] = kv_cache(each.spec, 1, 1, dtype).bytes_per_token
    row["flops"] = flops(each.spec, 1, _cached(setup), 1).decode
    return {**row, "step": 1e3 * step.median, "p10": 1e3 * step.low, "p90": 1e3 * step.high}


def _seen(rows: Sequence[Row]) -> str:
    """What the cheapest and the dearest cache differ by, at each comparison."""
    return "; ".join(_told(at, [row for row in rows if row["at"] == at]) for at in (SHAPE, EQUAL))


def _told(at: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{at} cannot be had"
    least, most = (pick(rows, key=lambda row: row["kv_bytes"]) for pick in (min, max))
    size = f"{least['attention']} caches {digits(most['kv_bytes'] / least['kv_bytes'])} times less than"
    speed = f"a step takes {digits(least['step'] / most['step'])} times as long"
    params = f"{100 * (least['params'] / most['params'] - 1):+.1f} % parameters"
    return f"at {at} {size} {most['attention']} ({params}), {speed}"


def _cache_by_length(spec: DecoderSpec, dtype: str) -> list[tuple[float, float]]:
    lengths = (n for n in CONTEXTS if n <= (spec.max_length or n))
    return [(float(n), float(kv_cache(spec, 1, n, dtype).required)) for n in lengths]


def _chart(found: Sequence[Candidate], dtype: str) -> Chart:
    """The cache of one sequence over its length, as far as positions go, at one shape."""
    series = {each.name: _cache_by_length(each.spec, dtype) for each in found if each.at == SHAPE}
    return Chart("KV cache", "context", "bytes", series, log_x=True, log_y=True, unit="B")
