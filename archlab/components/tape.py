"""What autograd keeps of a training pass for the backward one, on paper: a tape that every part of a model writes.

A spec's `on_tape` goes the way of its module, step by step, with tensors that are sizes only, and puts on the tape what
each step keeps. A tensor that several steps keep, or views of one, count once, as torch's storages do.

The rules are torch's: a product keeps its factors, a projection its input, softmax, tanh and sigmoid their output. The
kernels of a device differ in some (`Tape.device`). What holds on `cpu` equals torch's own saved-tensor hooks, which a
test counts; what holds on `cuda` is read from torch's source.
"""

from __future__ import annotations

from archlab.errors import ConfigError, nearest
from archlab.units import dtype_bytes

DEVICES = ("cpu", "cuda")
"""The kinds of device whose kernels are told apart."""

RECOMPUTE = ("none", "selective", "full")
"""What the backward pass works out again: nothing, the scores and their softmax, whole layers."""

INDEX = 8
"""Bytes of an int64 index."""

KEPT = {
    "inputs": "what each projection reads",
    "norms": "inputs of norms, their statistics, and what the gain multiplies",
    "attention": "queries, keys, values, and a fused kernel's result and log-sums",
    "scores": "softmax of the scores, and its dropout",
    "angles": "cosines and sines that queries and keys are multiplied with",
    "masks": "which pairs of tokens see each other",
    "ffn": "between an FFN's projections; a router's scores and choice",
    "dropout": "which elements were dropped",
    "ids": "the tokens themselves",
    "other": "what residual layouts and places of others keep",
    "loss": "the log-softmax",
    "layers": "inputs of layers that are run again",
    "held": "angles, masks, and keys and values that layers share, that layers are run again with",
}
"""What tensors are kept for."""


class Buffer:
    """One piece of memory. stream: on the residual stream, which tensor parallelism by itself does not split."""

    __slots__ = ("bytes", "stream")

    def __init__(self, size: int, stream: bool) -> None:
        self.bytes, self.stream = size, stream


class Activation:
    """A tensor [rows, features] of `width` bytes an element, or a view of one: several may lie in one buffer."""

    __slots__ = ("buffer", "features", "rows", "width")

    def __init__(self, rows: int, features: int, width: int, buffer: Buffer) -> None:
        self.rows, self.features, self.width, self.buffer = rows, features, width, buffer

    def view(self, features: int, rows: int | None = None) -> Activation:
        """Some of it."""
        return Activation(self.rows if rows is None else rows, features, self.width, self.buffer)


class Tape:
    """One pass of [batch, length] tokens. kept: what each buffer is kept for, one of `KEPT`.

    width: bytes an element of the model's dtype; wide: of statistics, softmax and loss, float32 or wider. recompute:
    one of `RECOMPUTE`. made: bytes of all tensors on the way, kept or not. shared: the latest keys and values, which a
    layer after it may read in place of its own; empty where there are none. trained: whether gradients are asked for.
    """

    def __init__(
        self,
        batch: int,
        length: int,
        dtype: str,
        device: str = "cpu",
        recompute: str = "none",
        trained: bool = True,
    ) -> None:
        for name, value, valid in (("device", device, DEVICES), ("recompute", recompute, RECOMPUTE)):
            if value not in valid:
                raise ConfigError(
                    name, f"no {name} {value!r}", value=value, valid=valid, nearest=nearest(str(value), valid)
                )
        self.batch, self.length, self.tokens = batch, length, batch * length
        self.width = dtype_bytes(dtype)
        self.wide = max(self.width, 4)
        self.cuda, self.recompute, self.trained = device == "cuda", recompute, trained
        self.kept: dict[Buffer, str] = {}
        self.made = 0
        self.shared: list[Activation] = []

    def new(self, features: int, width: int | None = None, rows: int | None = None, stream: bool = False) -> Activation:
        """A new tensor: by default a row a token, in the model's dtype."""
        rows, width = self.tokens if rows is None else rows, width or self.width
        size = rows * features * width
        self.made += size
        return Activation(rows, features, width, Buffer(size, stream))

    def like(self, x: Activation, width: int | None = None) -> Activation:
        """A new tensor of the shape of x."""
        return self.new(x.features, width or x.width, x.rows, x.buffer.stream)

    def cast(self, x: Activation, width: int) -> Activation:
        """x in a dtype of `width` bytes: itself where it is so already."""
        return x if x.width == width else self.like(x, width)

    def keep(self, what: str, *tensors: Activation) -> None:
        """Keep tensors until the backward pass. What a buffer was first kept for names it."""
        for tensor in tensors:
            self.kept.setdefault(tensor.buffer, what)

    def linear(self, x: Activation, features: int, stream: bool = False) -> Activation:
        """x W^T + b."""
        self.keep("inputs", x)
        return self.new(features, x.width, x.rows, stream)

    def product(self, what: str, x: Activation, y: Activation) -> Activation:
        """x * y, of the shape of y."""
        self.keep(what, x, y)
        return self.like(y)

    def dropout(self, x: Activation, rate: float, what: str = "dropout") -> Activation:
        """x with a share of its elements zeroed: what it is multiplied by on the CPU, a bool each on CUDA."""
        if not rate:
            return x
        self.keep(what, self.like(x, 1 if self.cuda else x.width))
        return self.like(x)

    def bytes(self, what: str | None = None, ways: int = 1) -> int:
        """Bytes kept, in all or for one purpose; ways: devices that share the residual stream's."""
        kept = [buffer for buffer, purpose in self.kept.items() if what in (None, purpose)]
        return sum(-(-buffer.bytes // ways) if buffer.stream and ways > 1 else buffer.bytes for buffer in kept)
