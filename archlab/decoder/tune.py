"""Find the quickest product of a few rows for each shape of weight, on the CPU at hand; see `components.thin`."""

from __future__ import annotations

import time
from collections import defaultdict

import torch
from torch import Tensor, nn

from archlab.components.thin import ThinProduct, Way, rows_first, ways

MOST_ROWS = 32
"""Rows above which a product is bound by arithmetic, and all ways are one."""

TRIED = 8
"""Weights of a shape that are gone through in turn, so that each comes from memory as in a decode step."""

ROUNDS = 5
GAIN = 1.1
"""How many times quicker a way must be to be taken."""


@torch.inference_mode()
def tune(decoder: nn.Module, tied: Tensor, rows: int) -> dict[str, str]:
    """Try every way for `rows` rows on the weights of each shape, in turn, and keep the quickest.

    tied: the weight of a head that has none of its own. Returns the way's name by shape and dtype; nothing is tried on
    another device than a CPU, nor for many rows. Costs a few passes over the weights.
    """
    if tied.device.type != "cpu" or not 1 <= rows <= MOST_ROWS:
        return {}
    kinds: dict[tuple[torch.Size, torch.dtype], list[tuple[ThinProduct, Tensor]]] = defaultdict(list)
    for module in decoder.modules():
        if isinstance(module, ThinProduct):
            weight = tied if module.weight is None else module.weight
            assert isinstance(weight, Tensor)
            kinds[weight.shape, weight.dtype].append((module, weight))
    found = {}
    for (shape, dtype), held in kinds.items():
        name, way = _quickest([weight for _, weight in held[:TRIED]], rows)
        for module, _ in held:
            module.quickest.pop(rows, None)  # what torch does by itself needs no way around it
            if way is not rows_first:
                module.quickest[rows] = way
        found[f"{list(shape)} {str(dtype).removeprefix('torch.')}"] = name
    return found


def _quickest(weights: list[Tensor], rows: int) -> tuple[str, Way]:
    x = torch.randn(rows, weights[0].shape[1], generator=torch.Generator().manual_seed(0)).to(weights[0].dtype)
    known, seconds = ways(rows), defaultdict(list)
    for _ in range(ROUNDS):
        for name, way in known.items():
            start = time.perf_counter()
            for weight in weights:
                way(x, weight)
            seconds[name].append(time.perf_counter() - start)
    least = {name: min(taken) for name, taken in seconds.items()}  # others on the machine only ever add time
    usual, best = next(iter(known)), min(least, key=least.__getitem__)
    name = best if least[best] * GAIN < least[usual] else usual
    return name, known[name]
