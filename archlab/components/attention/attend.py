"""The one door to scaled dot-product attention; every way through it is tested against the explicit softmax.

Query head i reads KV head i // (h / kv): KV heads are repeated one by one, not tiled.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from archlab.components.attention.backend import backend_used, flex_lacks
from archlab.components.attention.sight import Sight, numbers
from archlab.components.attention.split import by_head, in_parts, parts_of, takes_flash, takes_sinks, with_sinks
from archlab.components.locality import EVERYWHERE
from archlab.components.span import causal_mask


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | Sight | None = None,
    causal: bool = False,
    sinks: Tensor | None = None,
    logit_cap: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "sdpa",
) -> Tensor:
    """softmax(scale q k^T, where visible) v, with dropout on the weights before the value product.

    q [B, h, n, hd]; k [B, kv, m, hd]; v [B, kv, m, hv]; the result [B, h, n, hv]. mask: bool [n, m], True where
    visible, or a number [h, n, m] added to the scores, -inf where not visible; or a Sight, which has both and knows
    whether it is causal. causal: the last query sees every key and each one before it one less, so that n queries after
    a cache are right too. sinks [h]: one more logit a head in the denominator, whose weight falls to no value (gpt-oss;
    Xiao et al. 2023). logit_cap: cap tanh(scores / cap), after scaling and before the mask (Gemma 2). dropout_p: the
    caller gives 0 outside training. backend: `sdpa` is torch's fused attention, `flex` its flex attention, `math` the
    explicit softmax in float32 or wider, which does what the others cannot: see `archlab.components.attention.backend`.
    """
    backend = backend_used(backend, logit_cap)
    if backend == "flex" and _flex_can(q, k, v, mask, dropout_p):
        return _flex(q, k, v, mask, causal, sinks, logit_cap, scale)
    sight = mask if isinstance(mask, Sight) else None
    apart = sinks is not None and backend == "sdpa" and takes_sinks(q, v, dropout_p)
    mask, causal = _seen(q, k, mask, causal, sinks is not None and not apart)
    if backend != "sdpa":
        return _math(q, k, v, mask, causal, sinks, logit_cap, dropout_p, scale)
    parts = parts_of(q, k, v, mask, sinks, dropout_p)
    if parts:
        return in_parts(q, k, v, _numbers(mask, sight, q.dtype, True), sinks, scale, parts)
    if not torch.is_grad_enabled():  # what is kept of a mask for gradients is its one byte a pair
        mask = _numbers(mask, sight, q.dtype, False)
    if sinks is not None and apart:
        return with_sinks(q, k, v, mask, causal, sinks, scale)
    if sinks is not None:
        k, v, mask = _one_key_more(q, k, v, mask, sinks)
    return _sdpa(q, k, v, mask, causal, dropout_p, scale)


def _seen(
    q: Tensor, k: Tensor, mask: Tensor | Sight | None, causal: bool, one_key_more: bool
) -> tuple[Tensor | None, bool]:
    """The mask, None where there is none, and whether causality alone says what is visible, by torch's own flag.

    That is aligned to the upper left, and would hide a sink that is one key more.
    """
    if isinstance(mask, Sight):
        mask = mask.mask
        causal = mask is None
    if causal and q.shape[2] > 1 and (one_key_more or q.shape[2] < k.shape[2]):
        return causal_mask(q.shape[2], k.shape[2], q.device), False
    return mask, causal and q.shape[2] > 1


def _numbers(mask: Tensor | None, sight: Sight | None, dtype: torch.dtype, finite: bool) -> Tensor | None:
    """The mask as numbers; a sight's are made once for all layers."""
    if mask is None:
        return None
    shared = None if sight is None else sight.numbers(dtype, finite)
    return numbers(mask, dtype, finite) if shared is None else shared


