"""One query a sequence over many keys: the keys in parts that are attended side by side, put together by log-sums.

torch's fused kernels give a sequence and KV head to one thread of a CPU, or to one block of CUDA's memory-efficient
kernel. Where there are fewer of these than workers, the others wait: with latents, or one KV head, all but one.
Dao et al. 2023 (Flash-Decoding). A log-sum also puts a sink in its place, with no key of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from archlab.components.attention.backend import FLASH_WIDTH
from archlab.components.attention.sight import ALIGNED

Constant = TypeVar("Constant", bound=Callable[..., object])

LEAST_KEYS = {"cpu": 4096, "cuda": 128}
"""Keys of a part at least, by kind of device: for fewer, another worker costs more than it does."""

BLOCKS = 2
"""Blocks for each of a GPU's processors, so that one computes while another waits for memory."""


def parts_of(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None = None, dropout_p: float = 0.0
) -> int:
    """In how many parts a decode step is to read its keys, so that none waits; 0 where torch is as quick alone."""
    if q.shape[2] > 1 or not _gives_log_sums(q, v, dropout_p) or k.shape[2] < LEAST_KEYS[q.device.type]:
        return 0
    if sinks is None and takes_flash(q, v, mask):  # which splits the keys by itself
        return 0
    parts = _busy(k)
    return parts if parts > 1 or sinks is not None else 0


