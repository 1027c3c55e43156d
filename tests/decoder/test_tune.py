"""Products with a weight: every way gives the numbers of the explicit sum, and only what is measured changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import archlab
from archlab.components import product as products
from archlab.components.linear import Linear
from archlab.components.product import Product, Way, blocks, columns, has_onednn, onednn, trained, ways
from archlab.decoder import tune as tuning
from archlab.decoder.module import Decoder
from archlab.errors import RequestError

SMALL = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=50", "model.ffn.d_ff=48")
NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}

needs_onednn = pytest.mark.skipif(not has_onednn(torch.float32), reason="torch has no oneDNN here")


@pytest.fixture
def decoder() -> Decoder:
    return archlab.build(archlab.load("gqa", *SMALL, "model.attention.head_dim=8"), dtype="fp64").eval()


@pytest.fixture
def packable() -> Decoder:
    return archlab.build(archlab.load("gqa", *SMALL, "model.attention.head_dim=8", "model/head=untied")).eval()


def modules(decoder: Decoder) -> Iterator[Product]:
    return (module for module in decoder.modules() if isinstance(module, Product))


@pytest.mark.parametrize("dtype", [dtype for dtype in NEAR if dtype == torch.float64 or has_onednn(dtype)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 7, 5), (2, 7, 1), (8, 16, 33), (3, 1, 4)])
def test_every_way_is_the_sum_written_out(dtype: torch.dtype, bias: bool, shape: tuple[int, int, int]) -> None:
    rows, inputs, outputs = shape
    x, weight = torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
    b = torch.randn(outputs).to(dtype) if bias else None
    wanted = (x.double()[:, None, :] * weight.double()[None]).sum(-1) + (0 if b is None else b.double())
    for way in ways(dtype).values():
        got = way(x, weight, b)
        assert got.is_contiguous()
        assert got.dtype == dtype
        near = NEAR[dtype] * max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=near)


@pytest.mark.parametrize("way", [columns, blocks])
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_gives_the_same_by_any_way(way: Way, bias: bool) -> None:
    module = Product()
    weight = torch.randn(5, 7, dtype=torch.float64)
    b = torch.randn(5, dtype=torch.float64) if bias else None
    x = torch.randn(1, 1, 7, dtype=torch.float64)
    wanted = module.product(x, weight, b)
    module.quickest = {(1, torch.float64, False): way}
    with torch.no_grad():
        torch.testing.assert_close(module.product(x, weight, b), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", list(ways(torch.float64)))
def test_logits_are_the_same_whatever_is_quickest(
    decoder: Decoder, rows: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(50, (rows, 1), generator=torch.Generator().manual_seed(0))
    chosen(name, monkeypatch)
    with torch.no_grad():
        wanted = decoder(ids)
        found = decoder.tune(rows)
        assert set(found.values()) == {name}
        # nothing is in the way of torch's own
        kept = {(rows, torch.float64, False): ways(torch.float64)[name]} if name != "rows" else {}
        assert all(module.quickest == kept for module in modules(decoder))
        assert f"{rows} x [50, 32] float64" in found  # the tied head, by the embedding's weight
        torch.testing.assert_close(decoder(ids), wanted, rtol=1e-12, atol=1e-12)


def test_the_quickest_is_taken_and_a_little_quicker_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"rows": 100, "columns": 80, "blocks": 97}
    spent = [0]

    def slow(name: str) -> Way:
        def way(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            spent[0] += cost[name]
            return x

        return way

    monkeypatch.setattr(tuning, "ways", lambda dtype: {name: slow(name) for name in cost})
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: float(spent[0]))
    monkeypatch.setattr(tuning, "SECONDS", 1e9)
    held = [(Product(), torch.randn(3, 3))] * 2
    assert tuning._choose(held, 1) == ("columns", 80.0)
    cost["columns"] = 97
    assert tuning._choose(held, 1) == ("rows", 100.0)


def test_gradients_other_rows_and_other_devices_go_the_usual_way(decoder: Decoder) -> None:
    def never(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise AssertionError

    for module in modules(decoder):
        module.quickest = {(1, torch.float64, False): never, (2, torch.float64, True): never}
    decoder(torch.zeros(1, 1, dtype=torch.int64)).sum().backward()
    with torch.no_grad():
        decoder(torch.zeros(2, 1, dtype=torch.int64))
    assert archlab.build(decoder.spec, device="meta").tune(1) == {}


def test_a_way_for_gradients_runs_where_there_are_gradients(decoder: Decoder) -> None:
    ran: list[int] = []

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ran.append(x.shape[0])
        return torch.nn.functional.linear(x, weight, bias)

    for module in modules(decoder):
        module.quickest = {(2, torch.float64, True): noted}
    ids = torch.zeros(2, 1, dtype=torch.int64)
    with torch.no_grad():
        decoder(ids)
    assert ran == []
    decoder(ids).sum().backward()
    assert ran == [2] * len(list(modules(decoder)))


def test_a_trial_for_training_goes_there_and_back(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product, and that of its result's gradient [rows, out] with the weight turned round, [in, out]."""
    tried: list[tuple[int, ...]] = []

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        tried.append((*x.shape, *weight.shape))
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr(tuning, "training_ways", lambda dtype: {"rows": noted})
    monkeypatch.setattr(tuning, "ROUNDS", 1)
    decoder.tune(2, train=True)
    down = decoder.layers[0].ffn.down.weight
    out, width = down.shape
    at = tried.index((2, width, out, width))
    assert tried[at + 1] == (2, out, width, out)


def chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_time", lambda weights, rows, known: {way: 1.0 + (way != name) for way in known})


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 7, 5), (8, 16, 33), (3, 1, 4)])
def test_gradients_through_onednn_are_the_sums_written_out(bias: bool, shape: tuple[int, int, int]) -> None:
    rows, inputs, outputs = shape
    x, weight, b = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs) if bias else None
    given = [t.requires_grad_() for t in (x, weight, b) if t is not None]
    gradient = torch.randn(outputs, rows).t()  # not contiguous
    got = torch.autograd.grad(trained(x, weight, b), given, gradient)
    g, x, weight = gradient.double(), x.detach().double(), weight.detach().double()
    for_x = (g[:, :, None] * weight[None]).sum(1)
    for_weight = (g[:, :, None] * x[:, None]).sum(0)
    for found, wanted in zip(got, (for_x, for_weight, g.sum(0)), strict=False):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5 * rows * outputs)


@needs_onednn
def test_what_is_frozen_gets_no_gradient_and_gradients_have_gradients() -> None:
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    trained(x, weight, None).sum().backward()
    assert x.grad is not None
    assert weight.grad is None
    x, weight = x.detach().requires_grad_(), weight.requires_grad_()
    (first,) = torch.autograd.grad(trained(x, weight, None).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)  # of |W x|^2: 2 W^T W, summed over a row
    wanted = (2 * weight.t() @ weight).sum(0).detach().expand(3, -1)
    torch.testing.assert_close(second, wanted, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("x_trained", [False, True])
@pytest.mark.parametrize("weight_trained", [False, True])
def test_no_more_is_kept_for_gradients_than_torch_keeps(x_trained: bool, weight_trained: bool) -> None:
    x, weight = torch.randn(3, 4, requires_grad=x_trained), torch.randn(5, 4, requires_grad=weight_trained)

    def kept(way: Way) -> set[int]:
        pointers: set[int] = set()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: pointers.add(t.data_ptr()), lambda nothing: None):
            way(x, weight, None)
        return pointers

    assert kept(trained) == kept(torch.nn.functional.linear)


@needs_onednn
@pytest.mark.parametrize("gradients", [False, True])
def test_transforms_go_the_usual_way(gradients: bool) -> None:
    """torch.func and forward-mode differentiation, also without gradients: a tangent x' of x gives W x'."""
    layer, x, tangent = Linear(4, 5), torch.randn(3, 4), torch.randn(3, 4)
    layer.quickest = {(3, torch.float32, gradients): trained if gradients else onednn}
    weight, bias = layer.weight.detach(), layer.bias.detach()
    with torch.set_grad_enabled(gradients):
        _, forward = torch.func.jvp(layer, (x,), (tangent,))
        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent))).tangent
        backward = torch.func.jacrev(layer)(x)
        rows = torch.func.vmap(layer)(x.expand(2, 3, 4))
    for found in (forward, dual):
        torch.testing.assert_close(found, tangent @ weight.t())
    torch.testing.assert_close(backward, torch.einsum("ab,oi->aobi", torch.eye(3), weight))
    torch.testing.assert_close(rows, (x @ weight.t() + bias).expand(2, 3, 5))


@needs_onednn
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("head", ["untied", "tied"])
def test_training_by_onednn_is_training(head: str, recompute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = archlab.build(archlab.load("gqa", *SMALL, "model.attention.head_dim=8", f"model/head={head}"))
    decoder.recompute = recompute
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))

    def gradients() -> dict[str, Tensor]:
        decoder.zero_grad(set_to_none=True)
        decoder(ids).square().sum().backward()
        return {name: parameter.grad for name, parameter in decoder.named_parameters() if parameter.grad is not None}

    wanted = gradients()
    chosen("onednn", monkeypatch)
    assert set(decoder.tune(18, train=True).values()) == {"onednn"}
    assert all(set(module.quickest) == {(18, torch.float32, True)} for module in modules(decoder))
    got = gradients()
    assert list(got) == list(wanted)
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-4, msg=name)
    with torch.no_grad():  # inference goes its own way
        torch.testing.assert_close(decoder(ids), untuned(decoder, ids), rtol=0, atol=0)


def untuned(decoder: Decoder, ids: Tensor) -> Tensor:
    """As a decoder that was never tuned gives them."""
    fresh = archlab.build(decoder.spec)
    fresh.load_state_dict(decoder.state_dict())
    with torch.no_grad():
        return fresh(ids)


