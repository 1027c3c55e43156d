"""What must hold of every composition, on random ones: on paper = built, cached = full, causal, deterministic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs, spread_weights
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from archlab.components.attention.backend import BACKENDS
from archlab.components.ffn.experts import Experts
from archlab.components.ffn.module import MixtureOfExperts
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.build import build, parameters_by_part
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec

BATCH = 2
CLOSE = 1e-11
"""Largest difference in float64, as a share of the largest logit."""


def float64(spec: DecoderSpec) -> Decoder:
    return spread_weights(build(spec, dtype="fp64")).eval()


def tokens(spec: DecoderSpec, count: int = CONTEXT) -> Tensor:
    return torch.randint(0, spec.vocab_size, (BATCH, count), generator=torch.Generator().manual_seed(1))


def close(given: Tensor, wanted: Tensor) -> bool:
    return bool((given - wanted).abs().max() <= CLOSE * wanted.abs().max().clamp(min=1))


def with_backend(decoder: Decoder, backend: str) -> Decoder:
    for layer in decoder.layers:
        layer.attention.backend = backend
    return decoder


def with_path(decoder: Decoder, path: str) -> Decoder:
    for module in decoder.modules():
        if isinstance(module, Experts):
            module.path = path
    return decoder


@given(specs())
@settings(max_examples=150)
def test_parameters_on_paper_are_those_built(spec: DecoderSpec) -> None:
    paper = parameters(spec)
    for device in ("cpu", "meta"):
        decoder = build(spec, device=device)
        assert sum(p.numel() for p in decoder.parameters()) == paper.total
        assert parameters_by_part(decoder) == paper.by_part
        assert used_by_one_token(decoder) == paper.active


def used_by_one_token(decoder: Decoder) -> int:
    """Parameters, of each stack of experts the share that a token is sent to."""
    shares = {id(p): Fraction(1) for p in decoder.parameters()}
    for layer in decoder.layers:
        for stack in layer.ffn.experts.parameters() if isinstance(layer.ffn, MixtureOfExperts) else ():
            shares[id(stack)] = Fraction(layer.ffn.router.spec.experts_per_token, len(stack))
    used = sum(p.numel() * shares[id(p)] for p in decoder.parameters())
    assert used == int(used)
    return int(used)


@given(specs(), st.integers(1, 3), st.integers(1, 40), st.sampled_from(["bf16", "fp16", "fp32", "fp64"]))
def test_cache_bytes_on_paper_are_those_allocated(spec: DecoderSpec, batch: int, length: int, dtype: str) -> None:
    length = min(length, spec.max_length or length)
    for device in ("cpu", "meta"):
        assert KVCache(spec, batch, length, dtype, device).nbytes == kv_cache(spec, batch, length, dtype).bytes


@pytest.mark.slow
@given(specs(), st.integers(1, CONTEXT - 1))
@settings(max_examples=60)
def test_flops_on_paper_are_those_counted(spec: DecoderSpec, prompt: int) -> None:
    decoder = with_backend(build(spec, device="meta"), "math").eval()
    ids = torch.zeros(BATCH, prompt + 1, dtype=torch.int64, device="meta")
    cache = KVCache(spec, BATCH, prompt + 1, torch.float32, "meta")
    paper = flops(spec, BATCH, prompt, 1, "full")
    assert counted(decoder, ids[:, :prompt], cache) == paper.prefill
    assert counted(decoder, ids[:, prompt:], cache) == paper.decode


def counted(decoder: Decoder, ids: Tensor, cache: KVCache) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        decoder(ids, cache)
    return counter.get_total_flops()


@given(specs(), st.lists(st.integers(1, CONTEXT), max_size=4), st.booleans())
@settings(max_examples=100)
@torch.no_grad()
def test_cached_decode_is_the_full_forward(spec: DecoderSpec, sizes: list[int], static: bool) -> None:
    decoder, ids = float64(spec), tokens(spec)
    full = decoder(ids)
    cache = KVCache(spec, BATCH, CONTEXT, torch.float64, static=static)
    for chunks in ([1] * CONTEXT, chunked(sizes)):
        cache.reset()
        rows = [decoder(part, cache) for part in ids.split(chunks, 1)]
        assert close(rows[-1] if spec.head.last_token_only else torch.cat(rows, 1), full)


def chunked(sizes: list[int]) -> list[int]:
    """`sizes` cut and filled up to the context."""
    chunks: list[int] = []
    for size in [*sizes, CONTEXT]:
        chunks.append(min(size, CONTEXT - sum(chunks)))
    return [size for size in chunks if size]


@given(specs(task_heads=False), st.integers(1, CONTEXT - 1), st.sampled_from(BACKENDS))
@settings(max_examples=60)
@torch.no_grad()
def test_a_later_token_never_changes_an_earlier_logit(spec: DecoderSpec, first: int, backend: str) -> None:
    decoder, ids = with_path(with_backend(float64(spec), backend), "gathered"), tokens(spec)  # row by row: no rounding
    other = ids.clone()
    other[:, first:] = (ids[:, first:] + 1) % spec.vocab_size
    before, after = decoder(ids), decoder(other)
    assert torch.equal(before[:, :first], after[:, :first])


@given(specs())
@settings(max_examples=60)
@torch.no_grad()
def test_eval_is_deterministic_at_any_dropout(spec: DecoderSpec) -> None:
    decoder, ids = float64(spec), tokens(spec)
    assert torch.equal(decoder(ids), decoder(ids))


@given(specs())
@settings(max_examples=60)
@torch.no_grad()
def test_every_attention_is_the_explicit_one(spec: DecoderSpec) -> None:
    decoder, ids = float64(spec), tokens(spec)
    wanted = with_backend(decoder, "math")(ids)
    for backend in ("sdpa", "flex"):
        assert close(with_backend(decoder, backend)(ids), wanted)


@given(specs(), st.lists(st.integers(1, CONTEXT), max_size=4), st.booleans())
@settings(max_examples=60)
@torch.no_grad()
def test_flex_attention_reads_a_cache_as_the_explicit_one(spec: DecoderSpec, sizes: list[int], static: bool) -> None:
    decoder, ids = float64(spec), tokens(spec)
    full = with_backend(decoder, "math")(ids)
    cache = KVCache(spec, BATCH, CONTEXT, torch.float64, static=static)
    rows = [with_backend(decoder, "flex")(part, cache) for part in ids.split(chunked(sizes), 1)]
    assert close(rows[-1] if spec.head.last_token_only else torch.cat(rows, 1), full)


@given(specs())
@settings(max_examples=60)
@torch.no_grad()
def test_every_way_through_the_experts_is_the_same(spec: DecoderSpec) -> None:
    decoder, ids = float64(spec), tokens(spec)
    wanted = with_path(decoder, "looped")(ids)
    for path in ("sorted", "gathered"):
        assert close(with_path(decoder, path)(ids), wanted)


@given(specs(task_heads=False))
@settings(max_examples=30)
@torch.no_grad()
def test_the_last_row_alone_is_the_last_row_of_all(spec: DecoderSpec) -> None:
    decoder, ids = float64(spec), tokens(spec)
    assert close(decoder(ids, last_only=True), decoder(ids)[:, -1:])
