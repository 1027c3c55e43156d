"""A decode step as a CUDA graph: nothing in it waits for the device, and on a GPU it gives what the step gives.

Without a GPU, fake tensors stand for CUDA's: they refuse to be read, and show what moves between devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import specs
from test_decoder import MODEL, decoder, ids, spec
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from archlab.components.attention import flex
from archlab.components.ffn.experts import Experts, waiting_for_nothing
from archlab.components.position.module import Table
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.generate import evaluating
from archlab.decoder.graph import GraphedStep
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError
from archlab.registry import choices

OPTIONS: dict[str, dict[str, Any]] = {
    "moe": {"n_experts": 4, "experts_per_token": 2},
    "t5": {"n_buckets": 6, "max_distance": 9},
    "mla": {"nope_dim": 4, "rope_dim": 4, "kv_rank": 6},
    "longrope": {"short_factor": [1.0] * 2, "long_factor": [2.0] * 2},
    "classification": {"n_outputs": 3},
    "regression": {"n_outputs": 3},
}
"""What some choices ask for."""
CHOICES = [
    (axis, name)
    for axis in ("norm", "position", "attention", "ffn", "dropout", "head", "block")
    for name in choices(axis)
]
ATTENTIONS = [{"window": 4}, {"chunk": 4}, {"sinks": True}, {"logit_cap": 5.0}, {"backend": "math"}]


class Moves(TorchDispatchMode):
    """Operators that read or give a tensor that is not CUDA's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, Tensor)]
        if any(tensor.device.type != "cuda" for tensor in tensors):
            self.found.append(str(func))
        return made


class Linked(TorchFunctionMode):
    """Indexing and ~ as plain operators: a torch without CUDA refuses Python's of CUDA's tensors, fake or not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            return indexed(*args)
        if func is Tensor.__invert__:
            return torch.bitwise_not(*args)
        return func(*args, **(kwargs or {}))


def indexed(x: Tensor, index: Any) -> Tensor:
    parts, at, tensors = index if isinstance(index, tuple) else (index,), 0, {}
    given = sum(part is not None and part is not Ellipsis for part in parts)
    whole = x.dim()
    for part in parts:
        if part is Ellipsis:
            at += whole - given
        elif part is None:
            x, at = x.unsqueeze(at), at + 1
        elif isinstance(part, int):
            x = x.select(at, part)
        elif isinstance(part, slice):
            x, at = torch.ops.aten.slice(x, at, part.start, part.stop, part.step or 1), at + 1
        else:
            tensors[at], at = part, at + 1
    return torch.ops.aten.index(x, [tensors.get(place) for place in range(at)]) if tensors else x


@contextmanager
def pretended(capturing: bool = True) -> Iterator[None]:
    """CUDA's tensors without CUDA, while a graph is recorded."""
    with pytest.MonkeyPatch.context() as patched, FakeTensorMode(), Linked():
        patched.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        yield


def fake(model: Decoder) -> Decoder:
    """A model that was built on meta, with tensors that stand for CUDA's."""

    def made(tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")

    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(made(parameter)))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, made(buffer))
        if isinstance(module, Table):
            module.tables = tuple(map(made, module.tables))
    return model


def moved_in_a_step(made: DecoderSpec, capturing: bool = True) -> list[str]:
    """What moves between devices in a decode step, once tables are as long as they must be. Raises where it is read."""
    meta = build(made, device="meta")
    with pretended(capturing), evaluating(meta):
        model, moves = fake(meta), Moves()
        cache = KVCache(made, 2, 9, "fp32", "cuda", static=True)
        token = torch.zeros(2, 1, dtype=torch.int64, device="cuda")
        model(token, cache, last_only=True)
        with moves:
            y = model(token, cache, last_only=True).argmax(-1)
        assert y.device.type == "cuda"
    return moves.found


@pytest.mark.parametrize(("axis", "name"), CHOICES)
def test_no_step_waits_for_the_device(axis: str, name: str) -> None:
    more = {"n_heads": 4} if axis == "attention" else {}
    assert moved_in_a_step(spec(**{axis: {"choice": name, **more, **OPTIONS.get(name, {})}})) == []


@pytest.mark.parametrize("options", ATTENTIONS, ids=str)
def test_no_option_of_attention_makes_it_wait(options: dict[str, Any]) -> None:
    assert moved_in_a_step(spec(attention=MODEL["attention"] | options)) == []


