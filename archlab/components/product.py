"""Products with a weight on a CPU: several ways to the same numbers, the quickest by measurement.

A decode step multiplies a row a sequence with every weight, so that it is as fast as weights are read; a prefill
multiplies hundreds of rows, as fast as they are multiplied. Which library's call does either best depends on machine,
shape, dtype and rows: one runs a matrix-vector product on one thread, another sorts the weight anew at every call
(docs/log.md). So nobody guesses: `tune` (archlab/decoder/tune.py) tries the ways on the very weights.

A packed weight lies in memory as oneDNN reads it. It is the same parameter with the same numbers, but nothing except a
product without gradients can use it until it is unpacked. Of a weight that others own, as a tied head's, there is a
packed copy beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Way = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x [rows, in], weight [out, in], bias [out] -> [rows, out]."""


def rows_first(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What torch does by itself."""
    return F.linear(x, weight, bias)


def columns(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The weight from the left; one row becomes two columns, since one alone would be a matrix-vector product."""
    beside = x if x.shape[0] > 1 else x.repeat(2, 1)  # a copy: BLAS is slow where two rows are one in memory
    return _plus(_rows((weight @ beside.t())[:, : x.shape[0]]), bias)


def blocks(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The weight's rows in a block a thread, each block a product of its own: BLAS shares products out, not rows."""
    count = min(max(2, torch.get_num_threads()), weight.shape[0])
    even = weight.shape[0] // count * count
    parts = weight[:even].unflatten(0, (count, -1))
    y = _rows(torch.bmm(parts, x.t().expand(count, -1, -1)).flatten(0, 1))
    if even < weight.shape[0]:
        y = torch.cat((y, F.linear(x, weight[even:])), -1)
    return _plus(y, bias)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """oneDNN's product, of a weight as it is or packed."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _rows(y: Tensor) -> Tensor:
    """[out, rows] -> [rows, out], contiguous."""
    return y.t().contiguous()


def _plus(y: Tensor, bias: Tensor | None) -> Tensor:
    """y, which is nobody else's, with the bias in it."""
    return y if bias is None else y.add_(bias)


def ways(dtype: torch.dtype) -> dict[str, Way]:
    """Those there are for a dtype, by name; the first is what torch does by itself."""
    known: dict[str, Way] = {"rows": rows_first, "columns": columns, "blocks": blocks}
    return known | {"onednn": onednn} if has_onednn(dtype) else known


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there, and multiplies in this dtype on this CPU."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Product(nn.Module):
    """Base of modules that multiply with a weight. quickest: the way by rows, where one was measured to be better."""

    weight: Any
    alone = True
    """Whether nothing but products reads a weight of its own, so that it may be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.quickest: dict[int, Way] = {}
        self.packed = False
        self.copied: tuple[Tensor, int] | None = None
        """A packed copy of a weight that is not its own, and which version of it that is."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x [.., in], weight [out, in], bias [out] -> [.., out]: F.linear, or without gradients what is quickest.

        Raises RuntimeError for a packed weight where gradients are wanted.
        """
        if not (self.quickest or self.packed):
            return F.linear(x, weight, bias)
        if torch.is_grad_enabled() and weight.is_mkldnn:
            raise RuntimeError("weights are packed for inference: run without gradients, or call decoder.unpack()")
        way = onednn if self.packed else self.quickest.get(x.numel() // x.shape[-1])
        if way is None or torch.is_grad_enabled() or torch.compiler.is_compiling() or x.device.type != "cpu":
            return F.linear(x, weight, bias)
        if self.copied is not None and self.copied[1] == weight._version:
            weight = self.copied[0]
        return way(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @torch.inference_mode(False)  # what is made in that mode can never be trained
    @torch.no_grad()
    def pack(self, weight: Tensor, rows: int) -> None:
        """Have the weight lie as oneDNN reads it for so many rows: its own in place of what it was, or a copy."""
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
        if self.weight is None:
            self.copied = packed, weight._version
        else:
            self._swap(packed)
        self.packed = True

    @torch.inference_mode(False)
    @torch.no_grad()
    def unpack(self) -> None:
        """Have the weight as it was, to the bit; a gradient that it had is gone."""
        if self.packed and self.weight is not None:
            self._swap(self.weight.to_dense())
        self.packed, self.copied = False, None

    def _swap(self, other: Tensor) -> None:
        """Put another tensor into the parameter, which stays the object that an optimizer knows."""
        torch.utils.swap_tensors(self.weight, nn.Parameter(other, requires_grad=self.weight.requires_grad))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.packed and self.weight is not None:
            destination[f"{prefix}weight"] = self.weight.detach().to_dense()
