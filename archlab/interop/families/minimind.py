"""MiniMind, dense and with experts: jingyaogong/minimind."""

from __future__ import annotations

import math

from archlab.interop.families.moe import mixture
from archlab.interop.family import Family
from archlab.interop.layout import moe_layout
from archlab.interop.parts import (
    Block,
    Model,
    dropout,
    gate,
    head,
    head_dim_of,
    heads,
    plain_ffn,
    pre_norm,
    rate,
    rmsnorm,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import rope

ORIGINAL = 2048
YARN = {
    "rope_type": "yarn",
    "factor": 16,
    "original_max_position_embeddings": ORIGINAL,
    "beta_fast": 32,
    "beta_slow": 1,
    "attention_factor": 1.0,
}
"""What inference_rope_scaling stands for, whatever rope_scaling says beside it."""


def minimind(f: Fields) -> Model:
    size = sizes(f, d_model=768, n_layers=8, vocab_size=6400, context=32768)
    every = rate(f, "residual_dropout")
    d_ff = f.whole("intermediate_size", None, null=None) or math.ceil(math.pi * size["d_model"] / 64) * 64
    act = gate(f)
    attention = heads(f, size, 8, 4)
    return {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": _rope(f, size, head_dim_of(size, attention)),
        "attention": {**attention, "qk_norm": "head"},
        "ffn": _experts(f, act, d_ff) if f.flag("use_moe", False) else _dense(f, act, d_ff),
        "dropout": dropout(every, every, every),
        "head": head(f, tied=True),
        "block": pre_norm(),
    }


def _experts(f: Fields, act: str, d_ff: int) -> Block:
    expert = plain_ffn(act, f.whole("moe_intermediate_size", d_ff, null=d_ff))
    return mixture(f, expert, 4, 1, normalise=f.flag("norm_topk_prob", True))


def _dense(f: Fields, act: str, d_ff: int) -> Block:
    """The settings of experts are written in every file; without use_moe nobody reads them."""
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"):
        f.spelled(name)
    return plain_ffn(act, d_ff)


def _rope(f: Fields, size: Model, head_dim: int) -> Block:
    if not f.flag("inference_rope_scaling", False):
        return rope(f, size, 1e6)
    block = rope(f.instead(rope_scaling=YARN), size, 1e6)
    if size["context"] <= ORIGINAL:  # nothing to stretch
        return {"choice": "rope", "base": block["base"]}
    return {**block, "beta_slow": _slow_end(block["base"], head_dim)}


def _slow_end(base: float, head_dim: int) -> float:
    """beta_slow, by which the ramp ends at the last pair where it would run past it; other YaRNs let it."""
    last, turns = head_dim // 2 - 1, ORIGINAL / (2 * math.pi)
    if base <= 1 or math.ceil(head_dim * math.log(turns) / (2 * math.log(base))) <= last:
        return 1.0
    return turns * base ** ((1 - 2 * last) / head_dim)  # the pair before the last and a half, which is rounded up


FAMILIES = (
    Family("minimind", "MiniMindForCausalLM", minimind, moe_layout(), spelling={"residual_dropout": "dropout"}),
)
