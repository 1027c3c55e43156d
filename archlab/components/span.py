"""Which positions one forward pass covers, what its queries may see, and where its keys are kept.

Known as numbers, a span slices: that is the fast way in eager mode. Known only as a tensor, it indexes and masks:
that is what torch.compile and CUDA graphs need, where a number would be burnt into the code.

What is kept of a layer whose queries see only so far is a ring: position p lies in slot p % slots, over the one that
no query will see again. A pass of several tokens then reads what was held before it and its own tokens, side by side,
because its first queries still see what its last tokens overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from archlab.components.locality import Locality


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Bool [queries, keys], True where visible: the last query sees every key (aligned to the lower right)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def ring_positions(last: Tensor | int, slots: int, device: torch.device) -> Tensor:
    """The position int64 [slots] that each slot holds once `last` is written; negative where it holds none yet."""
    return last - (last - torch.arange(slots, device=device)) % slots


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

    def write(self, held: Tensor, new: Tensor, locality: Locality) -> Tensor:
        """Put new [B, heads, count, width] into held [B, heads, slots, width]; the keys that this pass reads."""
        slots, new = held.shape[2], new.to(held.dtype)
        if self.end <= slots:
            held[:, :, self.start : self.end] = new
            return held[:, :, : self.end]
        if self.count == 1:
            slot = self.start % slots
            held[:, :, slot] = new[:, :, 0]
            return held if locality.chunk is None else held[:, :, : slot + 1]
        seen = torch.cat((held[:, :, : self.start], new), 2)
        kept = min(self.count, slots)
        held.index_copy_(2, self.positions(held.device)[-kept:] % slots, new[:, :, -kept:])
        return seen

    def positions(self, device: torch.device) -> Tensor:
        """int64 [count]."""
        return torch.arange(self.start, self.end, device=device)

    def keys(self, device: torch.device, locality: Locality) -> Tensor:
        """The positions int64 [m] of the keys that `write` gives, in their order."""
        slots = locality.kept(self.end)
        if self.end <= slots:
            return torch.arange(self.end, device=device)
        if self.count > 1:
            before = ring_positions(self.start - 1, slots, device)[: self.start]
            return torch.cat((before, self.positions(device)))
        held = ring_positions(self.start, slots, device)
        return held if locality.chunk is None else held[: self.start % slots + 1]

    def mask(self, device: torch.device, locality: Locality) -> Tensor | None:
        """Bool [count, m], or None where plain causality says it all: a single query, or no cached keys in reach."""
        if self.count == 1:
            return None  # what `write` gives is just what it sees
        if self.end <= locality.kept(self.end):
            return None if self.start == 0 else causal_mask(self.count, self.end, device)
        return locality.visible(self.positions(device), self.keys(device, locality))


@dataclass(frozen=True)
class TensorSpan:
    """The positions int64 [count], in a run with room for `length` tokens."""

    at: Tensor
    length: int

    def rows(self, table: Tensor) -> Tensor:
        return table.index_select(0, self.at)

    def write(self, held: Tensor, new: Tensor, locality: Locality) -> Tensor:
        """As Span.write, but all of held comes back: what is not live is for the mask to hide."""
        slots, new = held.shape[2], new.to(held.dtype)
        if slots == self.length:
            return held.index_copy_(2, self.at, new)
        seen = torch.cat((held, new), 2) if self._beside(slots) else held
        kept = min(new.shape[2], slots)
        held.index_copy_(2, self.at[-kept:] % slots, new[:, :, -kept:])
        return seen

    def positions(self, device: torch.device) -> Tensor:
        return self.at

    def keys(self, device: torch.device, locality: Locality) -> Tensor:
        slots = locality.kept(self.length)
        if slots == self.length:
            return torch.arange(slots, device=device)  # a place that is not written yet is ahead of every query
        if self._beside(slots):
            return torch.cat((ring_positions(self.at[0] - 1, slots, device), self.at))
        return ring_positions(self.at[-1], slots, device)

    def mask(self, device: torch.device, locality: Locality) -> Tensor:
        """Bool [count, m]."""
        return locality.visible(self.at, self.keys(device, locality))

    def _beside(self, slots: int) -> bool:
        """Whether the keys of this pass are read beside what was held, because slots are used again."""
        return self.at.shape[0] > 1 and slots < self.length
