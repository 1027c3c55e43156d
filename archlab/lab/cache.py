"""archlab lab cache: tokens generated with and without the KV cache, and a training pass through one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.bench.device import Device
from archlab.bench.phases import loss_of
from archlab.cost.kv import kv_cache
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.generate import evaluating
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.lab.catalog import Cache
from archlab.lab.race import race
from archlab.lab.setup import Setup, cut
from archlab.report.text import digits
from archlab.units import show_bytes

SECONDS = 0.8
"""Budget of the clock at each length."""
ROUNDS = 3
STEPPED = 16
"""Tokens of the training pass that goes through the cache one by one."""

GENERATION = (
    Column("tokens", "1", "", "made after the prompt"),
    Column("recomputed", "1", "exact", "rows of keys a layer, and of values, worked out again without a cache"),
    Column("cache", "B", "exact", "required for the tokens held by then"),
    Column("with_cache", "ms", "measured", "all of them, one run"),
    Column("without", "ms", "measured", "all of them, one run"),
    Column("same_tokens", "", "", "whether both ways gave the same"),
)
STEPS = (
    Column("context", "tokens", "", "with the one that the step adds"),
    Column("recomputed", "1", "exact", "rows a layer that this step works out again without a cache"),
    Column("with_cache", "ms", "measured", "median"),
    Column("without", "ms", "measured", "median"),
    Column("times", "1", "measured", "without over with, median of the rounds"),
)
TRAINING = (
    Column("pass"),
    Column("time", "ms", "measured", "forward over all tokens, median"),
    Column("cache", "B", "exact"),
    Column("with_gradient", "parameters", "measured", "in rows of weights that the loss's gradient reaches"),
)


def run(setup: Setup) -> Document:
    """The same generation both ways, a step at several lengths, and a training pass that goes through the cache."""
    asked: Cache = setup.settings
    device, dtype = setup.device, setup.device.native_dtype
    if setup.spec.head.last_token_only:
        raise RequestError(f"{setup.spec.name} has a {setup.spec.head.choice} head and generates nothing")
    tried = cut(setup.spec, dtype=dtype)
    tried.spec.check_length(max(asked.prompt + asked.new, *asked.contexts))
    decoder = build(tried.spec, device.name, dtype, setup.seed)
    generated, steps = _generation(setup, decoder), [_step(setup, decoder, context) for context in asked.contexts]
    trained = _training(setup, decoder)
    told = _seen_generation(generated[0]), _seen_steps(steps), _seen_training(setup.spec, dtype, trained)
    return Document(
        command="lab cache",
        model=setup.spec.name,
        verdict="; ".join(told),
        tables=[
            Table("generation", "Generation", GENERATION, generated, f"greedy, prompt {asked.prompt:,}, {dtype}"),
            Table("steps", "One step", STEPS, steps, f"{dtype}, in turn"),
            Table("training", "A training pass", TRAINING, trained, f"{STEPPED} tokens, {dtype}"),
        ],
        assumptions={"tried": tried.what, "device": device.describe()["device_name"], "seed": setup.seed},
        charts=[_chart(steps)],
    )


def recomputed(prompt: int, new: int) -> int:
    """Rows of keys, and of values, that `new` greedy steps without a cache work out again in each layer.

    Step j runs prompt + j - 1 tokens, of which only the last is new; the first step's prompt is new in whole.
    """
    return sum(prompt + step - 2 for step in range(2, new + 1))


def _generation(setup: Setup, decoder: Decoder) -> list[Row]:
    """The tokens that are made both ways, then longer runs that are only counted."""
    asked: Cache = setup.settings
    prompt = setup.ids(decoder.spec, 1, asked.prompt).to(setup.device.name)
    room = asked.prompt + asked.new
    made: dict[str, list[int]] = {}
    seconds = {}
    for way in ("warm up", "with_cache", "without"):
        cache = None if way == "without" else _cache(decoder, room)
        seconds[way], made[way] = _generate(decoder, prompt, 2 if way == "warm up" else asked.new, cache, setup.device)
    same = "yes" if made["with_cache"] == made["without"] else "no"
    run = {way: 1e3 * seconds[way] for way in ("with_cache", "without")}
    first = {**_counted(setup.spec, asked.prompt, asked.new, decoder), **run, "same_tokens": same}
    return [first, *(_counted(setup.spec, asked.prompt, tokens, decoder) for tokens in asked.lengths)]


def _counted(spec: DecoderSpec, prompt: int, new: int, decoder: Decoder) -> dict[str, Any]:
    """What `new` tokens come to on paper; the last of them is not held."""
    held = kv_cache(spec, 1, prompt + new - 1, str(_dtype(decoder))).required
    return {"tokens": new, "recomputed": recomputed(prompt, new), "cache": held}


def _dtype(decoder: Decoder) -> torch.dtype:
    return decoder.embedding.weight.dtype


def _cache(decoder: Decoder, length: int) -> KVCache:
    return KVCache(decoder.spec, 1, length, _dtype(decoder), decoder.embedding.weight.device)


def _generate(
    decoder: Decoder, prompt: Tensor, new: int, cache: KVCache | None, device: Device
) -> tuple[float, list[int]]:
    """Seconds of `new` greedy tokens, and these."""
    tokens: list[int] = []

    def call() -> None:
        ids = given = prompt
        for _ in range(new):
            token = decoder(given, cache, last_only=True)[:, -1].argmax(-1, keepdim=True)
            tokens.append(int(token))
            ids = torch.cat((ids, token), 1)
            given = ids if cache is None else token

    with evaluating(decoder):
        return device.time(call), tokens


def _step(setup: Setup, decoder: Decoder, context: int) -> Row:
    """The last of `context` tokens: after the others in a cache, or all of them once more."""
    ids = setup.ids(decoder.spec, 1, context).to(setup.device.name)
    cache = _cache(decoder, context)
    with evaluating(decoder):
        if context > 1:
            decoder(ids[:, :-1], cache, last_only=True)

        def cached() -> Tensor:
            cache.reset()
            cache.advance(context - 1)  # their keys and values are still there
            return decoder(ids[:, -1:], cache, last_only=True)

        calls = {"with_cache": cached, "without": lambda: decoder(ids, last_only=True)}
        timed = race(calls, setup.device, SECONDS, ROUNDS)
    row: dict[str, Any] = {"context": context, "recomputed": context - 1}
    row |= {way: 1e3 * timed.timing(way).median for way in calls}
    return {**row, "times": timed.ratio("without", "with_cache").median}


def _training(setup: Setup, decoder: Decoder) -> list[Row]:
    """All tokens at once, as training has them, and through a cache."""
    ids = setup.ids(decoder.spec, 1, STEPPED + 1).to(setup.device.name)
    cache = _cache(decoder, STEPPED)

    def filled(chunk: int) -> None:
        cache.reset()
        for part in ids[:, :-1].split(chunk, 1):
            decoder(part, cache)

    calls = {
        "all at once": lambda: decoder(ids[:, :-1]),
        "all at once, into a cache": lambda: filled(STEPPED),
        "one by one, from a cache": lambda: filled(1),
    }
    with evaluating(decoder):
        timed = race(calls, setup.device, SECONDS, ROUNDS)
    cache.reset()
    reached = dict(zip(calls, (_reached(decoder, ids, None), _reached(decoder, ids, cache)), strict=False))
    held = {name: 0 if name == "all at once" else cache.nbytes for name in calls}
    return [
        {"pass": name, "time": 1e3 * timed.timing(name).median, "cache": held[name], "with_gradient": reached.get(name)}
        for name in calls
    ]


def _reached(decoder: Decoder, ids: Tensor, cache: KVCache | None) -> int:
    """Elements of the parameters that get a gradient from a pass, into a cache or not."""
    loss = loss_of(decoder(ids[:, :-1], cache), ids[:, 1:], decoder)
    gradients = torch.autograd.grad(loss, list(decoder.parameters()), allow_unused=True)
    return sum(_in_reached_rows(gradient) for gradient in gradients if gradient is not None)


def _in_reached_rows(gradient: Tensor) -> int:
    """Elements of the rows that have a gradient at all: in bf16 single ones may round to 0."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    return int((rows != 0).any(-1).sum()) * rows.shape[-1]