def takes_flash(q: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether torch takes CUDA's flash attention: for 16 bits, without a mask, for heads of one width."""
    return q.is_cuda and mask is None and q.shape[-1] == v.shape[-1] <= FLASH_WIDTH and q.element_size() == 2


def _busy(k: Tensor) -> int:
    """Parts that keep all workers busy: a number that leaves no keys over, where there is such a one near."""
    keys, pairs = k.shape[2], k.shape[0] * k.shape[1]
    longest = keys // LEAST_KEYS[k.device.type]
    most = max(1, min(longest, _workers(k.device) // pairs)) if longest > 1 else 1
    even = (parts for parts in range(most, most // 2, -1) if keys % (parts * ALIGNED) == 0)
    return next(even, most)


def _constant(function: Constant) -> Constant:
    """As torch.compiler.assume_constant_result does, which would import a compiler, 1 s."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def _gives_log_sums(q: Tensor, v: Tensor, dropout_p: float) -> bool:
    """Whether a kernel does, and may run: the CPU's takes one width for all, CUDA's no float64.

    Where gradients may be asked for, or weights are dropped, all is left to torch, which has the gradients of it.
    """
    takes = {"cpu": q.shape[-1] == v.shape[-1], "cuda": q.element_size() <= 4}
    free = not (torch.is_grad_enabled() or dropout_p)
    return free and takes.get(q.device.type, False) and _is_allowed(q.device.type)


@_constant
def _is_allowed(kind: str) -> bool:
    """Whether that kernel may run, see `torch.nn.attention.sdpa_kernel`, which is not for CUDA alone."""
    switches = torch.backends.cuda
    return bool(switches.flash_sdp_enabled() if kind == "cpu" else switches.mem_efficient_sdp_enabled())


@_constant
def _workers(device: torch.device) -> int:
    """Threads of a CPU; blocks that a GPU runs at once."""
    if device.type == "cpu":
        return torch.get_num_threads()
    return BLOCKS * torch.cuda.get_device_properties(device).multi_processor_count


def in_parts(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, sinks: Tensor | None, scale: float, parts: int
) -> Tensor:
    """softmax(scale q k^T + added) v. q [B, h, 1, hd]; the result [B, h, 1, hv]; added [1, m] or [h, 1, m], as
    `sight.numbers` gives it in the queries' dtype and finite; the rest as `attend` has it.
    """
    batch, heads, _, width = q.shape
    grouped = q.reshape(batch * k.shape[1], 1, -1, width)
    rows = None if added is None else _rows(added, k.shape[:2], grouped.shape[2])
    whole = k.shape[2] if parts == 1 else k.shape[2] // (parts * ALIGNED) * parts * ALIGNED
    found = [_attended(grouped, k, v, rows, slice(0, whole), parts, scale)]
    if whole < k.shape[2]:
        found.append(_attended(grouped, k, v, rows, slice(whole, None), 1, scale))
    values, log_sums = (torch.cat(each, 1) for each in zip(*found, strict=True))
    y, log_sums = (t.reshape(batch, heads, -1) for t in _joined(values, log_sums))
    y = y[:, :, None] if sinks is None else _sunk(y[:, :, None], log_sums, sinks)
    return y.to(q.dtype)


def takes_sinks(q: Tensor, v: Tensor, dropout_p: float = 0.0) -> bool:
    """Whether log-sums can put sinks in their place for a run of queries."""
    return q.shape[2] > 1 and _gives_log_sums(q, v, dropout_p)


def with_sinks(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, causal: bool, sinks: Tensor, scale: float
) -> Tensor:
    """softmax(scale q k^T + added) v, a sink a head in the denominator. q [B, h, n, hd]; the result [B, h, n, hv];
    added [n, m] or [h, n, m], as `sight.numbers` gives it; causal: for as many queries as keys; the rest as `attend`.
    """
    k, v = by_head(k, v, q.shape[1])
    rows = None if added is None else added.view(1, -1, *added.shape[-2:])
    return _sunk(*_kernel(q, k, v, rows, causal, scale), sinks).to(q.dtype)


def by_head(k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values [B, kv, m, ..] with a copy for each query head, [B, heads, m, ..]; themselves, if not shared."""
    group = heads // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def _sunk(y: Tensor, log_sums: Tensor, sinks: Tensor) -> Tensor:
    """y [B, h, n, hv] of weights that sum to one; what a sink a head leaves of it: e^log_sum / (e^log_sum + e^sink)."""
    return y * (log_sums.view(*y.shape[:3]) - sinks[:, None]).sigmoid()[..., None]


def _rows(added: Tensor, pairs: Sequence[int], group: int) -> Tensor:
    """[B kv or 1, group or 1, m]."""
    if added.dim() == 2:
        return added[None]
    batch, kv_heads = pairs
    return added.reshape(1, kv_heads, group, -1).expand(batch, -1, -1, -1).flatten(0, 1)


def _attended(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None, keys: slice, parts: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Of some of the keys in equal parts: values [B kv, parts, group, hv] and log-sums [B kv, parts, group]."""
    k, v = (t[:, :, keys].unflatten(2, (parts, -1)).flatten(0, 1) for t in (k, v))
    q = q.expand(-1, parts, -1, -1)
    if rows is not None:
        rows = rows[..., keys].unflatten(-1, (parts, -1)).transpose(1, 2)
    y, log_sums = _kernel(q, k, v, rows, False, scale)
    return y.to(log_sums.dtype), log_sums


def _kernel(q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """What torch's fused attention gives beside its values: the log-sums [B, h, n], in float32 or wider."""
    ops = torch.ops.aten
    if not q.is_cuda:
        given = {"attn_mask": rows, "is_causal": causal, "scale": scale}
        y, log_sums = ops._scaled_dot_product_flash_attention_for_cpu(q, k, v, **given)
        return y, log_sums
    rows = None if rows is None else rows.expand(*q.shape[:3], -1)
    y, log_sums, *_ = ops._scaled_dot_product_efficient_attention(q, k, v, rows, True, 0.0, causal, scale=scale)
    return y, log_sums[..., : q.shape[2]]  # it fills them up to 32


def _joined(y: Tensor, log_sums: Tensor) -> tuple[Tensor, Tensor]:
    """Parts [N, parts, group, hv] by their log-sums [N, parts, group] -> [N, group, hv], and the log-sums of all."""
    shares = log_sums[..., None].expand_as(y).softmax(1)  # as wide as y, so that it is one kernel with what follows
    return (y * shares).sum(1), log_sums.logsumexp(1)
