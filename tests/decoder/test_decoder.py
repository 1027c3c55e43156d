"""The whole model: shapes, limits, dropout places, ties, moves, compilation."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from strategies import spread_weights
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter
from torch._guards import TracingContext

from archlab.components.locality import Locality
from archlab.components.span import Span
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError

MODEL: dict[str, Any] = {
    "d_model": 16,
    "n_layers": 2,
    "vocab_size": 50,
    "context": 32,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2},
    "ffn": {"choice": "swiglu", "d_ff": 24},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}


def spec(**axes: Any) -> DecoderSpec:
    return resolve(MODEL | axes).spec


def decoder(**axes: Any) -> Decoder:
    return spread_weights(build(spec(**axes))).eval()


def ids(batch: int = 2, count: int = 9) -> torch.Tensor:
    return torch.arange(batch * count).view(batch, count) % 50


@pytest.mark.parametrize(
    ("head", "last_only", "shape"),
    [
        ({"choice": "tied"}, False, (2, 9, 50)),
        ({"choice": "untied", "bias": True}, True, (2, 1, 50)),
        ({"choice": "classification", "n_outputs": 3}, False, (2, 3)),
        ({"choice": "regression"}, False, (2, 1)),
    ],
)
def test_shapes(head: dict[str, Any], last_only: bool, shape: tuple[int, ...]) -> None:
    assert decoder(head=head)(ids(), last_only=last_only).shape == shape


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@torch.no_grad()
def test_half_precision_is_near_float64(norm: str, dtype: str) -> None:
    model = decoder(norm={"choice": norm})
    wide = copy.deepcopy(model).double()(ids())
    half = copy.deepcopy(model).to({"bf16": torch.bfloat16, "fp16": torch.float16}[dtype])(ids())
    assert (half.double() - wide).abs().max() < {"bf16": 0.05, "fp16": 0.01}[dtype] * wide.abs().max()


@torch.no_grad()
def test_a_token_reaches_its_own_logit_and_the_later_ones() -> None:
    model, other = decoder(), ids()
    other[:, 4] += 1
    changed = (model(ids()) != model(other)).any(-1).any(0)
    assert changed.tolist() == [False] * 4 + [True] * 5


# --- limits


def nothing_runs(model: Decoder) -> Decoder:
    """The same model, whose every part fails when it is run."""
    for module in model.modules():
        if module is not model:
            module.register_forward_pre_hook(lambda *_: pytest.fail("something was launched"))
    return model


def test_c20_past_the_end_of_a_learned_table_is_refused_before_launch() -> None:
    model = nothing_runs(decoder(context=1024, position={"choice": "learned"}))
    with pytest.raises(RequestError, match=r"1024 tokens; 1025 were"):
        model(torch.zeros(1, 1025, dtype=torch.int64))
    with pytest.raises(RequestError, match=r"1024 tokens; 1030 were"):
        model.generate(torch.zeros(1, 1000, dtype=torch.int64), 30)


@torch.no_grad()
def test_c20_cached_tokens_count_too() -> None:
    model = decoder(context=8, position={"choice": "learned"})
    cache = KVCache(model.spec, 1, 20)
    model(ids(1, 6), cache)
    with pytest.raises(RequestError, match=r"8 tokens; 9 were"):
        model(ids(1, 3), cache)
    assert cache.held == 6


@torch.no_grad()
def test_rotation_goes_past_the_context() -> None:
    model = decoder(context=8)
    assert torch.isfinite(model(ids(1, 30))).all()
    assert torch.isfinite(model.generate(ids(1, 6), 30)).all()


def test_ids_of_another_shape_are_refused() -> None:
    model = nothing_runs(decoder())
    for wrong in (torch.zeros(3, dtype=torch.int64), torch.zeros(1, 0, dtype=torch.int64)):
        with pytest.raises(RequestError, match=r"not \[batch, tokens\]"):
            model(wrong)


# --- dropout


def test_f04_embedding_dropout_falls_once_on_the_sum_of_token_and_position() -> None:
    rates = {"choice": "all", "p": 0.0, "embedding": 0.5}
    model = build(spec(dropout=rates, position={"choice": "learned"}))
    seen: list[torch.Tensor] = []
    model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids())
    total = 2 * (model.embedding(ids()) + model.positions[0].weight[:9])
    assert 0.3 < (seen[0] == 0).float().mean() < 0.7
    assert torch.allclose(seen[0][seen[0] != 0], total[seen[0] != 0])


def test_output_dropout_falls_before_the_head() -> None:
    model = build(spec(dropout={"choice": "all", "p": 0.0, "output": 0.5}))
    seen: list[torch.Tensor] = []
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids())
    assert 0.3 < (seen[0] == 0).float().mean() < 0.7


@pytest.mark.parametrize("place", ["embedding", "attention", "residual", "ffn", "output"])
def test_every_place_drops_in_training_only(place: str) -> None:
    model = spread_weights(build(spec(dropout={"choice": "all", "p": 0.0, place: 0.5})))
    assert not torch.equal(model(ids()), model(ids()))
    model.eval()
    assert torch.equal(model(ids()), model(ids()))


# --- ties and moves


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a13_the_tie_is_kept_wherever_the_model_is_built(device: str) -> None:
    model = build(spec(), device=device)
    assert sum(p.numel() for p in model.parameters()) == parameters(model.spec).total
    assert model.head.weight is None
    assert not [name for name in model.state_dict() if name.startswith("head")]


def test_a13_llama_3_2_1b_on_the_meta_device() -> None:
    llama = {
        "d_model": 2048,
        "n_layers": 16,
        "vocab_size": 128_256,
        "attention": {"choice": "gqa", "n_heads": 32, "n_kv_heads": 8},
        "ffn": {"choice": "swiglu", "d_ff": 8192},
    }
    assert sum(p.numel() for p in build(spec(**llama), "meta").parameters()) == 1_235_814_400
    untied = build(spec(**llama, head={"choice": "untied"}), "meta")
    assert sum(p.numel() for p in untied.parameters()) == 1_498_482_688


def test_the_tie_trains_one_tensor_from_both_sides() -> None:
    model = build(spec())
    model(ids()).square().sum().backward()
    assert (model.embedding.weight.grad.abs().sum(-1) > 0).all()  # a lookup alone would leave most rows 0


@pytest.mark.parametrize(
    "move",
    [
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m.double().float(),
        lambda m: m.to("cpu"),
        lambda m: _through_meta(m),
    ],
    ids=["deepcopy", "pickle", "double and back", "device", "meta"],
)
@torch.no_grad()
def test_a_moved_model_is_the_same_model(move: Any) -> None:
    model = decoder(head={"choice": "tied", "bias": True})
    before = model(ids())
    moved = move(model)
    assert torch.equal(moved(ids()), before)
    moved.embedding.weight.add_(1)
    assert not torch.equal(moved(ids()), before)


def _through_meta(model: Decoder) -> Decoder:
    state = copy.deepcopy(model.state_dict())
    moved = model.to("meta").to_empty(device="cpu")
    moved.load_state_dict(state)
    return moved


def test_layers_with_the_same_rotation_share_one_table() -> None:
    assert len(build(spec(n_layers=6)).positions) == 1
    pattern = [{}, {"position": {"base": 500.0}}, {"position": {"choice": "none"}}]
    model = build(spec(n_layers=6, layers=pattern))
    assert model.position_of == [0, 1, 2] * 2
    assert len(model.positions) == 3


def test_a_forward_on_the_meta_device_gives_the_shape() -> None:
    model = build(spec(), device="meta")
    cache = KVCache(model.spec, 2, 12, "bf16", "meta")
    assert model(ids().to("meta"), cache).shape == (2, 9, 50)
    assert model(ids(count=1).to("meta"), cache).shape == (2, 1, 50)
    assert cache.held == 10


# --- compilation


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"attention": {"window": 4}},
    "chunk": {"attention": {"chunk": 4}},
    "sinks": {"attention": {"window": 4, "sinks": True, "logit_cap": 5.0}},
    "latent": {"attention": {"choice": "mla", "nope_dim": 4, "rope_dim": 4, "kv_rank": 6}},
    "alibi": {"position": {"choice": "alibi"}, "attention": {"window": 4}},
    "t5": {"position": {"choice": "t5", "n_buckets": 6, "max_distance": 9}},
}


@pytest.mark.parametrize("kind", ["plain", "window", "latent"])
@torch.no_grad()
def test_a_model_that_never_ran_is_compiled_whole(kind: str) -> None:
    """What a spec works out when first asked is asked first inside the graph, where a lock would break it."""
    model = decoder(**{axis: MODEL[axis] | options for axis, options in KINDS[kind].items()})
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(model), backend="eager", fullgraph=True)
    found = compiled(ids(), KVCache(model.spec, 2, 9, torch.float32))
    assert torch.allclose(found, model(ids()), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 3])
@torch.no_grad()
def test_compiled_decode_does_not_recompile_and_agrees(kind: str, chunk: int) -> None:
    model = decoder(**{axis: MODEL[axis] | options for axis, options in KINDS[kind].items()}).double()
    full = model(ids())
    counter = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    cache = KVCache(model.spec, 2, 9, torch.float64)
    rows = [compiled(token, cache) for token in ids().split(chunk, 1)]
    assert counter.frame_count == (1 if chunk == 1 else 2)  # a prompt into an empty cache is a pass of its own
    assert torch.allclose(torch.cat(rows, 1), full, rtol=0, atol=1e-10)
    assert cache.held == 9


@torch.no_grad()
def test_a_compiled_prompt_is_attended_to_by_the_causal_flag() -> None:
    """A mask [n, m] would leave it to slower kernels, and MLA to its absorbed form."""
    for options in (KINDS["plain"], KINDS["latent"]):
        model = decoder(**{axis: MODEL[axis] | changes for axis, changes in options.items()})
        seen: list[Any] = []

        def traced(graph: Any, _: Any, seen: list[Any] = seen) -> Any:
            seen += [node.args for node in graph.graph.nodes if node.target is F.scaled_dot_product_attention]
            return graph.forward

        torch._dynamo.reset()
        cache = KVCache(model.spec, 2, 20, torch.float32)
        found = torch.compile(model, backend=traced, fullgraph=True)(ids(), cache)
        assert torch.allclose(found, model(ids()), rtol=0, atol=1e-5)
        assert len(seen) == model.spec.n_layers
        assert all(mask is None and causal for _, _, _, mask, _, causal in seen)


@torch.no_grad()
def test_all_that_a_compiled_pass_writes_to_is_known_to_stay() -> None:
    """torch makes no CUDA graph of a pass that writes to a tensor which might move."""
    model = decoder(**{axis: MODEL[axis] | options for axis, options in KINDS["window"].items()})
    cache = KVCache(model.spec, 2, 9, torch.float32)
    written: list[bool] = []

    def lowered(graph: Any, _: Any) -> Any:
        about = TracingContext.get().fw_metadata
        assert about is not None
        static = about.static_input_indices
        written.extend(index in static for index, known in enumerate(about.input_info) if known.mutates_data)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=lowered), fullgraph=True)
    compiled(ids()[:, :1], cache)
    assert written == [True] * (1 + 2 * model.spec.n_layers)


# --- masks and biases


@torch.no_grad()
def test_each_kind_of_mask_is_made_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Locality] = []
    mask = Span.mask
    monkeypatch.setattr(Span, "mask", lambda self, device, sight: made.append(sight) or mask(self, device, sight))
    pattern = [{"attention": {"window": 4}, "repeat": 3}, {}, {"position": {"choice": "none"}}]
    decoder(n_layers=10, layers=pattern)(ids())
    assert sorted(made, key=str) == [Locality(window=4), Locality()]


def test_layers_share_one_trained_bias() -> None:
    bias = {"choice": "t5", "n_buckets": 6, "max_distance": 9}
    shared = build(spec(n_layers=4, position=bias))
    assert parameters(shared.spec).by_part["positions"] == sum(p.numel() for p in shared.positions.parameters()) == 24
    mixed = build(spec(n_layers=4, layers=[{}, {"position": bias}, {"position": bias | {"n_buckets": 5}}]))
    assert parameters(mixed.spec).by_part["positions"] == sum(p.numel() for p in mixed.positions.parameters()) == 44
    shared(ids()).square().sum().backward()
    assert shared.positions[0].weight.grad.abs().sum() > 0


@torch.no_grad()
def test_the_embedding_norm_comes_before_the_first_layer() -> None:
    model = decoder(block={"choice": "pre_norm", "embedding_norm": True, "embedding_scale": 3.0})
    seen: list[torch.Tensor] = []
    model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids())
    assert torch.allclose(seen[0], model.embedding_norm(3 * model.embedding(ids())))
    plain = parameters(spec()).by_part
    assert parameters(model.spec).by_part == plain | {"norms": plain["norms"] + 16}
