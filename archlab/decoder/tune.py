"""Find the quickest product for each shape of weight, on the CPU at hand; see `components.product`."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from archlab.components.hosted import is_hosted, own_tensors
from archlab.components.product import Held, Product, Way, has_onednn, onednn, rows_first, training_ways, ways
from archlab.errors import RequestError
from archlab.host import available_memory

FEW_ROWS = 32
"""Rows up to which a product is as fast as its weight is read."""

TRIED = 8
"""Weights of a shape that are gone through in turn, so that each comes from memory as in a decode step."""

MOST_ROWS = 512
"""Rows of a trial: more take longer and tell the same."""

ROUNDS, SECONDS = 20, 0.3
"""Rounds of a trial, fewer where they take longer than so many seconds."""

GAIN = 1.05
"""How many times quicker a way must be to be taken."""

ROOM = 2
"""How many times a weight's bytes must be free for it to be packed, which has it in memory twice."""

Kind = list[tuple[Product, Tensor]]
"""The modules whose weights are alike, each with what it multiplies with."""


@torch.no_grad()
def tune(
    decoder: nn.Module, tied: Tensor, rows: Sequence[int], pack: bool = False, train: bool = False
) -> dict[str, str]:
    """Try every way on the weights of each shape, for each number of rows, and keep the quickest.

    tied: the weight of a head that has none of its own. pack: whether weights may be packed where that is quicker; what
    is packed stays so. train: for passes with gradients, which no packed weight can have: all are unpacked. Returns the
    way's name by rows, shape and dtype, or names where not all of a shape may be packed; nothing is tried on another
    device than a CPU. Costs a few passes over the weights, and one weight's memory; a tied head that is packed keeps as
    much. Raises RequestError for a number of rows that is none, and where weights are to be packed to train.
    """
    if pack and train:
        raise RequestError("packed weights cannot be trained: tune with pack or with train")
    wrong = [count for count in rows if type(count) is not int or count < 1]  # True is none
    if wrong:
        raise RequestError(f"rows {wrong[0]!r} must be a whole number, 1 or more: batch x tokens of a pass")
    if tied.device.type != "cpu":
        return {}
    if train:
        unpack(decoder)
    found: dict[str, str] = {}
    for alike, free in _kinds(decoder, tied):
        weight = alike[0][1]
        kind = f"{list(weight.shape)} {str(weight.dtype).removeprefix('torch.')}"
        made = _settle(alike, rows, pack and free and bool(rows), train)
        for count, name in made.items():
            others = found.get(f"{count} x {kind}", name)
            found[f"{count} x {kind}"] = name if name == others else f"{others}, {name}"
    return found


def unpack(decoder: nn.Module) -> None:
    """Have all weights as they were, to the bit."""
    for module in decoder.modules():
        if isinstance(module, Product):
            module.unpack()


def _kinds(decoder: nn.Module, tied: Tensor) -> Iterator[tuple[Kind, bool]]:
    """The modules of each shape, and whether their weights may be packed."""
    owners = Counter(id(held) for module in decoder.modules() for held in module._parameters.values())
    others = (own_tensors(module).values() for module in decoder.modules() if is_hosted(module))
    owners.update(id(held) for tensors in others for held in tensors)
    kinds: dict[tuple[Any, ...], Kind] = defaultdict(list)
    for module in decoder.modules():
        if isinstance(module, Product):
            weight = tied if module.weight is None else module.weight
            module.check_copy(weight)
            kinds[_free(module, weight, owners), weight.shape, weight.dtype, module.packed].append((module, weight))
    yield from ((alike, key[0]) for key, alike in kinds.items())


def _free(module: Product, weight: Tensor, owners: Mapping[int, int]) -> bool:
    """Whether a weight may be packed: nothing else reads it, as modules of others may theirs, or hangs on it.

    One that is copied may, for it tells of changes.
    """
    if weight.is_inference():
        return False
    if module.weight is None:
        return True
    alone = module.alone and owners[id(weight)] == 1
    return alone and not (weight._backward_hooks or weight._post_accumulate_grad_hooks or weight.grad is not None)


def _settle(alike: Kind, rows: Sequence[int], pack: bool, train: bool) -> dict[int, str]:
    """Set the quickest ways of a kind, by rows; their names."""
    module, weight = alike[0]
    if module.packed:
        return dict.fromkeys(rows, "packed")
    least = {count: _choose(alike, count, train) for count in rows}
    room = weight.nbytes * ROOM <= available_memory()
    if pack and room and has_onednn(weight.dtype) and _packed(alike, least):
        return dict.fromkeys(rows, "packed")
    return {count: name for count, (name, _) in least.items()}


def _choose(alike: Kind, rows: int, train: bool = False) -> tuple[str, float]:
    """Set the quickest way for so many rows; its name and seconds."""
    dtype = alike[0][1].dtype
    known = training_ways(dtype) if train else ways(dtype)
    tried = {name: _there_and_back(way) for name, way in known.items()} if train else known
    seconds = _time([weight for _, weight in alike], rows, tried)
    usual, best = next(iter(known)), min(seconds, key=seconds.__getitem__)
    name = best if seconds[best] * GAIN < seconds[usual] else usual
    for module, _ in alike:
        module.quickest.pop((rows, dtype, train), None)  # what torch does by itself needs no way around it
        if known[name] is not rows_first:
            module.quickest[rows, dtype, train] = known[name]
    return name, seconds[name]


def _there_and_back(way: Way) -> Way:
    """A product, and one as its input's gradient is."""

    def both(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return way(way(x, weight, bias), weight.t(), None)

    return both


def _packed(alike: Kind, least: dict[int, tuple[str, float]]) -> bool:
    """Pack all of a kind if that is quicker over all numbers of rows than what was found, and nothing holds one."""
    most, first = max(least), alike[:TRIED]
    try:
        _pack(first, most)
        weights = [weight if module.copied is None else module.copied.packed for module, weight in first]
        seconds = sum(_time(weights, rows, {"packed": onednn})["packed"] for rows in least)
        quicker = seconds * GAIN < sum(taken for _, taken in least.values())
        if quicker:
            _pack(alike[TRIED:], most)
    except Held:
        quicker = False
    if not quicker:
        for module, _ in alike:
            module.unpack()
    return quicker


def _pack(alike: Kind, rows: int) -> None:
    for module, weight in alike:
        module.pack(weight, rows)


def _time(weights: list[Tensor], rows: int, known: dict[str, Way]) -> dict[str, float]:
    """Seconds a weight of each way, in turn: of each weight the least, for others on the machine only add time."""
    weights = weights[: TRIED if rows <= FEW_ROWS else 1]
    shape, dtype = (min(rows, MOST_ROWS), weights[0].shape[1]), weights[0].dtype
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    least = {name: [math.inf] * len(weights) for name in known}
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for name, way in known.items():
            for index, weight in enumerate(weights):
                start = time.perf_counter()
                way(x, weight, None)
                least[name][index] = min(least[name][index], time.perf_counter() - start)
        if time.perf_counter() - began > SECONDS:
            break
    return {name: sum(taken) / len(weights) for name, taken in least.items()}
