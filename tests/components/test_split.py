"""A decode step over keys in parts, and heads of two widths: against the softmax written out in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import archlab
from archlab.bench import backends
from archlab.components.attention import split
from archlab.components.attention.attend import attend
from archlab.components.attention.sight import numbers
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder

SMALL = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=61", "model.context=64", "model.attention.n_heads=4")
CLOSE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2}


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def added(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if mask is None else numbers(mask, dtype, finite=True)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None, scale: float) -> Tensor:
    """Head by head, query by query: no step of it is a tensor's."""
    q, k, v = (t.double() for t in (q, k, v))
    y = q.new_zeros(*q.shape[:3], v.shape[-1])
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores = scale * (k[b, h // group] @ q[b, h, i])
                if mask is not None and mask.dtype == torch.bool:
                    scores = torch.where(mask[i], scores, -math.inf)
                elif mask is not None:
                    scores = scores + mask[h, i]
                weights = scores.exp()
                below = weights.sum() + (0.0 if sinks is None else sinks[h].double().exp())
                y[b, h, i] = (weights / below) @ v[b, h // group]
    return y


@given(
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    keys=st.integers(1, 90),
    parts=st.integers(1, 5),
    mask=st.sampled_from(["none", "some", "first", "added"]),
    sunk=st.booleans(),
    dtype=st.sampled_from(list(CLOSE)),
)
@settings(max_examples=150)
def test_parts_put_together_are_the_whole(
    batch: int, kv_heads: int, group: int, keys: int, parts: int, mask: str, sunk: bool, dtype: torch.dtype
) -> None:
    """Also where all keys of a part are hidden, where some are left over, and where the cache has room for more."""
    parts = parts if keys >= parts * split.ALIGNED else 1
    heads, width = kv_heads * group, 16
    q = drawn(batch, heads, 1, width, seed=1, dtype=dtype)
    k, v = (drawn(batch, kv_heads, keys + 3, width, seed=seed, dtype=dtype)[:, :, :keys] for seed in (2, 3))
    hidden = drawn(1, keys, seed=4) < 0
    hidden[0, 0] = False
    masks = {
        "none": None,
        "some": ~hidden,
        "first": torch.arange(keys)[None] < 1,
        "added": drawn(heads, 1, keys, seed=5).masked_fill(hidden, -math.inf),
    }
    sinks = drawn(heads, seed=6) if sunk else None
    found = split.in_parts(q, k, v, added(masks[mask], dtype), sinks, 0.25, parts)
    assert (found.shape, found.dtype) == ((batch, heads, 1, width), dtype)
    assert torch.allclose(found.double(), by_hand(q, k, v, masks[mask], sinks, 0.25), rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize(
    ("threads", "batch", "kv_heads", "keys", "parts"),
    [
        (1, 1, 1, 100_000, 1),
        (2, 1, 1, 8191, 1),  # a part has 4,096 at least
        (2, 1, 1, 8192, 2),
        (2, 1, 2, 100_000, 1),  # as many as there are threads
        (16, 1, 2, 65_536, 8),
        (16, 2, 1, 12_300, 3),
        (16, 1, 3, 100_000, 5),
        (12, 1, 1, 65_536, 8),  # 12 would leave keys over
    ],
)
@torch.no_grad()
def test_as_many_parts_as_keep_the_threads_busy(
    threads: int, batch: int, kv_heads: int, keys: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    q, k = torch.empty(batch, 6, 1, 1), torch.empty(batch, kv_heads, keys, 1)
    assert split.parts_of(q, k, k, None) == (parts if parts > 1 else 0)
    assert split.parts_of(q, k, k, None, torch.zeros(6)) == parts  # a sink asks for log-sums in any case
    assert split.parts_of(q, k[:, :, :4095], k[:, :, :4095], None, torch.zeros(6)) == 0  # but where it costs more


@pytest.fixture
def eager_to_split(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Parts of a few keys already; how many there were each time."""
    made: list[int] = []
    whole = split.in_parts

    def noted(*given: Any) -> Tensor:
        made.append(given[-1])
        return whole(*given)

    monkeypatch.setattr(split, "LEAST_KEYS", {"cpu": 8})
    monkeypatch.setattr(split, "_workers", lambda device: 12)
    monkeypatch.setattr("archlab.components.attention.attend.in_parts", noted)
    return made


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    "overrides",
    [
        ("model/attention=mqa",),
        ("model.attention.n_kv_heads=2",),
        ("model/attention=mqa", "model.attention.window=20"),
        ("model/attention=mqa", "model/position=alibi"),
        ("model.attention.sinks=true",),
        ("model/attention=mla",),
        ("model/attention=mla", "model/position=t5"),
    ],
)
@torch.no_grad()
def test_a_sequence_token_by_token_is_the_sequence_at_once(
    overrides: tuple[str, ...], static: bool, eager_to_split: list[int]
) -> None:
    spec = archlab.load("gqa", *SMALL, *overrides)
    decoder = archlab.build(spec, dtype="fp64").eval()
    ids = torch.randint(61, (2, 50), generator=torch.Generator().manual_seed(0))
    cache = KVCache(spec, 2, 50, "fp64", "cpu", static=static)
    rows = [decoder(ids[:, :30], cache), *(decoder(ids[:, [at]], cache) for at in range(30, 50))]
    assert torch.allclose(torch.cat(rows, 1), decoder(ids), rtol=0, atol=1e-10)
    assert len(eager_to_split) == 2 * 20
    assert max(eager_to_split) > 1


def seen(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> set[str]:
    return set(backends.seen(lambda: attend(q, k, v, scale=0.25, **options), 1))


@pytest.mark.parametrize("mask", ["causal", "window"])
@torch.no_grad()
def test_sinks_take_no_scores(mask: str) -> None:
    """A prompt's scores [h, n, n], and a mask by head of as many, are more than any tensor that is made."""
    q, k, sinks = drawn(1, 8, 64, 16), drawn(1, 2, 64, 16), drawn(8)
    visible = torch.ones(64, 64, dtype=torch.bool).tril()
    visible = visible if mask == "causal" else visible.triu(-9)
    with Largest() as made:
        found = attend(
            q, k, k, scale=0.25, causal=mask == "causal", mask=visible if mask == "window" else None, sinks=sinks
        )
    assert torch.allclose(found, by_hand(q, k, k, visible, sinks, 0.25), rtol=0, atol=1e-12)
    assert made.numbers < 8 * 64 * 64


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that anything gave."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        tensors = [t for t in (given if isinstance(given, tuple) else (given,)) if isinstance(t, Tensor)]
        self.numbers = max(self.numbers, *(t.numel() for t in tensors))
        return given


@torch.no_grad()
def test_a_backend_that_was_named_is_the_one_that_runs(eager_to_split: list[int]) -> None:
    q, k = drawn(1, 4, 1, 16), drawn(1, 1, 40, 16)
    with sdpa_kernel([SDPBackend.MATH]):
        assert seen(q, k, k) == {"math"}
    assert not eager_to_split
    assert seen(q, k, k) == {"flash"}
    assert eager_to_split


def test_what_is_trained_or_dropped_goes_the_usual_way(eager_to_split: list[int]) -> None:
    q, k, sinks = drawn(1, 4, 1, 16).requires_grad_(), drawn(1, 1, 40, 16), drawn(4)
    attend(q, k, k, scale=0.25, sinks=sinks).sum().backward()
    wanted = torch.autograd.functional.jacobian(lambda x: by_hand(x, k, k, None, sinks, 0.25).sum(), q.detach())
    assert torch.allclose(q.grad if q.grad is not None else q, wanted, rtol=0, atol=1e-12)
    attend(q.detach(), k, k, scale=0.25, dropout_p=0.5)
    assert not eager_to_split


@pytest.mark.parametrize(("wide", "narrow"), [(24, 16), (16, 24)])
@pytest.mark.parametrize("masked", ["causal", "some", "added"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_heads_of_two_widths_run_on_one_kernel(wide: int, narrow: int, masked: str, kv_heads: int) -> None:
    """Queries and keys of one width, values of another; gradients too."""
    given = [drawn(2, 4, 7, wide), drawn(2, kv_heads, 7, wide, seed=1), drawn(2, kv_heads, 7, narrow, seed=2)]
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    masks = {"causal": None, "some": causal & ~torch.eye(7, dtype=torch.bool).roll(-1, 1)}
    masks["added"] = drawn(4, 7, 7, seed=3).masked_fill(~causal, -math.inf)
    options = {"causal": True} if masked == "causal" else {"mask": masks[masked]}
    assert seen(*given, **options) == {"flash"}
    mask = causal if masked == "causal" else masks[masked]
    ours, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    y = attend(*ours, scale=0.25, **options)
    group = 4 // kv_heads
    scores = 0.25 * theirs[0] @ theirs[1].repeat_interleave(group, 1).mT
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    wanted = scores.softmax(-1) @ theirs[2].repeat_interleave(group, 1)
    assert torch.allclose(y, wanted, rtol=0, atol=1e-12)
    assert torch.allclose(y, by_hand(*given, mask, None, 0.25), rtol=0, atol=1e-12)
    weights = drawn(*y.shape, seed=9)
    (y * weights).sum().backward()
    (wanted * weights).sum().backward()
    for found, right in zip(ours, theirs, strict=True):
        assert found.grad is not None
        assert torch.allclose(found.grad, right.grad, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_latent_is_read_by_the_fused_kernel() -> None:
    spec = archlab.load("gqa", *SMALL, "model/attention=mla")
    decoder: Decoder = archlab.build(spec).eval()
    cache = KVCache(spec, 1, 40, "fp32", "cpu")
    ids = torch.zeros(1, 30, dtype=torch.int64)
    assert set(backends.seen(lambda: decoder(ids, cache), 2)) == {"flash"}
    assert set(backends.seen(lambda: decoder(ids[:, :1], cache), 2)) == {"flash"}


@pytest.mark.parametrize(
    ("width", "values", "masked", "sunk", "dtype", "parts"),
    [
        (64, 64, False, False, torch.bfloat16, 0),  # flash attention, which splits the keys by itself
        (64, 64, False, True, torch.bfloat16, 32),  # it gives no log-sums to a sink
        (64, 64, True, False, torch.bfloat16, 32),
        (64, 48, False, False, torch.bfloat16, 32),  # it takes one width, 256 at most, and 16 bits
        (288, 288, False, False, torch.bfloat16, 32),
        (64, 64, False, False, torch.float32, 32),
        (64, 64, True, False, torch.float64, 0),  # nor does the other take so many
    ],
)
@torch.no_grad()
def test_what_cuda_splits_by_itself_is_left_to_it(
    width: int, values: int, masked: bool, sunk: bool, dtype: torch.dtype, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """132 processors, two blocks each, for 8 KV heads: 33 parts, or one less that leaves no keys over."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr(split, "_workers", lambda device: 264)
    monkeypatch.setattr(split, "_is_allowed", lambda kind: True)
    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (
            torch.empty(1, heads, count, features, dtype=dtype, device="cuda")
            for heads, count, features in ((32, 1, width), (8, 8192, width), (8, 8192, values))
        )
        mask = torch.empty(1, 8192, dtype=torch.bool, device="cuda") if masked else None
        sinks = torch.empty(32, device="cuda") if sunk else None
        assert split.parts_of(q, k, v, mask, sinks) == parts


@pytest.mark.gpu
@pytest.mark.parametrize("masked", ["none", "some", "first", "added"])
@pytest.mark.parametrize(("width", "values"), [(576, 512), (128, 128), (72, 64)])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_on_cuda(masked: str, width: int, values: int, parts: int) -> None:
    q, k = (drawn(2, heads, count, width, dtype=torch.bfloat16) for heads, count in ((8, 1), (2, 1003)))
    v, sinks, keys = k[..., :values], drawn(8, seed=6), torch.arange(1003)[None]
    masks = {"none": None, "some": keys % 3 < 2, "first": keys < 1, "added": drawn(8, 1, 1003, seed=5)}
    mask = masks[masked]
    there = [None if t is None else t.cuda() for t in (mask, sinks)]
    there[0] = added(there[0], torch.bfloat16)
    found = split.in_parts(q.cuda(), k.cuda(), v.cuda(), *there, 0.05, parts)
    assert torch.allclose(found.cpu().double(), by_hand(q, k, v, mask, sinks, 0.05), rtol=0, atol=2e-2)


@pytest.mark.parametrize(
    ("masked", "dtype", "width", "values", "taken"),
    [
        (False, torch.bfloat16, 64, 64, True),
        (True, torch.bfloat16, 64, 64, False),
        (False, torch.bfloat16, 64, 32, False),
        (False, torch.float32, 64, 64, False),
        (False, torch.bfloat16, 256, 256, True),
        (False, torch.bfloat16, 264, 264, False),
    ],
)
def test_cuda_shares_heads_where_flash_attention_runs(
    masked: bool, dtype: torch.dtype, width: int, values: int, taken: bool
) -> None:
    """In 16 bits, without a mask, for heads of one width (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, v = (torch.empty(1, 8, 40, features, dtype=dtype, device="cuda") for features in (width, values))
        mask = torch.empty(40, 40, dtype=torch.bool, device="cuda") if masked else None
    assert split.takes_flash(q, v, mask) == taken
    assert not split.takes_flash(drawn(1, 8, 40, 64), drawn(1, 2, 40, 64), None)


@given(batch=st.integers(1, 2), kv_heads=st.integers(1, 3), group=st.integers(1, 3))
def test_a_copy_for_each_head_is_read_as_the_shared_one(batch: int, kv_heads: int, group: int) -> None:
    q, k = drawn(batch, kv_heads * group, 5, 4, seed=1), drawn(batch, kv_heads, 5, 4, seed=2)
    keys, values = split.by_head(k, k + 1, kv_heads * group)
    assert keys.shape == values.shape == (batch, kv_heads * group, 5, 4)
    visible = torch.ones(5, 5).tril().bool()
    assert torch.allclose(by_hand(q, keys, values, visible, None, 0.5), by_hand(q, k, k + 1, visible, None, 0.5))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@torch.no_grad()
def test_shared_heads_under_a_mask_take_no_explicit_softmax_on_cuda(dtype: torch.dtype) -> None:
    q, k, visible = drawn(2, 8, 61, 64, dtype=dtype), drawn(2, 2, 61, 64, dtype=dtype), torch.ones(61, 61).tril().bool()
    given = [t.cuda() for t in (q, k, k, visible.triu(-9))]
    found = attend(*given[:3], scale=0.1, mask=given[3])
    assert torch.allclose(found.cpu().double(), by_hand(q, k, k, visible.triu(-9), None, 0.1), rtol=0, atol=2e-2)
    assert not {"math"} & set(backends.seen(lambda: attend(*given[:3], scale=0.1, mask=given[3]), 1))


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 9])
@torch.no_grad()
def test_sinks_by_log_sums_on_cuda(window: int | None) -> None:
    q, k, sinks = (drawn(2, 8, 61, 64, dtype=torch.bfloat16), drawn(2, 2, 61, 64, dtype=torch.bfloat16), drawn(8))
    visible = torch.ones(61, 61, dtype=torch.bool).tril()
    visible = visible if window is None else visible.triu(1 - window)
    mask = None if window is None else visible.cuda()
    found = attend(*(t.cuda() for t in (q, k, k)), scale=0.1, causal=window is None, mask=mask, sinks=sinks.cuda())
    assert torch.allclose(found.cpu().double(), by_hand(q, k, k, visible, sinks, 0.1), rtol=0, atol=2e-2)
