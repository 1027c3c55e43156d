"""Flex attention: the blocks that it reads against the mask itself, no mask on the way, and what it leaves to math."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import BlockMask
from torch.utils._python_dispatch import TorchDispatchMode

from archlab.components.attention import flex as flex_file
from archlab.components.attention.attend import attend
from archlab.components.attention.backend import backend_used, flex_lacks
from archlab.components.attention.flex import blocks_of
from archlab.components.attention.sight import Sight
from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.position.module import NoPosition
from archlab.components.span import Span, TensorSpan
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve

CPU = torch.device("cpu")
LIMITS = st.integers(1, 9)
LOCALITIES = st.just(EVERYWHERE) | LIMITS.map(lambda n: Locality(window=n)) | LIMITS.map(lambda n: Locality(chunk=n))

MODEL: dict[str, Any] = {
    "d_model": 32,
    "n_layers": 2,
    "vocab_size": 61,
    "context": 512,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2},
    "ffn": {"choice": "swiglu"},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
PATTERN = [{"attention": {"window": 40, "sinks": True}}, {"attention": {"logit_cap": 5.0}}]


def decoder(dtype: str = "fp64", device: str = "cpu", **axes: Any) -> Decoder:
    """The model on flex attention, in eval mode."""
    return build(resolve(MODEL | axes).spec.on_backend("flex"), device, dtype).eval()


def on(model: Decoder, backend: str) -> Decoder:
    for layer in model.layers:
        layer.attention.backend = backend
    return model


def ids(count: int) -> Tensor:
    return torch.randint(0, 61, (2, count), generator=torch.Generator().manual_seed(3))


def listed(counts: Tensor, columns: Tensor, row: int) -> set[int]:
    return set(columns[0, 0, row, : counts[0, 0, row]].tolist())


def kinds(blocks: BlockMask, row: int) -> tuple[set[int], set[int]]:
    """The blocks of keys that a block of queries reads pair by pair, and those that it reads whole."""
    return listed(blocks.kv_num_blocks, blocks.kv_indices, row), listed(
        blocks.full_kv_num_blocks, blocks.full_kv_indices, row
    )


@given(LOCALITIES, st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans())
def test_blocks_are_told_apart_as_the_mask_has_them(locality: Locality, counts: list[int], by_tensor: bool) -> None:
    """Through a cache, rings too: a block read whole is seen whole, and one that is not read is not seen at all."""
    length, start, size = sum(counts), 0, 4
    for count in counts:
        queries = torch.arange(start, start + count)
        span = TensorSpan(queries, length) if by_tensor else Span(start, count)
        keys = span.keys(CPU, locality)
        with patch.object(flex_file, "BLOCK", size):
            blocks = blocks_of(locality, queries, keys)
        visible = locality.visible(queries, keys)
        for row, rows in enumerate(visible.split(size)):
            asked, whole = kinds(blocks, row)
            assert not asked & whole
            for column, part in enumerate(rows.split(size, 1)):
                if column in whole:
                    assert part.all()
                    assert part.shape == (size, size)
                elif column not in asked:
                    assert not part.any()
        start += count


@pytest.mark.parametrize("locality", [EVERYWHERE, Locality(window=300), Locality(window=128), Locality(chunk=200)])
def test_no_more_blocks_are_read_than_hold_a_pair(locality: Locality) -> None:
    places = torch.arange(1024)
    blocks, seen = blocks_of(locality, places, places), locality.visible(places, places)
    for row, rows in enumerate(seen.split(128)):
        parts = rows.split(128, 1)
        some = {column for column, part in enumerate(parts) if part.any()}
        full = {column for column, part in enumerate(parts) if part.all()}
        assert kinds(blocks, row) == (some - full, full)


@pytest.mark.parametrize("locality", [EVERYWHERE, Locality(window=50), Locality(chunk=130)])
@pytest.mark.parametrize(("start", "count"), [(0, 300), (150, 150), (299, 1)])
def test_a_sight_of_several_blocks_is_its_mask(locality: Locality, start: int, count: int) -> None:
    span = TensorSpan(torch.arange(start, start + count), 300)
    sight = Sight(NoPosition(), span, locality, CPU)
    keys = span.keys(CPU, locality)
    q, k = torch.randn(2, 4, count, 8).double(), torch.randn(2, 2, len(keys), 8).double()
    v, sinks = torch.randn(2, 2, len(keys), 6).double(), torch.randn(4).double()
    given = attend(q, k, v, scale=0.3, mask=sight, sinks=sinks, logit_cap=2.0, backend="flex")
    scores = 2.0 * torch.tanh(0.3 * q @ k.repeat_interleave(2, 1).mT / 2.0)
    powers = torch.where(locality.visible(span.at, keys), scores, -math.inf).exp()
    weights = powers / (powers.sum(-1, keepdim=True) + sinks.exp()[:, None, None])
    assert torch.allclose(given, weights @ v.repeat_interleave(2, 1), rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """The most elements of a tensor that was made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.elements = max(self.elements, made.numel())
        return made


