"""A plain model by hand, the least that eager torch needs: the mark that a library's layers are measured against.

One matrix for q, k and v and one for gate and up, a preallocated cache that is cut at the last live token, the group of
a KV head's queries as rows of one attention call where there is one token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from shapes import Shape
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, shape: Shape, llama: bool) -> None:
        super().__init__()
        d, self.widths = shape.d_model, [n * shape.head_dim for n in (shape.n_heads, *2 * (shape.n_kv_heads,))]
        self.shape, self.llama = shape, llama
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.norms = nn.ModuleList([norm(d), norm(d)])
        self.qkv = nn.Linear(d, sum(self.widths), bias=not llama)
        self.o = nn.Linear(self.widths[0], d, bias=not llama)
        self.up = nn.Linear(d, shape.d_ff * (2 if llama else 1), bias=not llama)
        self.down = nn.Linear(shape.d_ff, d, bias=not llama)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None, kept: Tensor | None, start: int) -> Tensor:
        x = x + self.o(self.attend(self.norms[0](x), angles, kept, start))
        y = self.up(self.norms[1](x))
        if not self.llama:
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def attend(self, x: Tensor, angles: tuple[Tensor, Tensor] | None, kept: Tensor | None, start: int) -> Tensor:
        batch, n, _ = x.shape
        heads = self.qkv(x).split(self.widths, -1)
        q, k, v = (part.view(batch, n, -1, self.shape.head_dim).transpose(1, 2) for part in heads)
        if angles is not None:
            q, k = _turned(q, *angles), _turned(k, *angles)
        if kept is not None:
            kept[:, :, :, start : start + n] = torch.stack((k, v))
            k, v = kept[:, :, :, : start + n]
        if n == 1:
            y = F.scaled_dot_product_attention(q.reshape(batch, k.shape[1], -1, q.shape[-1]), k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return y.view(batch, -1, n, q.shape[-1]).transpose(1, 2).flatten(2)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Reference(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, llama = shape, shape.d_ff == 2432
        self.embedding = nn.Embedding(shape.vocab_size, shape.d_model)
        self.positions = None if llama else nn.Embedding(shape.context, shape.d_model)
        self.layers = nn.ModuleList(Layer(shape, llama) for _ in range(shape.n_layers))
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(shape.d_model)
        width = shape.head_dim
        turns = torch.arange(shape.context)[:, None] * 1e6 ** (-torch.arange(0, width, 2) / width)
        self.angles = (turns.cos(), turns.sin()) if llama else None

    def forward(self, ids: Tensor, cache: Tensor | None, start: int, last_only: bool) -> Tensor:
        """ids [B, n]; cache [layers, 2, B, kv, length, hd] holds `start` tokens -> logits [B, n or 1, V]."""
        end = start + ids.shape[1]
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions.weight[start:end]
        angles = None if self.angles is None else (self.angles[0][start:end], self.angles[1][start:end])
        for index, layer in enumerate(self.layers):
            x = layer(x, angles, None if cache is None else cache[index], start)
        return F.linear(self.norm(x[:, -1:] if last_only else x), self.embedding.weight)
