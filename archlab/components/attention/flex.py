"""Flex attention: torch's attention with a mask and scores that are functions, made into one kernel on CUDA.

The mask is a question about two positions; for each block of BLOCK x BLOCK pairs it is known beforehand whether all,
some or none of them see each other. So no [n, m] tensor is made, and what nobody sees is not read. Elsewhere torch's
own unfused form of it runs, which makes all scores and is slow. Dong et al. 2024.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from archlab.components.locality import Locality

BLOCK = 128
KERNELS = 64
"""How many kernels may be made: one a kind of mask, of shape and of pass. torch's own limit is 8."""


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    blocks: BlockMask | None = None,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    logit_cap: float | None = None,
) -> Tensor:
    """As `attend`. blocks: which pairs see each other. mask: bool [n, m] or numbers [h, n, m], read pair by pair."""

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if logit_cap is not None:
            score = logit_cap * (score / logit_cap).tanh()
        if mask is None:
            return score
        return torch.where(mask[i, j], score, -torch.inf) if mask.dim() == 2 else score + mask[h, i, j]

    changed = logit_cap is not None or mask is not None
    y = _way(q)(
        *(q, k, v, score_mod if changed else None, blocks),
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        return_aux=None if sinks is None else AuxRequest(lse=True),
    )
    return y if sinks is None else _with_sinks(y[0], y[1].lse, sinks)


def _with_sinks(y: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """y [B, h, n, hv], whose weights sum to one, with a sink's share taken away: e^lse / (e^lse + e^sink) is left."""
    return (y * (lse - sinks[:, None]).sigmoid()[..., None]).to(y.dtype)


def _way(q: Tensor) -> Callable[..., Any]:
    """torch's function as it is called here; where the whole pass is compiled, it becomes a kernel by that."""
    if torch.compiler.is_compiling():
        return flex_attention
    return _kernel() if q.is_cuda else _unfused


@functools.cache
def _kernel() -> Callable[..., Any]:
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, KERNELS)  # torch.compile takes it by itself from 2.13 on
    return torch.compile(flex_attention, fullgraph=True)


def _unfused(*given: Any, **named: Any) -> Any:
    """Without a kernel, and without the compiler that torch would only trace it with."""
    found = flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        return flex_attention(*given, **named)
    finally:
        flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = found


def blocks_of(locality: Locality, queries: Tensor, keys: Tensor) -> BlockMask:
    """Which of the queries at positions [n], which rise, see which keys at positions [m]; negative: an empty place.

    Blocks are told apart by their least and their greatest position; where those leave it open, each pair is asked.
    """

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return locality.sees(queries[i], keys[j])

    first, last = _ends(queries, queries[-1:])
    some, full = locality.blocks(first[:, None], last[:, None], *_ends(keys, keys.new_full((1,), -1)))
    whole = torch.arange(len(some), device=queries.device) < len(queries) // BLOCK  # the last one may be cut
    full = full & whole[:, None]
    return BlockMask.from_kv_blocks(
        *(*_listed(some & ~full), *_listed(full)),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(len(queries), len(keys)),
        compute_q_blocks=torch.is_grad_enabled(),  # what a backward pass reads
    )


def _ends(positions: Tensor, fill: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest position of each block; the last is filled up with `fill` [1]."""
    filled = torch.cat((positions, fill.expand(-len(positions) % BLOCK))).view(-1, BLOCK)
    return filled.amin(1), filled.amax(1)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """bool [rows, columns] -> how many of each row hold, [1, 1, rows], and all columns, these first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], order.int()[None, None]