def _seen_generation(row: Row) -> str:
    same = "the same" if row["same_tokens"] == "yes" else "other"
    return f"{same} {row['tokens']:,} tokens with the cache, which saves {row['recomputed']:,} rows a layer"


def _seen_steps(rows: Sequence[Row]) -> str:
    """How steps compare at the shortest and at the longest context."""
    times = [f"{digits(row['times'])} times as long at {row['context']:,} tokens" for row in (rows[0], rows[-1])]
    return f"without it a step takes {' and '.join(dict.fromkeys(times))}"


def _seen_training(spec: DecoderSpec, dtype: str, rows: Sequence[Row]) -> str:
    """What a cache would cost a training pass."""
    whole, cached, single = rows
    lost = whole["with_gradient"] - cached["with_gradient"]
    gradient = f"{lost:,} parameters lose their gradient" if lost > 0 else "no gradient gets lost"
    held = show_bytes(kv_cache(spec, 1, spec.reach, dtype).required)
    return (
        f"training has all tokens at once: one by one took {digits(single['time'] / whole['time'])} times as long, "
        f"through the cache {gradient}, and it would hold {held} at {spec.reach:,} tokens"
    )


def _chart(rows: Sequence[Row]) -> Chart:
    series = {
        name: [(float(row["context"]), row[way]) for row in rows]
        for way, name in (("with_cache", "with the cache"), ("without", "without"))
    }
    return Chart("A step", "context", "ms", series)
