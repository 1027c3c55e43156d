"""The position-wise feed-forward network, plain or gated."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.dropout.spec import Dropout
from archlab.components.ffn import spec as specs
from archlab.components.linear import Linear
from archlab.registry import implements


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


@implements(specs.FeedForward)
class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) with gate and up in one matrix, gate first. Shazeer 2020."""

    def __init__(self, spec: specs.FeedForward, dropout: Dropout) -> None:
        super().__init__()
        self.act = ACTIVATIONS[spec.activation]
        self.gated = spec.gated
        if spec.gated:
            self.gate_up = Linear(spec.d_model, 2 * spec.d_ff, bias=spec.bias)
        else:
            self.up = Linear(spec.d_model, spec.d_ff, bias=spec.bias)
        self.down = Linear(spec.d_ff, spec.d_model, bias=spec.bias)
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        return self.dropout(self.down(self._middle(x)))

    def _middle(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.act(self.up(x))
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.act(gate) * up


@implements(specs.ClampedFeedForward)
class ClampedFeedForward(FeedForward):
    """down(g sigmoid(alpha g) (u + 1)), the gate g and up u clamped. OpenAI 2025 (gpt-oss)."""

    def __init__(self, spec: specs.ClampedFeedForward, dropout: Dropout) -> None:
        super().__init__(spec, dropout)
        self.limit, self.alpha = spec.limit, spec.alpha

    def _middle(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return gate * (self.alpha * gate).sigmoid() * (up + 1)
