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
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

Way = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x [rows, in], weight [out, in], bias [out] -> [rows, out]."""

PACKED = (
    "weights are packed for inference in their own dtype: run without gradients, autocast, torch.func or "
    "torch.compile, or call decoder.unpack()"
)


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


class _Trained(torch.autograd.Function):
    """oneDNN's product, also for the input's gradient; the weight's is BLAS's, which takes no longer there."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return onednn(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        for_x, for_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)  # as F.linear: no more is needed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            trained(gradient, weight.t(), None) if for_x else None,
            gradient.t() @ x if for_weight else None,
            gradient.sum(0) if for_bias else None,
        )


def trained(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """oneDNN's product, through which gradients flow, and theirs."""
    y: Tensor = _Trained.apply(x, weight, bias)
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


def training_ways(dtype: torch.dtype) -> dict[str, Way]:
    """Those that gradients flow through, as `ways`."""
    known: dict[str, Way] = {"rows": rows_first}
    return known | {"onednn": trained} if has_onednn(dtype) else known


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there, and multiplies in this dtype on this CPU."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Held(RuntimeError):
    """A weight that is referred to elsewhere cannot lie otherwise than its holder knows it."""


@dataclass(frozen=True)
class Copy:
    """A packed copy of a weight. source: the memory that it was made of, kept so that no other can be there."""

    packed: Tensor
    source: Tensor
    version: int

    def of(self, weight: Tensor) -> bool:
        """Whether it is this weight as it now is; what is written through `.data` nobody is told, nor is autograd."""
        return weight.data_ptr() == self.source.data_ptr() and weight._version == self.version


class Product(nn.Module):
    """Base of modules that multiply with a weight.

    quickest: the way by rows, dtype and whether gradients are asked for, where one was measured to be better. packed:
    whether the weight lies packed, its own or a copy of one that is not. Whatever asks for the module's own tensors, to
    move, cast, load or share them, finds them unpacked; a plain `state_dict` and a copy of the module have them as they
    were.
    """

    weight: Any
    alone = True
    """Whether nothing but products reads a weight of its own, so that it may be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.quickest: dict[tuple[int, torch.dtype, bool], Way] = {}
        self.packed = False
        self.copied: Copy | None = None

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x [.., in], weight [out, in], bias [out] -> [.., out]: F.linear, or where it may be, what is quickest.

        Raises RuntimeError for a packed weight where F.linear is wanted.
        """
        if not (self.quickest or self.packed):
            return F.linear(x, weight, bias)
        trains, usual = torch.is_grad_enabled(), _as_usual(x, weight)
        if self.packed and (usual or trains) and self.weight is not None:
            raise RuntimeError(PACKED)
        if usual:
            return F.linear(x, weight, bias)
        rows = x.numel() // max(1, x.shape[-1])
        self.check_copy(weight)
        packed = self.packed and not trains
        way = onednn if packed else self.quickest.get((rows, x.dtype, trains), rows_first)
        lying = self.copied.packed if packed and self.copied is not None else weight
        return way(x.reshape(rows, x.shape[-1]), lying, bias).view(*x.shape[:-1], weight.shape[0])

    @torch.inference_mode(False)  # what is made in that mode can never be trained
    @torch.no_grad()
    def pack(self, weight: Tensor, rows: int) -> None:
        """Have the weight lie as oneDNN reads it for so many rows: its own in place of what it was, or a copy.

        Raises Held, and changes nothing, where a weight of its own is referred to elsewhere.
        """
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
        if self.weight is None:
            self.copied = Copy(packed, weight.data, weight._version)
        else:
            self._swap(packed)
        self.packed = True

    @torch.inference_mode(False)
    @torch.no_grad()
    def unpack(self) -> None:
        """Have the weight as it was, to the bit."""
        if self.packed and self.weight is not None:
            plain = nn.Parameter(self.weight.to_dense(), requires_grad=self.weight.requires_grad)
            torch._C._swap_tensor_impl(self.weight, plain)  # `swap_tensors`, also where torch.compile has seen it
        self.packed, self.copied = False, None

    def check_copy(self, weight: Tensor) -> None:
        """Let go of a copy whose weight has changed since."""
        if self.copied is not None and not self.copied.of(weight):
            self.unpack()

    def _swap(self, other: Tensor) -> None:
        """Put another tensor into the parameter, which stays the object that an optimizer knows."""
        try:
            torch.utils.swap_tensors(self.weight, self._like_weight(other))
        except RuntimeError as error:
            raise Held(f"a weight {list(other.shape)} is held elsewhere, as by a graph or a view: {error}") from error

    def _like_weight(self, other: Tensor) -> nn.Parameter:
        """Another tensor as a parameter, with what was set on this one."""
        parameter = nn.Parameter(other, requires_grad=self.weight.requires_grad)
        parameter.__dict__.update(self.weight.__dict__)
        return parameter

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.unpack()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **named: Any) -> None:
        self.unpack()
        super()._load_from_state_dict(*args, **named)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        if keep_vars:  # the parameter itself is wanted, to be read and written
            self.unpack()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.packed and self.weight is not None:
            destination[f"{prefix}weight"] = self.weight.detach().to_dense()

    @torch.inference_mode(False)
    @torch.no_grad()
    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which cannot hold what is packed."""
        state = self.__dict__ | {"packed": False, "copied": None}
        if self.packed and self.weight is not None:
            plain = self._like_weight(self.weight.to_dense())
            state["_parameters"] = self._parameters | {"weight": plain}
        return state


def _as_usual(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's own product must run: what a compiler, autocast, a transform or another device needs."""
    unlike = x.dtype != weight.dtype or x.device.type != "cpu"
    return unlike or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or _transforms()


def _transforms() -> bool:
    """Whether torch.func or forward-mode differentiation is at work, which oneDNN's product knows nothing of."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()
