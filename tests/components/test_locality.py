"""Windows and chunks: what a query sees, on paper, in the mask, and in what is kept; against plain loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.span import Span, TensorSpan, causal_mask

CPU = torch.device("cpu")
LIMITS = st.integers(1, 9)
LOCALITIES = st.just(EVERYWHERE) | LIMITS.map(lambda n: Locality(window=n)) | LIMITS.map(lambda n: Locality(chunk=n))


def sees(locality: Locality, query: int, key: int) -> bool:
    if locality.window is not None:
        return query - locality.window < key <= query
    return key <= query and (locality.chunk is None or key // locality.chunk == query // locality.chunk)


def test_d04_a_window_counts_the_current_token() -> None:
    """127 older keys and the query's own, as transformers' and gpt-oss' sliding_window = 128."""
    window = Locality(window=128)
    seen = window.visible(torch.tensor([999]), torch.arange(1000))[0].nonzero().flatten()
    assert seen.tolist() == list(range(872, 1000))
    assert window.kept(1000) == len(seen) == window.pairs(1000) - window.pairs(999)


def test_d04_windows_and_chunks_are_those_of_transformers() -> None:
    from transformers.masking_utils import chunked_causal_mask_function, sliding_window_causal_mask_function

    places = torch.arange(12)
    for theirs, ours in (
        (sliding_window_causal_mask_function(5), Locality(window=5)),
        (chunked_causal_mask_function(5, torch.zeros(1, dtype=torch.int64)), Locality(chunk=5)),
    ):
        seen = [[bool(theirs(places[0], places[0], q, k)) for k in places] for q in places]
        assert ours.visible(places, places).tolist() == seen


@given(LOCALITIES, st.integers(0, 40))
def test_pairs_are_those_that_see_each_other(locality: Locality, length: int) -> None:
    places = range(length)
    assert locality.pairs(length) == sum(sees(locality, q, k) for q in places for k in places)
    assert not length or locality.seen(length) == sum(sees(locality, length - 1, k) for k in places)


@given(LOCALITIES, st.lists(st.integers(1, 7), min_size=1, max_size=6), st.booleans())
def test_what_is_kept_is_what_is_seen(locality: Locality, counts: list[int], by_tensor: bool) -> None:
    """A cache that holds each token's own position: every query reads every key that it sees, once, and no other."""
    length, start = sum(counts), 0
    held = torch.full((1, 1, locality.kept(length), 1), -1)
    for count in counts:
        positions = torch.arange(start, start + count)
        span = TensorSpan(positions, length) if by_tensor else Span(start, count)
        read = span.write(held, positions.view(1, 1, -1, 1), locality).flatten()
        mask, keys = span.mask(CPU, locality), span.keys(CPU, locality)
        assert keys.shape == read.shape
        mask = causal_mask(count, len(read), CPU) if mask is None else mask
        for query, row in zip(positions.tolist(), mask, strict=True):
            wanted = [key for key in range(query + 1) if sees(locality, query, key)]
            assert sorted(read[row].tolist()) == wanted
            assert sorted(keys[row].tolist()) == wanted
        start += count


@pytest.mark.parametrize("locality", [Locality(window=4), Locality(chunk=4)])
def test_one_token_reads_only_what_it_sees(locality: Locality) -> None:
    held = torch.zeros(1, 1, 4, 1)
    for start in range(11):
        span = Span(start, 1)
        seen = sum(sees(locality, start, key) for key in range(start + 1))
        assert span.write(held, torch.ones(1, 1, 1, 1), locality).shape[2] == seen
        assert span.mask(CPU, locality) is None


def test_keys_of_a_cache_that_is_no_ring_lie_in_order() -> None:
    """Without arithmetic on the position, which torch's compiler would take into flex attention's kernel, and fails."""
    span = TensorSpan(torch.arange(2, 5), 8)
    assert span.keys(CPU, EVERYWHERE).tolist() == list(range(8))
    assert span.mask(CPU, EVERYWHERE).tolist() == [[key <= query for key in range(8)] for query in (2, 3, 4)]