@given(specs(), st.sampled_from(["sdpa", "math"]))
@settings(max_examples=30)
def test_no_composition_makes_it_wait(made: DecoderSpec, backend: str) -> None:
    assert moved_in_a_step(made.on_backend(backend)) == []


def test_blocks_of_flex_attention_do_not_make_it_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the kernel itself, for which there is a compiler only where CUDA is."""
    ran: list[Any] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, blocks: Any, **_: Any) -> Any:
        ran.append(blocks)
        return q.new_empty(*q.shape[:3], v.shape[3])

    monkeypatch.setattr(flex, "_kernel", lambda: kernel)
    wide = spec(attention={"choice": "gqa", "n_heads": 4, "head_dim": 16, "window": 4}).on_backend("flex")
    assert moved_in_a_step(wide) == []
    assert len(ran) == 2 * wide.n_layers


def test_a_step_that_waits_is_found() -> None:
    """Where nothing is recorded, experts take their tokens sorted, and the device is asked how many each has."""
    mixture = spec(ffn={"choice": "moe", **OPTIONS["moe"]})
    with pytest.raises(DynamicOutputShapeException):
        moved_in_a_step(mixture, capturing=False)


def test_steps_that_warm_up_take_the_way_that_is_recorded() -> None:
    """So that nothing runs for the first time while a graph is recorded."""
    with waiting_for_nothing():
        assert moved_in_a_step(spec(ffn={"choice": "moe", **OPTIONS["moe"]}), capturing=False) == []


def test_experts_are_compiled_without_asking_whether_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile cannot trace that question; of a tensor that is CUDA's it was asked."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("asked"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    mixture = spec(ffn={"choice": "moe", **OPTIONS["moe"]})
    with FakeTensorMode():
        x, chosen = (torch.empty(1, 16, device="cuda"), torch.empty(1, 2, dtype=torch.int64, device="cuda"))
        assert Experts(mixture.layers[0].ffn)._suitable(x, chosen) == "gathered"


def test_a_graph_is_refused_where_there_can_be_none() -> None:
    model = decoder()
    for cache, reason in (
        (KVCache(model.spec, 2, 9, static=True), "CUDA graphs are for cuda, not for cpu"),
        (KVCache(model.spec, 2, 9), "CUDA graphs are for cuda"),
        (KVCache(model.spec, 2, 9, device="meta", static=True), "not for meta"),
    ):
        with pytest.raises(RequestError, match=reason):
            GraphedStep(lambda token: token, cache)


def test_a_static_cache_asks_the_device_how_much_it_holds() -> None:
    """Where a graph is replayed, nothing in Python counts."""
    cache = KVCache(spec(), 2, 9, static=True)
    assert cache.held == 0
    cache.position.add_(3)
    assert cache.held == 3
    cache.reset()
    assert cache.held == 0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gqa", "window", "mla", "moe", "t5", "flex"])
def test_a_graph_gives_what_the_step_gives(kind: str) -> None:
    """Two sequences one after the other, so that nothing of the first is left."""
    axes: dict[str, Any] = {
        "gqa": {},
        "window": {"attention": MODEL["attention"] | {"window": 4, "sinks": True}},
        "mla": {"attention": {"choice": "mla", "n_heads": 4, **OPTIONS["mla"]}},
        "moe": {"ffn": {"choice": "moe", **OPTIONS["moe"]}},
        "t5": {"position": {"choice": "t5", **OPTIONS["t5"]}},
        "flex": {"attention": {"choice": "gqa", "n_heads": 4, "head_dim": 32, "window": 4, "backend": "flex"}},
    }[kind]
    model = build(spec(**axes), "cuda", "fp32")

    def logits(prompt: Tensor, cache: KVCache, step: Any) -> Tensor:
        cache.reset()
        rows = [model(prompt, cache, last_only=True)]
        for _ in range(8):
            rows.append(step(rows[-1].argmax(-1)).clone())
        return torch.cat(rows, 1)

    with evaluating(model):
        cache, other = (KVCache(model.spec, 2, 20, "fp32", "cuda", static=True) for _ in range(2))
        graphed = GraphedStep(lambda token: model(token, cache, last_only=True), cache)
        assert cache.held == 0
        for prompt in (ids().cuda(), (ids(count=6).cuda() + 7) % 50):
            wanted = logits(prompt, other, lambda token: model(token, other, last_only=True))
            found = logits(prompt, cache, graphed)
            assert torch.equal(found.argmax(-1), wanted.argmax(-1))
            assert torch.allclose(found, wanted, rtol=0, atol=1e-4)
            assert cache.held == prompt.shape[1] + 8
