"""A short causal convolution before attention: a place of its own, and a choice that stands there.

archlab build --plugin examples/short_conv.py model=gqa model/conv=short model.conv.kernel=4

Each feature is mixed with its own last few values before queries, keys and values are projected, as So et al. 2021
(Primer, arXiv 2109.08668, section 3) do after these projections, and Allen-Zhu 2025 (Canon layers, SSRN 5240330, "A")
before them. A decode step needs the last kernel - 1 inputs, which the cache carries on.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archlab

archlab.place("conv", before="attention")


@archlab.component(
    "conv",
    "short",
    summary="a causal convolution over a feature's own last few values",
    formula="kernel d",
    source="Allen-Zhu 2025, Physics of Language Models 4.1, SSRN 5240330",
)
class ShortConvolution(nn.Module):
    """y_t = x_t + sum over i < kernel of weight_i x_(t - i), each feature by itself."""

    def __init__(self, d_model: int, *, kernel: Annotated[int, archlab.option(help="values", ge=2)] = 4) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(d_model, 1, kernel) * kernel**-0.5)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        nothing = x.new_zeros(x.shape[0], self.kernel - 1, x.shape[2])
        seen = torch.cat((step.recall("inputs", nothing), x), 1)
        step.carry(inputs=seen[:, -(self.kernel - 1) :])
        mixed = F.conv1d(seen.transpose(1, 2), self.weight, groups=x.shape[2])
        return x + mixed.transpose(1, 2)
