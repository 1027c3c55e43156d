"""Which positions one forward pass covers, and what its queries may see.

Known as numbers, a span slices: that is the fast way in eager mode. Known only as a tensor, it indexes and masks:
that is what torch.compile and CUDA graphs need, where a number would be burnt into the code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Bool [queries, keys], True where visible: the last query sees every key (aligned to the lower right)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


@dataclass(frozen=True)
class Span:
    """Positions start, .., start + count - 1."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    def rows(self, table: Tensor) -> Tensor:
        """The rows of [rows, columns] that stand for these positions: [count, columns]."""
        return table[self.start : self.end]

    def write(self, held: Tensor, new: Tensor) -> Tensor:
        """Put new [B, heads, count, width] into held [B, heads, length, width]; the live part of held."""
        held[:, :, self.start : self.end] = new
        return held[:, :, : self.end]

    def mask(self, device: torch.device) -> Tensor | None:
        """Bool [count, end], or None where plain causality says it all: no cached keys, or a single query."""
        return None if self.start == 0 or self.count == 1 else causal_mask(self.count, self.end, device)


@dataclass(frozen=True)
class TensorSpan:
    """The positions int64 [count], in a run with room for `length` tokens."""

    positions: Tensor
    length: int

    def rows(self, table: Tensor) -> Tensor:
        return table.index_select(0, self.positions)

    def write(self, held: Tensor, new: Tensor) -> Tensor:
        """As Span.write, but all of held comes back: what is not live is for the mask to hide."""
        return held.index_copy_(2, self.positions, new.to(held.dtype))

    def mask(self, device: torch.device) -> Tensor:
        """Bool [count, length]."""
        return torch.arange(self.length, device=device) <= self.positions[:, None]
