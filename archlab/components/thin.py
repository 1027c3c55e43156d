"""Products of a few rows with a large weight, on a CPU: several ways to the same numbers, the quickest by measurement.

A decode step multiplies one row a sequence with every weight, so that it is as fast as weights are read. Which call of
the BLAS reads fastest depends on machine, shape, dtype and rows: on one CPU a matrix-vector product runs on one thread
and a product with two columns on all, on another it is the other way round (docs/log.md). So nobody guesses: `tune`
(archlab/decoder/tune.py) tries the ways on the very weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Way = Callable[[Tensor, Tensor], Tensor]
"""x [rows, in], weight [out, in] -> [rows, out]."""


def rows_first(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight)


def columns(x: Tensor, weight: Tensor) -> Tensor:
    """The weight from the left; one row becomes two columns, since one alone would be a matrix-vector product."""
    beside = x if x.shape[0] > 1 else x.repeat(2, 1)  # a copy: BLAS is slow where two rows are one in memory
    return (weight @ beside.t())[:, : x.shape[0]].t().contiguous()


def vector(x: Tensor, weight: Tensor) -> Tensor:
    return torch.mv(weight, x[0])[None]


def ways(rows: int) -> dict[str, Way]:
    """Those there are for so many rows, by name; the first is what torch does by itself."""
    known: dict[str, Way] = {"rows": rows_first, "columns": columns}
    return known | {"vector": vector} if rows == 1 else known


class ThinProduct(nn.Module):
    """Base of modules that multiply with a weight. quickest: the way by rows, where one was measured to be better."""

    def __init__(self) -> None:
        super().__init__()
        self.quickest: dict[int, Way] = {}

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x [.., in], weight [out, in], bias [out] -> [.., out]: F.linear, or without gradients what is quickest."""
        way = self.quickest.get(x.numel() // x.shape[-1]) if self.quickest else None
        if way is None or torch.is_grad_enabled() or torch.compiler.is_compiling() or x.device.type != "cpu":
            return F.linear(x, weight, bias)
        y = way(x.flatten(0, -2), weight).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias
