"""What the queries of one pass see of its keys, in the form that a layer's attention asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from archlab.components.locality import Locality
from archlab.components.position.module import NoPosition
from archlab.components.span import Span, TensorSpan
from archlab.frozen import derived

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Sight:
    """One for all layers of a pass that see as far, and whose position adds the same to the scores.

    Each form is made when it is first asked for, but a mask that the position adds to at once: it may be trained, and
    then no layer that is run again may have made it.
    """

    def __init__(self, position: NoPosition, span: Span | TensorSpan, locality: Locality, device: torch.device) -> None:
        self.position, self.span, self.locality, self.device = position, span, locality, device
        self.added = self.mask if position.biases else None
        """Numbers [h, n, m] that the position adds to the scores, -inf where not visible; None where it adds none."""

    @derived
    def mask(self) -> Tensor | None:
        """Bool [n, m], True where visible, or the numbers that are added; None for plain causality."""
        return self.position.mask(self.span, self.locality, self.device)

    @derived
    def blocks(self) -> BlockMask:
        """The same for flex attention, of positions alone; what is added to the scores is not in it."""
        from archlab.components.attention.flex import blocks_of

        queries, keys = self.span.positions(self.device), self.span.keys(self.device, self.locality)
        return blocks_of(self.locality, queries, keys)
