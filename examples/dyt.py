"""Dynamic tanh in the place of a norm: no statistics. Zhu et al. 2025, arXiv 2503.10622.

archlab build --plugin examples/dyt.py model=gqa model/norm=dyt
"""

from typing import Annotated

import torch
from torch import Tensor, nn

import archlab


@archlab.component(
    "norm",
    "dyt",
    summary="weight tanh(alpha x) + bias, without statistics",
    formula="2 w + 1",
    source="Zhu et al. 2025, Transformers without Normalization, arXiv 2503.10622, section 4",
)
class DynamicTanh(nn.Module):
    """Squashes each feature by itself, where a norm divides by what all of them come to."""

    def __init__(self, features: int, *, alpha: Annotated[float, "slope at 0 before training"] = 0.5) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        """x [.., features] -> [.., features]."""
        return self.weight * torch.tanh(self.alpha * x) + self.bias
