"""A norm: [.., features] -> [.., features].

archlab verify --component norm/start --plugin start.py
archlab build --plugin start.py model=gqa model/norm=start
archlab build -m --plugin start.py model/norm=rmsnorm,start model.norm.eps=1e-6,1e-3
"""

from typing import Annotated

import torch
from torch import Tensor, nn

import archlab


@archlab.component("norm", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(nn.Module):
    """weight x / (rms(x) + eps)."""

    # `features` is handed over: the width of what is normalised, d_model or that of a head. Arguments after the * are
    # options: model.norm.eps=1e-3. Their type, default and text are what `archlab components norm` shows.
    def __init__(self, features: int, *, eps: Annotated[float, "added to the root mean square"] = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))  # what is set here is what training begins with

    def forward(self, x: Tensor) -> Tensor:
        """x [.., features] -> [.., features], in the dtype of x."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        rms = wide.square().mean(-1, keepdim=True).sqrt()
        return self.weight * (wide / (rms + self.eps)).to(x.dtype)
