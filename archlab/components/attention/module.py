"""Self-attention as a module: project, normalise, rotate, remember, attend, project."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from archlab.components.attention import spec as specs
from archlab.components.attention.attend import attend
from archlab.components.attention.backend import backend_used
from archlab.components.attention.latent import LatentAttention as LatentSpec
from archlab.components.attention.sight import Sight
from archlab.components.dropout.spec import Dropout
from archlab.components.linear import Linear
from archlab.components.norm.module import make_norm
from archlab.registry import implements


class Memory(Protocol):
    """What one layer keeps of earlier tokens."""

    def store(self, **new: Tensor) -> list[Tensor]:
        """Append each tensor [B, heads, n, width]; what this pass reads, [B, heads, m, width], in the same order."""

    def recall(self, owner: str, name: str, start: Tensor) -> Tensor:
        """What an axis keeps of each sequence under a name, a copy, [B, ..]; `start` before the first token."""

    def carry(self, owner: str, name: str, state: Tensor) -> None:
        """Keep this in its place."""


class SharedKV:
    """Keys and values [B, kv, m, hd] that one layer of a pass read, turned, for the layers after it that share them."""

    tensors: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Step:
    """One forward pass as one layer's attention sees it.

    rotation: turns queries and keys. sight: what queries see, or the mask itself, see `mask`. memory: the KV cache.
    recompute: whether the backward pass works out the scores again from queries, keys and values. shared: what a layer
    that shares keys and values reads; another puts its own there. owner: the axis whose module is told.
    """

    rotation: Callable[[Tensor], Tensor] | None = None
    sight: Sight | Tensor | None = None
    memory: Memory | None = None
    recompute: bool = False
    shared: SharedKV | None = None
    owner: str = "attention"

    def of(self, owner: str) -> Step:
        """The same, for the module at a place."""
        return Step(self.rotation, self.sight, self.memory, self.recompute, self.shared, owner)

    @property
    def mask(self) -> Tensor | None:
        """Bool [n, m], True where visible, or a number [h, n, m] added to the scores, -inf where not visible.

        None means causal.
        """
        return self.sight.mask if isinstance(self.sight, Sight) else self.sight

    def turned(self, x: Tensor) -> Tensor:
        """Queries or keys [B, heads, n, width], turned by the position where it turns any."""
        return x if self.rotation is None else self.rotation(x)

    def with_earlier(self, **new: Tensor) -> list[Tensor]:
        """Each tensor [B, heads, n, width], kept, as this pass reads it: after those of earlier tokens."""
        if self.memory is None:
            return list(new.values())
        return [held.to(own.dtype) for held, own in zip(self.memory.store(**new), new.values(), strict=True)]

    def recall(self, name: str, start: Tensor) -> Tensor:
        """What was carried on under a name from the tokens before these, [B, ..]; `start` where there are none."""
        return start if self.memory is None else self.memory.recall(self.owner, name, start)

    def carry(self, **states: Tensor) -> None:
        """Keep tensors [B, ..] for the tokens after these, in the place of what was kept; for inference alone."""
        if self.memory is not None:
            for name, state in states.items():
                self.memory.carry(self.owner, name, state)


class Attending(nn.Module):
    """Base of the attentions: the way through `attend` and out, through the projection `o`."""

    o: nn.Linear

    def __init__(self, backend: str = "sdpa", logit_cap: float | None = None, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.backend, self.logit_cap = backend, logit_cap
        self.attention_dropout = dropout.attention if dropout else 0.0
        self.residual_dropout = nn.Dropout(dropout.residual if dropout else 0.0)

    @property
    def backend_used(self) -> str:
        """What runs in place of the backend that is asked for, where that cannot do what all passes need."""
        return backend_used(self.backend, self.logit_cap)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, step: Step, scale: float, sinks: Tensor | None = None) -> Tensor:
        """[B, h, n, hv]: see `archlab.components.attention.attend`."""
        weighted = functools.partial(
            attend,
            scale=scale,
            mask=step.sight,
            causal=step.sight is None,
            sinks=sinks,
            logit_cap=self.logit_cap,
            dropout_p=self.attention_dropout if self.training else 0.0,
            backend=self.backend,
        )
        return checkpoint(weighted, q, k, v, use_reentrant=False) if step.recompute else weighted(q, k, v)

    def finish(self, y: Tensor) -> Tensor:
        """[B, h, n, hv] -> [B, n, d_model]: the heads side by side, through the output projection."""
        return self.residual_dropout(self.o(y.transpose(1, 2).flatten(2)))


@implements(specs.GroupedAttention)
class SelfAttention(Attending):
    """Multi-head, grouped-query or multi-query attention, by its spec. Ainslie et al. 2023."""

    qkv: nn.Linear | None
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module

    def __init__(self, spec: specs.GroupedAttention, dropout: Dropout) -> None:
        super().__init__(spec.backend, spec.logit_cap, dropout)
        self.spec = spec
        self.widths = list(spec.projected.values())
        biases = [getattr(spec, f"{name}_bias") for name in spec.projected]
        fused = not spec.shares_kv and len(set(biases)) == 1
        self.qkv = Linear(spec.d_model, sum(self.widths), bias=spec.q_bias) if fused else None
        if self.qkv is None:
            for name, width, bias in zip(spec.projected, self.widths, biases, strict=True):
                self.add_module(name, Linear(spec.d_model, width, bias=bias))
        for name, width, heads in zip(
            ("q_norm", "k_norm"), spec.qk_norm_widths or (), spec.qk_norm_heads, strict=False
        ):
            self.add_module(name, make_norm(spec.head_norm, width, heads))
        self.sinks = nn.Parameter(torch.zeros(spec.n_heads)) if spec.sinks else None
        self.o = Linear(spec.q_width, spec.d_model, bias=spec.o_bias)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        q, *own = self._heads(x, step)
        k, v = self._read(own, step)
        return self.finish(self.attend(q, k, v, step, self.spec.scale, self.sinks))

    def _heads(self, x: Tensor, step: Step) -> list[Tensor]:
        """Queries [B, h, n, hd], then keys and values of its own [B, kv, n, hd], turned."""
        heads = self._projected(x)
        if self.spec.qk_norm == "full":
            heads = self._normed(heads)
        if self.spec.qkv_clip is not None:
            heads = [t.clamp(-self.spec.qkv_clip, self.spec.qkv_clip) for t in heads]
        heads = [t.unflatten(-1, (-1, self.spec.head_dim)) for t in heads]
        if self.spec.qk_norm in ("head", "per_head"):
            heads = self._normed(heads)
        heads = [t.transpose(1, 2) for t in heads]
        return [*map(step.turned, heads[:2]), *heads[2:]]

    def _projected(self, x: Tensor) -> list[Tensor]:
        if self.qkv is not None:
            return list(self.qkv(x).split(self.widths, -1))
        return [self.q(x)] if self.spec.shares_kv else [self.q(x), self.k(x), self.v(x)]

    def _normed(self, heads: list[Tensor]) -> list[Tensor]:
        q, *own = heads
        return [self.q_norm(q), *(self.k_norm(k) for k in own[:1]), *own[1:]]

    def _read(self, own: list[Tensor], step: Step) -> tuple[Tensor, Tensor]:
        """The keys and values [B, kv, m, hd] of this pass: its own, after those that are cached, or another layer's."""
        if self.spec.shares_kv:
            assert step.shared is not None
            return step.shared.tensors
        k, v = own
        k, v = step.with_earlier(key=k, value=v)
        if step.shared is not None:
            step.shared.tensors = k, v
        return k, v