def _flex_can(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | Sight | None, dropout_p: float) -> bool:
    added = mask.added if isinstance(mask, Sight) else mask
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, added))
    widths, compiled = (q.shape[-1], v.shape[-1]), torch.compiler.is_compiling()
    how = {"trained": trained, "dropped": dropout_p > 0, "compiled": compiled}
    return flex_lacks(q.device.type, widths, q.element_size(), **how) is None


def _flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | Sight | None,
    causal: bool,
    sinks: Tensor | None,
    logit_cap: float | None,
    scale: float,
) -> Tensor:
    from archlab.components.attention.flex import blocks_of, flex

    blocks, added = (mask.blocks, mask.added) if isinstance(mask, Sight) else (None, mask)
    if causal:
        keys = torch.arange(k.shape[2], device=k.device)
        blocks = blocks_of(EVERYWHERE, keys[-q.shape[2] :], keys)
    return flex(q, k, v, scale=scale, blocks=blocks, mask=added, sinks=sinks, logit_cap=logit_cap)


def _one_key_more(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One more key and value, of zeros: its score is what the mask adds, the sink's logit, and its value is nothing."""
    shape = (q.shape[1], q.shape[2], k.shape[2])
    added = q.new_zeros(shape) if mask is None else numbers(mask, q.dtype).expand(shape)
    column = sinks.to(q.dtype)[:, None, None].expand(*shape[:2], 1)
    mask = torch.cat((added, column), -1)
    k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
    return k, v, mask


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout_p: float, scale: float) -> Tensor:
    batch, heads, queries, width = q.shape
    grouped = heads != k.shape[1]
    if mask is not None and mask.dim() == 3:
        mask = mask.to(q.dtype)[None]  # without a batch of its own, torch attends on the explicit way
    if grouped and queries == 1:  # a group is a batch of queries to one KV head: no key is read twice
        q, grouped = q.reshape(batch, k.shape[1], -1, width), False
        mask = mask.reshape(1, k.shape[1], -1, mask.shape[-1]) if mask is not None and mask.dim() == 4 else mask
    if grouped and q.is_cuda and not takes_flash(q, v, mask):  # its memory-efficient kernel shares no heads
        k, v = by_head(k, v, heads)
        grouped = False
    values = v.shape[-1]
    if values != width and queries > 1 and _is_fused_on_cpu(q, mask, dropout_p):  # for one, filling up costs more
        q, k, v = _of_one_width(q, k, v)
    y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=grouped)
    return y[..., :values].reshape(batch, heads, queries, values)


def _is_fused_on_cpu(q: Tensor, mask: Tensor | None, dropout_p: float) -> bool:
    """Whether the CPU's fused kernel runs, but for the widths of heads."""
    return q.device.type == "cpu" and not (dropout_p or (mask is not None and mask.requires_grad))


def _of_one_width(*given: Tensor) -> Iterator[Tensor]:
    """Filled up with zeros, which change neither scores nor values: the CPU's fused kernel takes one width for all."""
    widest = max(t.shape[-1] for t in given)
    return (F.pad(t, (0, widest - t.shape[-1])) if t.shape[-1] < widest else t for t in given)


def _math(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    sinks: Tensor | None,
    logit_cap: float | None,
    dropout_p: float,
    scale: float,
) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    keys, values = (t.to(wide).repeat_interleave(group, dim=1) for t in (k, v))
    if causal:
        mask = causal_mask(q.shape[2], k.shape[2], q.device)
    scores = (q.to(wide) @ keys.transpose(-2, -1)) * scale
    if logit_cap is not None:
        scores = logit_cap * (scores / logit_cap).tanh()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.to(wide)
    weights = F.dropout(_softmax(scores, sinks), dropout_p)
    return (weights @ values).to(q.dtype)


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Over the keys [.., h, n, m], the head's sink [h] in the denominator."""
    if sinks is None:
        return scores.softmax(-1)
    column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, column), -1).softmax(-1)[..., :-1]
