"""What the queries of one pass see of its keys, in the form that a layer's attention asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from archlab.components.locality import Locality
from archlab.components.position.module import NoPosition
from archlab.components.span import Span, TensorSpan
from archlab.frozen import derived

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

ALIGNED = 8
"""Numbers of a mask's row that CUDA's memory-efficient kernel reads at once."""


def numbers(mask: Tensor, dtype: torch.dtype, finite: bool = False) -> Tensor:
    """What a mask, as `attend` has it, adds to the scores: in a dtype, and on CUDA in rows that lie at whole 16 bytes.

    finite: what is hidden is so low that nothing is left of it, but not -inf, so that a row may be hidden whole.
    """
    least = torch.finfo(dtype).min / 2 if finite else -torch.inf
    if mask.dtype == torch.bool:
        added = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, least)
    else:
        added = mask.to(dtype).clamp(min=least) if finite else mask.to(dtype)
    short = -mask.shape[-1] % ALIGNED
    return F.pad(added, (0, short))[..., :-short] if short and mask.is_cuda else added


class Sight:
    """One for all layers of a pass that see as far, and whose position adds the same to the scores.

    Each form is made when it is first asked for, but a mask that the position adds to at once: it may be trained, and
    then no layer that is run again may have made it.
    """

    def __init__(self, position: NoPosition, span: Span | TensorSpan, locality: Locality, device: torch.device) -> None:
        self.position, self.span, self.locality, self.device = position, span, locality, device
        self._numbers: dict[tuple[torch.dtype, bool], Tensor] = {}
        self.added = self.mask if position.biases else None
        """Numbers [h, n, m] that the position adds to the scores, -inf where not visible; None where it adds none."""

    @derived
    def mask(self) -> Tensor | None:
        """Bool [n, m], True where visible, or the numbers that are added; None for plain causality."""
        return self.position.mask(self.span, self.locality, self.device)

    def numbers(self, dtype: torch.dtype, finite: bool = False) -> Tensor | None:
        """The mask as numbers: made once, where torch's fused attention would make them of it for each layer."""
        if self.mask is not None and (dtype, finite) not in self._numbers:
            self._numbers[dtype, finite] = numbers(self.mask, dtype, finite)
        return self._numbers.get((dtype, finite))

    @derived
    def blocks(self) -> BlockMask:
        """The same for flex attention, of positions alone; what is added to the scores is not in it."""
        from archlab.components.attention.flex import blocks_of

        queries, keys = self.span.positions(self.device), self.span.keys(self.device, self.locality)
        return blocks_of(self.locality, queries, keys)
