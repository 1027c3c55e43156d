"""What stands between an FFN's projections: an activation, or a gate."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from archlab.components.ffn import spec as specs

Middle = Callable[[Tensor], Tensor]
"""From the up projection [.., n_up d_ff], gate first, to the down projection's input [.., d_ff]."""


def relu2(x: Tensor) -> Tensor:
    """max(0, x)^2. So et al. 2021 (Primer)."""
    return F.relu(x).square()


def gelu_bloom(x: Tensor) -> Tensor:
    """GELU by its tanh form, sqrt(2 / pi) cut to eight digits, as BLOOM was trained and transformers computes it."""
    return 0.5 * x * (1 + (0.79788456 * x * (1 + 0.044715 * x * x)).tanh())


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "gelu_bloom": gelu_bloom,
    "silu": F.silu,
    "relu2": relu2,
}


def gated(gate_up: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
    """act(gate) * up. Shazeer 2020."""
    gate, up = gate_up.chunk(2, -1)
    return act(gate) * up


def clamped_swiglu(gate_up: Tensor, limit: float, alpha: float) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha gate), gate at most `limit`, up within +-limit. gpt-oss, 2025."""
    gate, up = gate_up.chunk(2, -1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def middle_of(spec: specs.FeedForward) -> Middle:
    """What a spec puts between its projections."""
    if isinstance(spec, specs.ClampedFeedForward):
        return functools.partial(clamped_swiglu, limit=spec.limit, alpha=spec.alpha)
    act = ACTIVATIONS[spec.activation]
    return functools.partial(gated, act=act) if spec.gated else act
