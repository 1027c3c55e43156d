"""Normalisation over the last dimension. Statistics are float32 or wider, whatever the input's dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.norm import spec as specs
from archlab.registry import implements, module_class


def make_norm(spec: specs.Norm, width: int, heads: int | None = None) -> nn.Module:
    """The norm over `width` features that a spec describes; heads: of inputs [.., heads, width], each with its own."""
    own = {} if heads is None else {"heads": heads}
    norm: nn.Module = module_class("norm", spec)(spec, width, **own)
    return norm


def _shape(width: int, heads: int | None) -> tuple[int, ...]:
    return (width,) if heads is None else (heads, width)


@implements(specs.Norm)
class NoNorm(nn.Module):
    """x, as it came."""

    def __init__(self, spec: specs.Norm, width: int, heads: int | None = None) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


@implements(specs.LayerNorm)
class LayerNorm(nn.Module):
    """gamma (x - mean) / sqrt(variance + eps) + beta over the last dimension. Ba et al. 2016, eq. 4."""

    def __init__(self, spec: specs.LayerNorm, width: int, heads: int | None = None) -> None:
        super().__init__()
        self.eps, self.width, self.shared = spec.eps, width, heads is None
        self.weight = nn.Parameter(torch.empty(_shape(width, heads))) if spec.weight else None
        self.bias = nn.Parameter(torch.empty(_shape(width, heads))) if spec.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.shared:
            return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)
        wide = F.layer_norm(_widened(x), (self.width,), eps=self.eps)
        wide = wide if self.weight is None else wide * self.weight
        return (wide if self.bias is None else wide + self.bias).to(x.dtype)


@implements(specs.RMSNorm)
class RMSNorm(nn.Module):
    """gamma x / sqrt(mean(x^2) + eps) over the last dimension. Zhang and Sennrich 2019, eq. 4."""

    def __init__(self, spec: specs.RMSNorm, width: int, heads: int | None = None) -> None:
        super().__init__()
        self.eps, self.outside, self.unit_offset = spec.eps, spec.eps_place == "outside", spec.unit_offset
        self.width, self.plain = width, heads is None and not (self.outside or self.unit_offset)
        self.weight = nn.Parameter(torch.empty(_shape(width, heads))) if spec.weight else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.constant_(self.weight, 0.0 if self.unit_offset else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            return F.rms_norm(x, (self.width,), self.weight, self.eps)
        wide = _widened(x)  # 1 + weight would lose bits in bfloat16
        if self.outside:
            wide = wide / (wide.square().mean(-1, keepdim=True).sqrt() + self.eps)
        else:
            wide = F.rms_norm(wide, (self.width,), eps=self.eps)
        gain = 1.0 if self.weight is None else self.weight.to(wide.dtype) + float(self.unit_offset)
        return (gain * wide).to(x.dtype)


def _widened(x: Tensor) -> Tensor:
    """In float32, or wider where it was."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
