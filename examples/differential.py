"""Differential attention: the difference of two softmaxes, so that what both see falls away.

archlab build --plugin examples/differential.py model=gqa model/attention=diff model.attention.n_heads=4

Ye et al. 2024, arXiv 2410.05258, section 2.1. A head has two queries and two keys of head_dim features and one value
of 2 head_dim, so that d_model = 2 n_heads head_dim as a rule: half as many heads as elsewhere. Nothing of what it costs
is said: parameters, FLOPs, cache and activations are counted on the module.
"""

import math
from typing import Annotated

import torch
from torch import Tensor, nn

import archlab
from archlab.components.dropout.spec import Dropout


@archlab.component(
    "attention",
    "diff",
    summary="the difference of two softmaxes (Differential Transformer)",
    source="Ye et al. 2024, Differential Transformer, arXiv 2410.05258, section 2.1",
)
class DifferentialAttention(archlab.Attending):
    """(softmax(q1 k1) - lambda softmax(q2 k2)) v, each head normalised, times 1 - lambda_init."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: Dropout,
        *,
        head_dim: Annotated[int | None, "features of a query and of a key; null: d_model / (2 n_heads)"] = None,
        lambda_init: Annotated[float, "what lambda begins near; the paper has 0.8 - 0.6 exp(-0.3 layer) too"] = 0.8,
    ) -> None:
        super().__init__(dropout=dropout)
        self.width, self.lambda_init = head_dim or d_model // (2 * n_heads), lambda_init
        inner = 2 * n_heads * self.width
        self.qkv = nn.Linear(d_model, 3 * inner, bias=False)
        self.lambdas = nn.Parameter(0.1 * torch.randn(4, self.width))
        self.head_norm = nn.RMSNorm(2 * self.width, eps=1e-5)
        self.o = nn.Linear(inner, d_model, bias=False)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = (step.turned(t.unflatten(-1, (-1, self.width)).transpose(1, 2)) for t in (q, k))
        v = v.unflatten(-1, (-1, 2 * self.width)).transpose(1, 2)
        k, v = step.with_earlier(key=k, value=v)
        scale = 1 / math.sqrt(self.width)
        first, second = (self.attend(q[:, i::2], k[:, i::2], v, step, scale) for i in (0, 1))
        y = self.head_norm(first - self.weight_of_second() * second) * (1 - self.lambda_init)
        return self.finish(y)

    def weight_of_second(self) -> Tensor:
        """lambda = exp(lq1 lk1) - exp(lq2 lk2) + lambda_init."""
        q1, k1, q2, k2 = self.lambdas
        return (q1 @ k1).exp() - (q2 @ k2).exp() + self.lambda_init
