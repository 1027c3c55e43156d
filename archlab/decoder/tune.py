"""Find the quickest product for each shape of weight, on the CPU at hand; see `components.product`."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from archlab.components.product import Product, Way, has_onednn, onednn, rows_first, ways

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

Held = list[tuple[Product, Tensor]]


@torch.no_grad()
def tune(decoder: nn.Module, tied: Tensor, rows: Sequence[int], pack: bool = False) -> dict[str, str]:
    """Try every way on the weights of each shape, for each number of rows, and keep the quickest.

    tied: the weight of a head that has none of its own. pack: whether weights may be packed where that is quicker; what
    is packed stays so. Returns the way's name by rows, shape and dtype; nothing is tried on another device than a CPU.
    Costs a few passes over the weights, and one weight's memory; a tied head that is packed keeps as much.
    """
    if tied.device.type != "cpu":
        return {}
    found: dict[str, str] = {}
    for held in _kinds(decoder, tied):
        weight = held[0][1]
        kind = f"{list(weight.shape)} {str(weight.dtype).removeprefix('torch.')}"
        found |= {f"{count} x {kind}": name for count, name in _settle(held, rows, pack).items()}
    return found


def unpack(decoder: nn.Module) -> None:
    """Have all weights as they were, to the bit."""
    for module in decoder.modules():
        if isinstance(module, Product):
            module.unpack()


def _kinds(decoder: nn.Module, tied: Tensor) -> Iterator[Held]:
    """The modules of each shape, with the weights that they multiply with."""
    kinds: dict[tuple[Any, ...], Held] = defaultdict(list)
    for module in decoder.modules():
        if isinstance(module, Product):
            weight = tied if module.weight is None else module.weight
            kinds[weight.shape, weight.dtype, module.packed, module.alone].append((module, weight))
    yield from kinds.values()


def _settle(held: Held, rows: Sequence[int], pack: bool) -> dict[int, str]:
    """Set the quickest ways of a kind, by rows; their names."""
    module, weight = held[0]
    if module.packed:
        return dict.fromkeys(rows, "packed")
    least = {count: _choose(held, count) for count in rows}
    if pack and module.alone and has_onednn(weight.dtype) and _packed(held, least):
        return dict.fromkeys(rows, "packed")
    return {count: name for count, (name, _) in least.items()}


def _choose(held: Held, rows: int) -> tuple[str, float]:
    """Set the quickest way for so many rows; its name and seconds."""
    known = ways(held[0][1].dtype)
    seconds = _time([weight for _, weight in held], rows, known)
    usual, best = next(iter(known)), min(seconds, key=seconds.__getitem__)
    name = best if seconds[best] * GAIN < seconds[usual] else usual
    for module, _ in held:
        module.quickest.pop(rows, None)  # what torch does by itself needs no way around it
        if known[name] is not rows_first:
            module.quickest[rows] = known[name]
    return name, seconds[name]


def _packed(held: Held, least: dict[int, tuple[str, float]]) -> bool:
    """Pack all of a kind if that is quicker over all numbers of rows than what was found."""
    most = max(least)
    for module, weight in held[:TRIED]:
        module.pack(weight, most)
    weights = [weight if module.copied is None else module.copied[0] for module, weight in held[:TRIED]]
    seconds = sum(_time(weights, rows, {"packed": onednn})["packed"] for rows in least)
    if quicker := seconds * GAIN < sum(taken for _, taken in least.values()):
        for module, weight in held[TRIED:]:
            module.pack(weight, most)
    else:
        for module, _ in held[:TRIED]:
            module.unpack()
    return quicker


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
