"""The feed-forward network, plain or gated, and a mixture of such networks."""

from __future__ import annotations

from torch import Tensor, nn

from archlab.components.dropout.spec import Dropout
from archlab.components.ffn import spec as specs
from archlab.components.ffn.activation import middle_of
from archlab.components.ffn.experts import Experts
from archlab.components.ffn.router import Router
from archlab.components.linear import Linear
from archlab.frozen import replace
from archlab.registry import implements


@implements(specs.FeedForward)
class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) with gate and up in one matrix, gate first. Shazeer 2020."""

    def __init__(self, spec: specs.FeedForward, dropout: Dropout) -> None:
        super().__init__()
        self.middle = middle_of(spec)
        self.gated = spec.gated
        if spec.gated:
            self.gate_up = Linear(spec.d_model, 2 * spec.d_ff, bias=spec.bias)
        else:
            self.up = Linear(spec.d_model, spec.d_ff, bias=spec.bias)
        self.down = Linear(spec.d_ff, spec.d_model, bias=spec.bias)
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        projected = self.gate_up(x) if self.gated else self.up(x)
        return self.dropout(self.down(self.middle(projected)))


@implements(specs.MixtureOfExperts)
class MixtureOfExperts(nn.Module):
    """What the chosen experts give, weighted, plus what the shared ones give; dropout once, on the sum.

    router: who is chosen. experts: the routed ones, stacked. shared: the shared ones as one FeedForward.
    """

    shared: FeedForward | None
    shared_gate: Linear | None

    def __init__(self, spec: specs.MixtureOfExperts, dropout: Dropout) -> None:
        super().__init__()
        self.router, self.experts = Router(spec), Experts(spec)
        undropped = replace(dropout, ffn=0.0)
        self.shared = FeedForward(spec.shared, undropped) if spec.shared is not None else None
        self.shared_gate = Linear(spec.d_model, 1, bias=False) if spec.shared_gate else None
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        tokens = x.flatten(0, 1)
        y = self.experts(tokens, *self.router(tokens)).view_as(x)
        if self.shared is not None:
            shared = self.shared(x)
            y = y + (shared if self.shared_gate is None else self.shared_gate(x).sigmoid() * shared)
        return self.dropout(y)
