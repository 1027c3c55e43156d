"""Self-attention as a module: project, normalise, rotate, remember, attend, project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from archlab.components.attention import spec as specs
from archlab.components.attention.attend import attend, backend_used
from archlab.components.dropout.spec import Dropout
from archlab.components.linear import Linear
from archlab.components.norm.module import make_norm
from archlab.components.position.module import Rotation
from archlab.registry import implements


class Memory(Protocol):
    """What one layer keeps of earlier tokens."""

    def store(self, **new: Tensor) -> list[Tensor]:
        """Append each tensor [B, heads, n, width]; what this pass reads, [B, heads, m, width], in the same order."""


@dataclass(frozen=True)
class Step:
    """One forward pass as one layer's attention sees it.

    rotation: turns queries and keys. mask: bool [n, m], True where visible, or a number [h, n, m] added to the scores,
    -inf where not visible; None means causal. memory: the KV cache.
    """

    rotation: Rotation | None = None
    mask: Tensor | None = None
    memory: Memory | None = None


@implements(specs.GroupedAttention)
class SelfAttention(nn.Module):
    """Multi-head, grouped-query or multi-query attention, by its spec. Ainslie et al. 2023."""

    qkv: nn.Linear | None
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module

    def __init__(self, spec: specs.GroupedAttention, dropout: Dropout) -> None:
        super().__init__()
        self.spec = spec
        self.backend = spec.backend
        self.widths = [spec.q_width, spec.kv_width, spec.kv_width]
        biases = (spec.q_bias, spec.k_bias, spec.v_bias)
        self.qkv = Linear(spec.d_model, sum(self.widths), bias=spec.q_bias) if len(set(biases)) == 1 else None
        if self.qkv is None:
            for name, width, bias in zip("qkv", self.widths, biases, strict=True):
                self.add_module(name, Linear(spec.d_model, width, bias=bias))
        for name, width, heads in zip(
            ("q_norm", "k_norm"), spec.qk_norm_widths or (), spec.qk_norm_heads, strict=False
        ):
            self.add_module(name, make_norm(spec.norm, width, heads))
        self.sinks = nn.Parameter(torch.zeros(spec.n_heads)) if spec.sinks else None
        self.o = Linear(spec.q_width, spec.d_model, bias=spec.o_bias)
        self.attention_dropout = dropout.attention
        self.residual_dropout = nn.Dropout(dropout.residual)

    @property
    def backend_used(self) -> str:
        """What really runs: `sdpa`, or `math` where torch's fused attention cannot do what is asked."""
        return backend_used(self.backend, self.spec.logit_cap)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        q, k, v = self._heads(x)
        if step.rotation is not None:
            q, k = step.rotation(q), step.rotation(k)
        if step.memory is not None:
            k, v = (held.to(q.dtype) for held in step.memory.store(key=k, value=v))
        y = attend(
            q,
            k,
            v,
            scale=self.spec.scale,
            mask=step.mask,
            causal=step.mask is None,
            sinks=self.sinks,
            logit_cap=self.spec.logit_cap,
            dropout_p=self.attention_dropout if self.training else 0.0,
            backend=self.backend,
        )
        return self.residual_dropout(self.o(y.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, h, n, hd], keys and values [B, kv, n, hd], before rotation."""
        q, k, v = self.qkv(x).split(self.widths, -1) if self.qkv is not None else (self.q(x), self.k(x), self.v(x))
        if self.spec.qk_norm == "full":
            q, k = self.q_norm(q), self.k_norm(k)
        if self.spec.qkv_clip is not None:
            q, k, v = (t.clamp(-self.spec.qkv_clip, self.spec.qkv_clip) for t in (q, k, v))
        q, k, v = (t.unflatten(-1, (-1, self.spec.head_dim)) for t in (q, k, v))
        if self.spec.qk_norm in ("head", "per_head"):
            q, k = self.q_norm(q), self.k_norm(k)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
