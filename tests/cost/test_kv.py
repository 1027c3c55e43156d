"""The three columns of the KV cache, against archlab's tensors, published facts and plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imported import FACTS, fact, spec_of
from strategies import specs

import archlab
from archlab.components.locality import Locality
from archlab.cost.kv import ENGINES, Engine, kv_cache, valid_tp
from archlab.cost.storage import KV_STORAGE
from archlab.decoder.cache import KVCache
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.units import DTYPE_BYTES

COUNTS = st.integers(1, 30)
"""Of tokens: beyond the context too, where positions have no end."""


def within(spec: DecoderSpec, length: int) -> int:
    return min(length, spec.max_length or length)


LIMITS = st.none() | st.integers(1, 3000)


@given(specs(), COUNTS, COUNTS, st.integers(1, 3), st.sampled_from(sorted(DTYPE_BYTES)))
def test_allocated_is_what_the_caches_tensors_take(
    spec: DecoderSpec, batch: int, length: int, beams: int, dtype: str
) -> None:
    length = within(spec, length)
    cost = kv_cache(spec, batch, length, dtype, beams=beams)
    cache = KVCache(spec, batch * beams, length, dtype, "meta")
    assert cost.allocated == cache.nbytes
    for kind in cost.by_layer:
        held = [sum(tensor.nbytes for tensor in cache.layers[index].values()) for index in kind.layers]
        assert held == [kind.allocated] * len(kind.layers)


@given(specs(), COUNTS, st.sampled_from(sorted(KV_STORAGE)))
def test_required_is_the_sum_over_layers_heads_and_tokens_in_sight(spec: DecoderSpec, length: int, dtype: str) -> None:
    """By loops, each head's row of a token with its scales, and the last query's view of the tokens."""
    total, length = 0, within(spec, length)
    for layer in spec.layers:
        attention = layer.attention
        window, chunk = getattr(attention, "window", None), getattr(attention, "chunk", None)
        tokens = min(length, window or chunk or length)
        for tensor in attention.cached():
            total += tokens * sum(row_bytes(tensor.width, dtype) for _ in range(tensor.heads))
    assert kv_cache(spec, 1, length, dtype).required == total


def row_bytes(width: int, dtype: str) -> int:
    quantised = {"fp8": width, "int8": width + 2, "int4": math.ceil(width / 2) + 4 * math.ceil(width / 32)}
    return quantised[dtype] if dtype in quantised else width * DTYPE_BYTES[dtype]


@pytest.mark.parametrize("name", FACTS)
def test_required_below_and_above_the_window_is_the_fact(name: str) -> None:
    known = fact(name)
    spec, window = spec_of(known["hf_config"]), known["kv_window"] or 4096
    each, rest = divmod(known["kv_bytes_per_token_bf16"], spec.n_layers)
    assert rest == 0
    for context in {within(spec, context) for context in (1, window - 1, window, window + 1, 3 * window)}:
        local = len(known["kv_sliding_layers"])
        expected = each * (local * min(context, window) + (spec.n_layers - local) * context)
        assert kv_cache(spec, 1, context).required == expected


@given(LIMITS, st.integers(1, 5000), st.integers(1, 64))
def test_pages_hold_what_is_in_sight_wherever_it_lies(window: int | None, context: int, block: int) -> None:
    """Blocks that the last query's keys lie in, counted one by one; vLLM sets one more aside at most for a window."""
    first = 0 if window is None else max(0, context - window)
    touched = len({position // block for position in range(first, context)})
    slots = Engine(block=block).slots(Locality(window=window), context)
    assert slots % block == 0
    assert touched * block <= slots <= (touched + (window is not None)) * block
    assert Engine("full_pages", block).slots(Locality(window=window), context) == len(range(0, context, block)) * block


@pytest.mark.parametrize(
    ("window", "context", "slots"), [(4, 100, 8), (128, 100, 112), (128, 144, 144), (128, 500, 144), (130, 500, 160)]
)
def test_pages_of_a_window_are_vllms(window: int, context: int, slots: int) -> None:
    """ceil(min(W - 1 + 1, context) / block) + 1 blocks, never more than the context's: SlidingWindowSpec."""
    block = 4 if window == 4 else 16
    assert Engine(block=block).slots(Locality(window=window), context) == slots


@pytest.mark.parametrize(
    ("window", "context", "cells"), [(None, 4000, 4096), (512, 4096, 1024), (512, 700, 768), (1024, 100_000, 1536)]
)
def test_cells_of_llama_cpp(window: int | None, context: int, cells: int) -> None:
    assert Engine("llama_cpp").slots(Locality(window=window), context) == cells


@given(specs(), COUNTS, st.sampled_from(sorted(ENGINES)), st.integers(1, 32))
def test_engines_set_aside_no_less_than_is_required(spec: DecoderSpec, length: int, kind: str, block: int) -> None:
    cost = kv_cache(spec, 2, within(spec, length), engine=Engine(kind, block))
    assert cost.required <= cost.engine


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4))
def test_heads_per_device_are_those_that_its_queries_read(groups: int, kv_heads: int, extra: int) -> None:
    """Query head i reads KV head i // group (Ainslie et al. 2023); devices take neighbouring query heads."""
    heads = groups * kv_heads
    spec = gqa(heads, kv_heads)
    whole = kv_cache(spec, 1, 1).bytes_per_token
    for tp in valid_tp(spec):
        share = heads // tp
        read = [{head // groups for head in range(at * share, (at + 1) * share)} for at in range(tp)]
        assert {len(kept) for kept in read} == {kv_cache(spec, 1, 1, tp=tp).bytes_per_token * kv_heads // whole}
    assert all(tp in valid_tp(spec) for tp in (1, heads, kv_heads))
    with pytest.raises(ConfigError):
        kv_cache(spec, tp=heads + extra)


def gqa(n_heads: int, n_kv_heads: int) -> DecoderSpec:
    model: dict[str, Any] = {
        "d_model": 8,
        "n_layers": 1,
        "vocab_size": 5,
        "context": 4,
        "norm": {"choice": "rmsnorm"},
        "position": {"choice": "none"},
        "attention": {"choice": "gqa", "n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": 2},
        "ffn": {"choice": "swiglu", "d_ff": 4},
        "dropout": {"choice": "none"},
        "head": {"choice": "tied"},
        "block": {"choice": "pre_norm"},
    }
    return resolve(model).spec


@pytest.mark.parametrize(
    ("cache", "device"), [("latent", 61 * 576 * 2), ("expanded", 61 * (128 // 8) * (192 + 128) * 2)]
)
def test_a_latent_is_on_each_device_and_expanded_heads_are_shared(cache: str, device: int) -> None:
    spec = archlab.load("deepseek-v3", f"model.attention.cache={cache}")
    assert kv_cache(spec, 1, 1, tp=8).bytes_per_token == device


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"batch": 0}, "batch: 0 is not a whole number of 1 or more"),
        ({"context": -1}, "context: -1 is not"),
        ({"beams": True}, "beams: True is not"),
        ({"beams": 1.5}, "beams: 1.5 is not"),
        ({"tp": 0}, "tp: 0 is not"),
        ({"tp": 3}, "tp: 3 does not divide n_heads = 8; valid: 1, 2, 4, 8"),
        ({"dtype": "int5"}, r"dtype: 'int5' is nothing .* did you mean int[48]\?; valid: bf16"),
        ({"dtype": None}, "dtype: None is nothing"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        kv_cache(gqa(8, 2), **asked)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"kind": "paged_"}, "engine: no engine 'paged_'; did you mean paged"),
        ({"block": 0}, "block: 0 is not"),
        ({"micro_batch": -1}, "micro_batch: -1 is not"),
    ],
)
def test_engines_that_cannot_be(made: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Engine(**made)
