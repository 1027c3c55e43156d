"""A place of its own: an axis whose choices stand before attention in every layer. Until one is chosen it has `none`.

archlab verify --component start/shift --plugin start.py
archlab build --plugin start.py model=gqa model/start=shift
archlab build -m --plugin start.py model/start=none,shift bench=none
"""

from typing import Annotated

import torch
from torch import Tensor, nn

import archlab

archlab.place("start", before="attention")  # or after=, and "ffn"


@archlab.component("start", "shift", summary="what it is, in a line", source="whose it is: a paper")
class Start(nn.Module):
    """Each feature mixed with its value at the token before, by a trained share."""

    # `d_model` is handed over, and `norm` where it is asked for: norm(features) makes the norm that the layer has.
    # Arguments after the * are options: model.start.share=0.1.
    def __init__(self, d_model: int, *, share: Annotated[float, "of the token before, at first"] = 0.5) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.full((d_model,), share))

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]. What it needs of earlier tokens is carried on from pass to pass."""
        last = step.recall("last", x.new_zeros(x.shape[0], 1, x.shape[2]))  # zeros where there are no tokens before
        before = torch.cat((last, x[:, :-1]), 1)
        step.carry(last=x[:, -1:])
        return x + self.share * (before - x)
