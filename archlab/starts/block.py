"""A block: where the norms sit around attention and FFN, and what is added to what.

archlab verify --component block/start --plugin start.py
archlab build --plugin start.py model=gqa model/block=start
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

import archlab


@archlab.component("block", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(archlab.Block):
    """x <- x + scale f(norm(x)), the scales trained."""

    # The norms that a layer owns, each over d_model.
    norms = ("attention_norm", "ffn_norm")

    # Five things are handed over, for archlab.Block. Arguments after the * are options: model.block.scale=0.1.
    def __init__(
        self,
        spec: Any,
        norm: Any,
        width: int,
        attention: nn.Module,
        ffn: nn.Module,
        *,
        scale: Annotated[float, "what is added is multiplied by this at first"] = 1.0,
    ) -> None:
        super().__init__(spec, norm, width, attention, ffn)
        self.scales = nn.Parameter(torch.full((2, width), scale))

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]; attend and feed are attention and FFN with what stands beside them."""
        x = self.add(x, self.scales[0] * self.attend(self.attention_norm(x), step))
        return self.add(x, self.scales[1] * self.feed(self.ffn_norm(x), step))