@implements(LatentSpec)
class LatentAttention(Attending):
    """Multi-head latent attention: expanded over the tokens of one pass, absorbed after cached ones. DeepSeek-AI 2024.

    Rows of kv_up: a head's nope_dim of the key, then its v_dim of the value, as DeepSeek's checkpoints have them.
    """

    q: nn.Linear
    q_down: nn.Linear
    q_norm: nn.Module
    q_up: nn.Linear

    def __init__(self, spec: LatentSpec, dropout: Dropout) -> None:
        super().__init__(spec.backend, None, dropout)
        self.spec = spec
        if spec.q_rank is None:
            self.q = Linear(spec.d_model, spec.q_width, bias=False)
        else:
            self.q_down = Linear(spec.d_model, spec.q_rank, bias=spec.bias)
            self.q_norm = make_norm(spec.latent_norm, spec.q_rank)
            self.q_up = Linear(spec.q_rank, spec.q_width, bias=False)
        self.kv_down = Linear(spec.d_model, spec.kv_rank + spec.rope_dim, bias=spec.bias)
        self.kv_norm = make_norm(spec.latent_norm, spec.kv_rank)
        self.kv_up = Linear(spec.kv_rank, spec.n_heads * (spec.nope_dim + spec.v_dim), bias=False)
        self.kv_up.alone = False  # absorbed, it is no product of rows
        self.o = Linear(spec.n_heads * spec.v_dim, spec.d_model, bias=spec.o_bias)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        q, latent = self._queries(x, step), self._latent(x, step)
        if self.spec.cache == "expanded":
            k, v = self._expand(latent)
            k, v = step.with_earlier(key=k, value=v)
        else:
            (latent,) = step.with_earlier(latent=latent)
            if latent.shape[2] != q.shape[2]:
                return self.finish(self._absorbed(q, latent, step))
            k, v = self._expand(latent)
        return self.finish(self.attend(q, k, v, step, self.spec.scale))

    def _queries(self, x: Tensor, step: Step) -> Tensor:
        """[B, h, n, nope_dim + rope_dim], the latter turned."""
        q = self.q(x) if self.spec.q_rank is None else self.q_up(self.q_norm(self.q_down(x)))
        return self._turned(q.unflatten(-1, (-1, self.spec.qk_dim)).transpose(1, 2), self.spec.nope_dim, step)

    def _latent(self, x: Tensor, step: Step) -> Tensor:
        """[B, 1, n, kv_rank + rope_dim]: the latent, normalised, and the key that all heads share, turned."""
        latent, key = self.kv_down(x).split([self.spec.kv_rank, self.spec.rope_dim], -1)
        joined = torch.cat((self.kv_norm(latent), key), -1).unsqueeze(1)
        return self._turned(joined, self.spec.kv_rank, step)

    @staticmethod
    def _turned(x: Tensor, first: int, step: Step) -> Tensor:
        """x [.., n, width] with its features from `first` on turned."""
        return x if step.rotation is None else torch.cat((x[..., :first], step.turned(x[..., first:])), -1)

    def _expand(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [B, h, m, nope_dim + rope_dim] and values [B, h, m, v_dim] of [B, 1, m, kv_rank + rope_dim]."""
        shared, key = latent.split([self.spec.kv_rank, self.spec.rope_dim], -1)
        up = self.kv_up(shared.squeeze(1)).unflatten(-1, (self.spec.n_heads, -1)).transpose(1, 2)
        k, v = up.split([self.spec.nope_dim, self.spec.v_dim], -1)
        return torch.cat((k, key.expand(-1, self.spec.n_heads, -1, -1)), -1), v

    def _absorbed(self, q: Tensor, latent: Tensor, step: Step) -> Tensor:
        """[B, h, n, v_dim]: every head reads the latents [B, 1, m, kv_rank + rope_dim] themselves, as key and value.

        q (W_k c) = (q W_k) c and sum w (W_v c) = W_v (sum w c). DeepSeek-AI 2024, section 2.1.2.
        """
        spec = self.spec
        up = self.kv_up.weight.unflatten(0, (spec.n_heads, -1))
        to_key, to_value = up.split([spec.nope_dim, spec.v_dim], 1)
        q = torch.cat((q[..., : spec.nope_dim] @ to_key, q[..., spec.nope_dim :]), -1)
        # the CPU's kernel takes one width for keys and values: there the shared key is a value too, of no use
        values = latent if latent.device.type == "cpu" else latent[..., : spec.kv_rank]
        y = self.attend(q, latent, values, step, spec.scale)[..., : spec.kv_rank]
        return y @ to_value.transpose(-2, -1)
