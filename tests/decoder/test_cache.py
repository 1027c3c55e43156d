"""The KV cache: what it holds, what it refuses, and that it can be used again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_decoder import MODEL, decoder, ids, spec

from archlab.decoder.cache import KVCache
from archlab.errors import RequestError


def test_its_tensors_are_what_attention_says_it_keeps() -> None:
    cache = KVCache(spec(), 3, 10, "bf16")
    assert [sorted(layer) for layer in cache.layers] == [["key", "value"]] * 2
    assert cache.layers[0]["key"].shape == (3, 2, 10, 4)
    assert cache.nbytes == 2 * 2 * 3 * 2 * 10 * 4 * 2
    assert (cache.position.dtype, cache.position.shape) == (torch.int64, ())


def test_overflow_is_refused_with_both_numbers_and_changes_nothing() -> None:
    model, cache = decoder(), KVCache(spec(), 2, 10)
    model(ids(), cache)
    held = cache.layers[0]["key"].clone()
    with pytest.raises(RequestError, match=r"room for 10 tokens and holds 9; 2 more"):
        model(ids(count=2), cache)
    assert cache.held == 9
    assert torch.equal(cache.layers[0]["key"], held)


def test_another_batch_is_refused() -> None:
    with pytest.raises(RequestError, match="holds 3 sequences; 2 were given"):
        decoder()(ids(), KVCache(spec(), 3, 10))


@pytest.mark.parametrize(("batch", "length"), [(0, 5), (1, 0)])
def test_an_empty_cache_is_refused(batch: int, length: int) -> None:
    with pytest.raises(RequestError, match="1 or more"):
        KVCache(spec(), batch, length)


LOCAL: list[dict[str, Any]] = [{}, {"window": 4}, {"chunk": 4}]


@pytest.mark.parametrize("attention", LOCAL, ids=["all", "window", "chunk"])
@pytest.mark.parametrize("static", [False, True])
@torch.no_grad()
def test_reset_starts_anew(static: bool, attention: dict[str, Any]) -> None:
    model = decoder(attention=MODEL["attention"] | attention)
    cache = KVCache(model.spec, 2, 12, static=static)
    first = model(ids(), cache)
    cache.reset()
    assert cache.held == 0
    assert torch.equal(model(ids(), cache), first)
    assert cache.held == cache.position.item() == 9


def test_a_layer_that_sees_so_far_has_so_many_slots() -> None:
    pattern = [{"attention": {"window": 4}}, {"attention": {"chunk": 30}}]
    cache = KVCache(spec(layers=pattern), 3, 10, "bf16")
    assert [layer["key"].shape for layer in cache.layers] == [(3, 2, 4, 4), (3, 2, 10, 4)]


@torch.no_grad()
def test_a_narrower_cache_keeps_the_models_dtype() -> None:
    model, cache = decoder(), KVCache(spec(), 2, 12, "bf16")
    out = torch.cat([model(token, cache) for token in ids().split(1, 1)], 1)
    assert out.dtype == torch.float32
    assert (out - model(ids())).abs().max() < 0.05 * out.abs().max()


def test_it_keeps_no_graph() -> None:
    model, cache = decoder(), KVCache(spec(), 2, 12)
    model(ids(), cache)
    assert not any(tensor.requires_grad for layer in cache.layers for tensor in layer.values())
