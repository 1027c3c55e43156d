"""Normalisation over the last dimension. Statistics are float32 or wider, whatever the input's dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.norm import spec as specs
from archlab.registry import implements, module_class


def make_norm(spec: specs.Norm, width: int) -> nn.Module:
    """The norm over `width` features that a spec describes."""
    norm: nn.Module = module_class("norm", spec)(spec, width)
    return norm


@implements(specs.Norm)
class NoNorm(nn.Module):
    """x, as it came."""

    def __init__(self, spec: specs.Norm, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


@implements(specs.LayerNorm)
class LayerNorm(nn.Module):
    """gamma (x - mean) / sqrt(variance + eps) + beta over the last dimension. Ba et al. 2016, eq. 4."""

    def __init__(self, spec: specs.LayerNorm, width: int) -> None:
        super().__init__()
        self.eps = spec.eps
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if spec.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@implements(specs.RMSNorm)
class RMSNorm(nn.Module):
    """gamma x / sqrt(mean(x^2) + eps) over the last dimension. Zhang and Sennrich 2019, eq. 4."""

    def __init__(self, spec: specs.RMSNorm, width: int) -> None:
        super().__init__()
        self.eps, self.outside, self.unit_offset = spec.eps, spec.eps_place == "outside", spec.unit_offset
        self.weight = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, 0.0 if self.unit_offset else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        if not (self.outside or self.unit_offset):
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # 1 + weight would lose bits in bfloat16
        gain = self.weight.to(wide.dtype) + float(self.unit_offset)
        if self.outside:
            rms = wide.square().mean(-1, keepdim=True).sqrt()
            return (gain * wide / (rms + self.eps)).to(x.dtype)
        return F.rms_norm(wide, gain.shape, gain, self.eps).to(x.dtype)
