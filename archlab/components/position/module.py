"""Where a token is: `embed` adds to the input, `rotation` turns queries and keys, `bias` adds to the scores.

Each may do nothing.

Tables are worked out in float64 and kept in at least float32, whatever the weights are cast to: an angle of 1,857 rad
in half precision is off by most of a radian.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from archlab.components.locality import Locality
from archlab.components.position import spec as specs
from archlab.components.span import Span, TensorSpan
from archlab.registry import implements, module_class


class Rotation:
    """The angles of one pass's tokens: cos, sin [n, rotary_dim / 2]. Su et al. 2021, eq. 34.

    A pair (a, b) becomes (a cos - b sin, b cos + a sin): x times the cosines, plus x with the features of each pair
    swapped times the sines, negative at a pair's first. What x is multiplied with is laid out once a pass.
    """

    def __init__(self, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
        self.cos, self.sin, self.interleaved = cos, sin, interleaved
        self._along, self._across = self._laid(cos, cos), self._laid(-sin, sin)

    def __call__(self, x: Tensor) -> Tensor:
        """x [.., n, head_dim] with its first rotary_dim features turned, in the table's dtype, and cast back."""
        width = self._along.shape[-1]
        turned, rest = x[..., :width], x[..., width:]
        turned = torch.addcmul(turned * self._along, self._swapped(turned), self._across).to(x.dtype)
        return torch.cat((turned, rest), -1) if rest.shape[-1] else turned

    def _laid(self, first: Tensor, second: Tensor) -> Tensor:
        """[n, rotary_dim / 2] twice -> [n, rotary_dim]: the features of each pair, where x has them."""
        return torch.stack((first, second), -1).flatten(-2) if self.interleaved else torch.cat((first, second), -1)

    def _swapped(self, x: Tensor) -> Tensor:
        if self.interleaved:
            return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return x.roll(x.shape[-1] // 2, -1)


@implements(specs.Position)
class NoPosition(nn.Module):
    """No position information; the base of the modules that give some.

    spec: the choice. head_dim: features of a head. context: tokens that tables are made for to begin with.
    """

    def __init__(self, spec: specs.Position | None = None, head_dim: int = 0, context: int = 0) -> None:
        super().__init__()

    biases = False
    """Whether it adds to the scores."""

    def reach(self, length: int) -> None:
        """Be ready for a run of `length` tokens in all."""

    def embed(self, x: Tensor, span: Span | TensorSpan) -> Tensor:
        """The token embedding x [B, n, d_model], with what the positions add to it."""
        return x

    def rotation(self, span: Span | TensorSpan) -> Rotation | None:
        """What turns the queries and keys at these positions, None where nothing does."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """What is added to the scores, [h, n, m], of queries at positions [n] and keys at [m]; where it `biases`."""
        raise NotImplementedError(f"{type(self).__name__} biases, and has no bias(queries, keys)")

    def mask(self, span: Span | TensorSpan, locality: Locality, device: torch.device) -> Tensor | None:
        """Bool [n, m], True where visible, or None for plain causality; where it `biases`, [h, n, m] with -inf."""
        if not self.biases:
            return span.mask(device, locality)
        queries, keys = span.positions(device), span.keys(device, locality)
        return self.bias(queries, keys).masked_fill(~locality.visible(queries, keys), -torch.inf)


def make_position(spec: specs.Position, head_dim: int, context: int) -> NoPosition:
    """The module of a position spec, for heads of head_dim features and runs of `context` tokens or more."""
    position: NoPosition = module_class("position", spec)(spec, head_dim, context)
    return position


@implements(specs.Learned)
class Learned(NoPosition):
    """A trained vector a position, added: weight [context + offset, d_model]. Radford et al. 2018."""

    def __init__(self, spec: specs.Learned, head_dim: int, context: int) -> None:
        super().__init__(spec, head_dim, context)
        self.offset = spec.offset
        self.weight = nn.Parameter(torch.zeros(spec.context + spec.offset, spec.d_model))

    def embed(self, x: Tensor, span: Span | TensorSpan) -> Tensor:
        return x + span.rows(self.weight[self.offset :])


class Table(NoPosition):
    """Fixed tables [rows, columns] that follow the module's device but no cast below float32.

    They are no buffers, because `.to(bfloat16)` rounds buffers: they are made again wherever the module goes, float64
    in a float64 model and float32 in any other, and are not in the state dict.
    """

    def __init__(self, spec: specs.Position, head_dim: int, context: int) -> None:
        super().__init__(spec, head_dim, context)
        self.rows = self.made_for = context
        self._fill(torch.empty(0))

    @property
    def depends_on_length(self) -> bool:
        """Whether the numbers depend on how long the run is."""
        return False

    def compute(self, rows: int, length: int) -> tuple[Tensor, ...]:
        """The tables in float64 on the CPU, for a run of `length` tokens."""
        raise NotImplementedError(f"{type(self).__name__} has no compute(rows, length)")

    def shapes(self, rows: int) -> tuple[tuple[int, int], ...]:
        """The tables' shapes."""
        raise NotImplementedError(f"{type(self).__name__} has no shapes(rows)")

    def reach(self, length: int) -> None:
        stale = self.depends_on_length and length != self.made_for
        if stale or length > self.rows:
            self.rows, self.made_for = max(length, self.rows), length
            self._fill(self.tables[0])

    def _fill(self, like: Tensor) -> None:
        """Make the tables on the device of `like`, in its dtype if that is wide enough."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        with torch.inference_mode(False):  # or training could not use tables that a generation had to grow
            if like.device.type == "meta":
                made = tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in self.shapes(self.rows))
            else:
                made = tuple(t.to(like.device, dtype) for t in self.compute(self.rows, self.made_for))
        self.tables = made

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        now = self.tables[0]
        target = fn(torch.empty(0, dtype=now.dtype, device=now.device))
        if (target.device, torch.promote_types(target.dtype, torch.float32)) != (now.device, now.dtype):
            self._fill(target)
        return self


def _angles(frequencies: list[float], rows: int) -> Tensor:
    """Radians [rows, frequencies], float64 on the CPU."""
    positions = torch.arange(rows, dtype=torch.float64, device="cpu")
    return torch.outer(positions, torch.tensor(frequencies, dtype=torch.float64, device="cpu"))


@implements(specs.Sinusoidal)
class Sinusoidal(Table):
    """Sines and cosines in alternate columns, added. Vaswani et al. 2017, section 3.5."""

    def __init__(self, spec: specs.Sinusoidal, head_dim: int, context: int) -> None:
        self._spec = spec
        super().__init__(spec, head_dim, context)

    def shapes(self, rows: int) -> tuple[tuple[int, int], ...]:
        return ((rows, self._spec.d_model),)

    def compute(self, rows: int, length: int) -> tuple[Tensor, ...]:
        angles = _angles(self._spec.frequencies(), rows)
        table = angles.new_empty(rows, self._spec.d_model)
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles[:, : self._spec.d_model // 2].cos()
        return (table,)

    def embed(self, x: Tensor, span: Span | TensorSpan) -> Tensor:
        return (x + span.rows(self.tables[0])).to(x.dtype)


@implements(specs.Alibi)
class Alibi(Table):
    """-slope x distance. Press et al. 2022."""

    biases = True

    def __init__(self, spec: specs.Alibi, head_dim: int, context: int) -> None:
        self._spec = spec
        super().__init__(spec, head_dim, context)

    def shapes(self, rows: int) -> tuple[tuple[int, int], ...]:
        return ((self._spec.n_heads, 1),)

    def compute(self, rows: int, length: int) -> tuple[Tensor, ...]:
        return (torch.tensor(self._spec.slopes(), dtype=torch.float64, device="cpu")[:, None],)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.tables[0][..., None] * (keys - queries[:, None])


@implements(specs.T5Bias)
class T5Bias(NoPosition):
    """weight [n_buckets, n_heads]: a number a head and bucket of distance. Raffel et al. 2020."""

    biases = True

    def __init__(self, spec: specs.T5Bias, head_dim: int, context: int) -> None:
        super().__init__(spec, head_dim, context)
        self.n_buckets, self.max_distance = spec.n_buckets, spec.max_distance
        self.weight = nn.Parameter(torch.zeros(spec.n_buckets, spec.n_heads))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.weight[self.buckets(queries[:, None] - keys)].permute(2, 0, 1)

    def buckets(self, distance: Tensor) -> Tensor:
        """The bucket of each distance in tokens, int64; keys ahead of their query are in the first.

        In float32, as T5 does it, so that distances at a bucket's edge fall on the same side.
        """
        exact = self.n_buckets // 2
        distance = distance.clamp(min=0)
        share = (distance.float() / exact).log() / math.log(self.max_distance / exact)
        grown = exact + (share.clamp(min=0) * (self.n_buckets - exact)).long()
        return torch.where(distance < exact, distance, grown.clamp(max=self.n_buckets - 1))


@implements(specs.Rope)
class Rotary(Table):
    """cos and sin [rows, rotary_dim / 2] of position x frequency, times the amplitude. Su et al. 2021."""

    def __init__(self, spec: specs.Rope, head_dim: int, context: int) -> None:
        self._spec, self._width = spec, spec.rotary_dim(head_dim)
        super().__init__(spec, head_dim, context)

    @property
    def depends_on_length(self) -> bool:
        return self._spec.depends_on_length

    def shapes(self, rows: int) -> tuple[tuple[int, int], ...]:
        return ((rows, self._width // 2),) * 2

    def compute(self, rows: int, length: int) -> tuple[Tensor, ...]:
        angles = _angles(self._spec.frequencies(self._width, length), rows)
        return angles.cos() * self._spec.amplitude(), angles.sin() * self._spec.amplitude()

    def rotation(self, span: Span | TensorSpan) -> Rotation:
        cos, sin = self.tables
        return Rotation(span.rows(cos), span.rows(sin), self._spec.layout == "interleaved")