def test_blocks_are_made_without_a_mask() -> None:
    sight = Sight(NoPosition(), Span(0, 4096), Locality(window=512), CPU)
    with Largest() as largest:
        assert sight.blocks.shape[-2:] == (4096, 4096)
    assert largest.elements == 4096


@torch.no_grad()
def test_a_model_on_flex_attention_asks_for_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder(layers=PATTERN)
    full = on(model, "math")(ids(60))
    monkeypatch.setattr(NoPosition, "mask", lambda *_: pytest.fail("a mask was made"))
    assert torch.allclose(on(model, "flex")(ids(60)), full, rtol=0, atol=1e-11)
    for static in (False, True):
        cache = KVCache(model.spec, 2, 60, torch.float64, static=static)
        rows = [model(part, cache) for part in ids(60).split([45, 1, 1, 13], 1)]
        assert torch.allclose(torch.cat(rows, 1), full, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({}, None),
        ({"device": "cpu"}, None),
        ({"device": "cpu", "widths": (4, 4), "bytes_each": 8}, None),
        ({"device": "cpu", "trained": True}, "it has no backward pass on cpu"),
        ({"device": "mps", "trained": True}, "it has no backward pass on mps"),
        ({"device": "cpu", "compiled": True}, "torch.compile of it is for cuda, not for cpu"),
        ({"device": "meta"}, "it needs storage"),
        ({"trained": True, "compiled": True}, None),
        ({"dropped": True}, "it drops no weights"),
        ({"widths": (16, 256)}, None),
        ({"widths": (64, 8)}, "its kernels take heads of 16 to 256 features, not of 64 and 8"),
        ({"widths": (576, 512)}, "its kernels take heads of 16 to 256 features, not of 576 and 512"),
        ({"bytes_each": 8}, "its kernels take no float64"),
    ],
)
def test_what_flex_attention_lacks(how: dict[str, Any], reason: str | None) -> None:
    assert flex_lacks(**{"device": "cuda", "widths": (64, 64), "bytes_each": 2, **how}) == reason


def test_flex_attention_caps_scores_itself() -> None:
    assert backend_used("flex", 50.0) == "flex"


def test_training_off_cuda_is_left_to_the_explicit_softmax() -> None:
    model = decoder(layers=PATTERN).train()
    gradients = []
    for backend in ("math", "flex"):
        model.zero_grad()
        on(model, backend)(ids(50)).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@torch.no_grad()
def test_a_pass_is_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile traces it for CUDA; what it makes of it there, only a GPU shows."""
    model = decoder("fp32", layers=PATTERN)
    full = on(model, "math")(ids(60))
    monkeypatch.setattr("archlab.components.attention.attend.flex_lacks", lambda *_, **__: None)
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(on(model, "flex"), backend=counter, fullgraph=True)
    cache = KVCache(model.spec, 2, 60, torch.float32)
    rows = [compiled(part, cache) for part in ids(60).split(1, 1)]
    assert counter.frame_count == 1
    assert torch.allclose(torch.cat(rows, 1), full, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "close"), [("fp32", 1e-2), ("bf16", 5e-2)])
@pytest.mark.parametrize("position", ["rope", "alibi"])
@torch.no_grad()
def test_its_kernels_are_the_explicit_softmax(dtype: str, close: float, position: str) -> None:
    """Products of float32 may be made in tf32 there."""
    axes = {"d_model": 256, "layers": PATTERN, "position": {"choice": position}}
    model, tokens = decoder(dtype, "cuda", **axes), ids(300).cuda()
    full = on(model, "math")(tokens).float()
    assert torch.allclose(on(model, "flex")(tokens).float(), full, rtol=0, atol=close * float(full.abs().max()))
    for static in (False, True):
        cache = KVCache(model.spec, 2, 300, dtype, "cuda", static=static)
        rows = torch.cat([model(part, cache).float() for part in tokens.split([250, 1, 1, 1, 47], 1)], 1)
        assert torch.allclose(rows, full, rtol=0, atol=close * float(full.abs().max()))


@pytest.mark.gpu
def test_its_kernels_train() -> None:
    model, tokens = decoder("fp32", "cuda", d_model=256, layers=PATTERN).train(), ids(300).cuda()
    gradients = []
    for backend in ("math", "flex"):
        model.zero_grad()
        on(model, backend)(tokens).square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert torch.allclose(*gradients, rtol=0, atol=1e-2 * float(gradients[0].abs().max()))
