"""The one door to scaled dot-product attention; every way through it is tested against the explicit softmax.

Query head i reads KV head i // (h / kv): KV heads are repeated one by one, not tiled.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from archlab.components.span import causal_mask


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    backend: str = "sdpa",
) -> Tensor:
    """softmax(scale q k^T, where visible) v, with dropout on the weights before the value product.

    q [B, h, n, hd]; k, v [B, kv, m, hd]; the result [B, h, n, hd]. mask: bool [n, m], True where visible. causal: the
    last query sees every key and each one before it one less, so that n queries after a cache are right too.
    dropout_p: the caller gives 0 outside training. backend: `sdpa` is torch's fused attention, `math` the explicit
    softmax in float32 or wider.
    """
    if causal and 1 < q.shape[2] < k.shape[2]:  # torch's own flag is aligned to the upper left
        mask, causal = causal_mask(q.shape[2], k.shape[2], q.device), False
    causal = causal and q.shape[2] > 1
    path = {"sdpa": _sdpa, "math": _math}[backend]
    return path(q, k, v, mask, causal, dropout_p, scale)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout_p: float, scale: float) -> Tensor:
    batch, heads, queries, width = q.shape
    grouped = heads != k.shape[1]
    if grouped and queries == 1:  # a group is a batch of queries to one KV head: no key is read twice
        q, grouped = q.reshape(batch, k.shape[1], -1, width), False
    y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=grouped)
    return y.reshape(batch, heads, queries, v.shape[-1])


def _math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout_p: float, scale: float) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    keys, values = (t.to(wide).repeat_interleave(group, dim=1) for t in (k, v))
    if causal:
        mask = causal_mask(q.shape[2], k.shape[2], q.device)
    scores = (q.to(wide) @ keys.transpose(-2, -1)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = F.dropout(scores.softmax(-1), dropout_p)
    return (weights @ values).to(q.dtype)