def test_weights_are_unpacked_to_train(packable: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_is(True, monkeypatch)
    packable.tune(2, pack=True)
    chosen("rows", monkeypatch)
    assert set(packable.tune(2, train=True).values()) == {"rows"}
    packable(torch.zeros(2, 1, dtype=torch.int64)).sum().backward()
    with pytest.raises(RequestError, match="tune with pack or with train"):
        packable.tune(2, pack=True, train=True)


def packed_is(quicker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(weights: list[Tensor], rows: int, known: dict[str, Way]) -> dict[str, float]:
        return {name: 1.0 if (name == "packed") == quicker else 2.0 for name in known}

    monkeypatch.setattr(tuning, "_time", seconds)


@needs_onednn
def test_packed_weights_are_the_same_parameters(packable: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_is(True, monkeypatch)
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    held = {name: (parameter, parameter.detach().clone()) for name, parameter in packable.named_parameters()}
    optimizer = torch.optim.SGD(packable.parameters(), lr=1.0)
    with torch.inference_mode():
        wanted = packable(ids)
        assert set(packable.tune(2, 18, pack=True).values()) == {"packed"}
        assert all(module.packed for module in modules(packable))
        torch.testing.assert_close(packable(ids), wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(packable(ids[:1, :3]), wanted[:1, :3], rtol=1e-5, atol=1e-5)  # other rows too
        assert sum(p.numel() for p in packable.parameters()) == archlab.parameters(packable.spec).total
        saved = packable.state_dict()
        assert set(packable.tune(4, pack=True).values()) == {"packed"}
        packable.unpack()
    for name, parameter in packable.named_parameters():
        assert parameter is held[name][0]
        assert parameter.requires_grad
        assert not parameter.is_inference()
        assert torch.equal(parameter, held[name][1])
        assert torch.equal(saved[name], held[name][1])
    packable(ids).sum().backward()
    optimizer.step()
    assert all(not torch.equal(parameter, held[name][1]) for name, parameter in packable.named_parameters())


@needs_onednn
def test_packed_weights_refuse_gradients(packable: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_is(True, monkeypatch)
    packable.tune(1, pack=True)
    with pytest.raises(RuntimeError, match=r"decoder\.unpack\(\)"):
        packable(torch.zeros(1, 1, dtype=torch.int64))


@needs_onednn
def test_what_is_not_quicker_packed_is_as_it_was(packable: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: parameter.detach().clone() for name, parameter in packable.named_parameters()}
    packed_is(False, monkeypatch)
    assert "packed" not in packable.tune(1, pack=True).values()
    assert not any(module.packed for module in modules(packable))
    assert all(torch.equal(parameter, before[name]) for name, parameter in packable.named_parameters())


@needs_onednn
@pytest.mark.parametrize("model", ["model/attention=mla", "model/head=tied"])
def test_a_weight_that_is_read_otherwise_is_not_packed(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = archlab.build(archlab.load("gqa", *SMALL, model)).eval()
    packed_is(True, monkeypatch)
    ids = torch.randint(50, (1, 5), generator=torch.Generator().manual_seed(0))
    wanted = decoder.generate(ids, new=4)
    decoder.tune(5, 1, pack=True)
    plain = {name for name, parameter in decoder.named_parameters() if not parameter.is_mkldnn and parameter.dim() == 2}
    read = {"embedding.weight", *(f"layers.{n}.attention.kv_up.weight" for n in range(2) if "mla" in model)}
    assert plain == read
    assert torch.equal(decoder.generate(ids, new=4), wanted)


@needs_onednn
def test_a_tied_head_keeps_a_copy_as_long_as_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = archlab.build(archlab.load("gqa", *SMALL)).eval()
    packed_is(True, monkeypatch)
    ids = torch.randint(50, (1, 5), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = decoder(ids)
        decoder.tune(5, pack=True)
        assert decoder.head.copied is not None
        torch.testing.assert_close(decoder(ids), before, rtol=1e-5, atol=1e-5)
        decoder.embedding.weight[7] += 1.0
        changed = decoder(ids)
        decoder.unpack()
        assert decoder.head.copied is None
        torch.testing.assert_close(decoder(ids), changed, rtol=1e-5, atol=1e-5)
    assert (changed - before)[..., 7].abs().min() > 1e-3


@needs_onednn
def test_training_after_a_timed_decode_finds_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from archlab.bench.phases import PHASES
    from archlab.workload import Workload

    packed_is(True, monkeypatch)
    if not has_onednn(torch.bfloat16):
        pytest.skip("this CPU has no bf16 products")
    decoder = archlab.build(archlab.load("gqa", *SMALL), dtype="bf16")
    workload = Workload(batch=2, prompt=6, new=3, dtype="bf16")
    found = {}
    for phase in ("prefill", "decode", "train"):
        with PHASES[phase](decoder, workload, 0) as run:
            found[phase] = run.products
            run.call()
    # training is tried for its 12 rows, where no other way was quicker
    assert found == {"prefill": "packed", "decode": "packed", "train": "rows"}
    assert not any(module.packed for module in modules(decoder))


def test_no_way_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert onednn not in ways(torch.float32).values()
    assert not products.has_onednn(torch.float32)
