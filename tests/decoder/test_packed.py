"""Packed weights in the hands of others: whatever is done with a decoder, its numbers are those of its weights."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import archlab
from archlab.components.linear import Linear
from archlab.components.product import Product, has_onednn, onednn
from archlab.decoder import tune as tuning
from archlab.decoder.module import Decoder
from archlab.errors import RequestError
from archlab.interop.weights import load_weights, save_weights

pytestmark = pytest.mark.skipif(not has_onednn(torch.float32), reason="torch has no oneDNN here")

SMALL = (
    "model.d_model=32",
    "model.n_layers=2",
    "model.vocab_size=50",
    "model.ffn.d_ff=48",
    "model.attention.head_dim=8",
)
IDS = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(0))
HEADS = ("tied", "untied")


@pytest.fixture(autouse=True)
def _packing_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tuning, "_time", lambda weights, rows, known: {name: 1.0 + (name != "packed") for name in known}
    )


def plain(head: str = "tied", seed: int = 0, *more: str, dtype: str = "fp32") -> Decoder:
    return archlab.build(
        archlab.load("gqa", *SMALL, "model.attention.head_dim=8", f"model/head={head}", *more), dtype=dtype, seed=seed
    ).eval()


def packed(head: str = "tied", seed: int = 0, *more: str) -> Decoder:
    made = plain(head, seed, *more)
    assert set(made.tune(2, 10, pack=True).values()) == {"packed"}
    return made


@torch.no_grad()
def logits(decoder: nn.Module) -> Tensor:
    given: Tensor = decoder(IDS)
    return given


def near(given: Tensor, wanted: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(given, wanted, rtol=0, atol=atol, check_dtype=False)


def saved(decoder: Decoder) -> Decoder:
    file = io.BytesIO()
    torch.save(decoder, file)
    file.seek(0)
    made: Decoder = torch.load(file, weights_only=False)
    return made


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("made", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), saved])
def test_a_copy_is_a_decoder_of_its_own(head: str, made: Callable[[Decoder], Decoder]) -> None:
    first = packed(head)
    second = made(first)
    near(logits(second), logits(plain(head)))
    assert first.layers[0].attention.o.packed
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.5)
    near(logits(first), logits(plain(head)))
    changed = plain(head)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.mul_(1.5)
    near(logits(second), logits(changed))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("dtype", "atol"), [("bf16", 1e-2), ("fp16", 2e-3), ("fp64", 1e-6)])
def test_a_cast_unpacks(head: str, dtype: str, atol: float) -> None:
    cast = packed(head).to(archlab.build(plain().spec, device="meta", dtype=dtype).embedding.weight.dtype)
    assert not any(parameter.is_mkldnn for parameter in cast.parameters())
    near(logits(cast), logits(plain(head)), atol)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_a_state_that_is_loaded_is_what_runs(head: str, assign: bool, dtype: str) -> None:
    other, into = plain(head, 5, dtype=dtype), packed(head)
    into.load_state_dict(other.state_dict(), assign=assign)
    near(logits(into), logits(other))


@pytest.mark.parametrize("head", HEADS)
def test_a_file_is_loaded_into_the_weights_and_saved_from_them(head: str, tmp_path: Path) -> None:
    other, into = plain(head, 5), packed(head)
    save_weights(into, tmp_path / "packed.safetensors")
    again = plain(head, 7)
    load_weights(again, tmp_path / "packed.safetensors")
    near(logits(again), logits(plain(head)))
    save_weights(other, tmp_path / "other.safetensors")
    into = packed(head)
    load_weights(into, tmp_path / "other.safetensors")
    near(logits(into), logits(other))


def test_the_variables_of_a_state_are_the_weights() -> None:
    decoder, other = packed("untied"), plain("untied", 5)
    with torch.no_grad():
        for name, variable in decoder.state_dict(keep_vars=True).items():
            variable.copy_(other.state_dict()[name])
    near(logits(decoder), logits(other))


def _replaced(decoder: Decoder, weight: Tensor) -> None:
    decoder.embedding.weight = nn.Parameter(weight)


def _assigned(decoder: Decoder, weight: Tensor) -> None:
    decoder.embedding.weight.data = weight


def _written(decoder: Decoder, weight: Tensor) -> None:
    with torch.no_grad():
        decoder.embedding.weight.copy_(weight)


@pytest.mark.parametrize("change", [_replaced, _assigned, _written])
def test_a_tied_heads_copy_is_never_another_weight(change: Callable[[Decoder, Tensor], None]) -> None:
    decoder, weight = packed(), torch.randn(50, 32)
    change(decoder, weight)
    wanted = plain()
    _written(wanted, weight)
    near(logits(decoder), logits(wanted))
    assert decoder.head.copied is None
    assert set(decoder.tune(2, 10, pack=True).values()) == {"packed"}
    assert decoder.head.copied is not None
    near(logits(decoder), logits(wanted))


def test_weights_that_are_given_for_one_call_are_those_that_run() -> None:
    decoder, other = packed(), plain(seed=5)
    with torch.no_grad():
        near(functional_call(decoder, dict(other.named_parameters()), (IDS,)), logits(other))
    near(logits(decoder), logits(plain()))


@pytest.mark.parametrize("head", HEADS)
def test_weights_made_in_inference_mode_are_left_as_they_are(head: str) -> None:
    with torch.inference_mode():
        decoder = plain(head)
        wanted = decoder(IDS)
        assert "packed" not in decoder.tune(10, pack=True).values()
        near(decoder(IDS), wanted)


def test_autocast_is_refused_where_weights_are_packed_and_held_to_where_they_are_not() -> None:
    decoder, wanted = packed(), plain()
    tuned = plain()
    for module in tuned.modules():
        if isinstance(module, Product):
            module.quickest = {(10, torch.float32, False): onednn}
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(logits(tuned), logits(wanted))
        with pytest.raises(RuntimeError, match="autocast"):
            logits(decoder)
        decoder.unpack()
        near(logits(decoder), logits(wanted), 0)


def test_a_transform_is_refused_where_weights_are_packed() -> None:
    """Forward-mode differentiation would find that oneDNN's result has no tangent, and give zeros."""
    product, x = packed().layers[0].attention.o, torch.ones(2, 64)
    with torch.no_grad():
        for run in (lambda: torch.func.jvp(product, (x,), (x,)), lambda: torch.func.vmap(product)(x)):
            with pytest.raises(RuntimeError, match=r"torch\.func"):
                run()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_another_dtype_is_refused_by_name(dtype: torch.dtype) -> None:
    product = packed().layers[0].attention.o
    with torch.no_grad(), pytest.raises(RuntimeError, match="in their own dtype"):
        product(torch.zeros(2, 64, dtype=dtype))


@pytest.mark.parametrize("shape", [(64,), (0, 64), (2, 0, 64), (2, 1, 3, 64)])
def test_any_shape_of_rows_goes_through(shape: tuple[int, ...]) -> None:
    product, wanted = packed().layers[0].attention.o, plain().layers[0].attention.o
    x = torch.randn(shape)
    with torch.no_grad():
        near(product(x), wanted(x))


@pytest.mark.parametrize("turned", [False, True])
def test_weights_that_lie_otherwise_come_back_as_they_were(turned: bool) -> None:
    decoder, kept = plain(), torch.randn(64, 32).t() if turned else torch.randn(32, 128)[:, ::2]
    decoder.layers[0].attention.o.weight = nn.Parameter(kept)
    wanted = logits(decoder)
    assert set(decoder.tune(10, pack=True).values()) == {"packed"}
    near(logits(decoder), wanted)
    decoder.unpack()
    assert torch.equal(decoder.layers[0].attention.o.weight, kept)


def _graph(decoder: Decoder) -> Any:
    return decoder(IDS).sum()


def _views(decoder: Decoder) -> Any:
    return [parameter.view(-1) for parameter in decoder.parameters()]


def _weak(decoder: Decoder) -> Any:
    return [weakref.ref(parameter) for parameter in decoder.parameters()]


def _hooks(decoder: Decoder) -> Any:
    return [parameter.register_hook(lambda gradient: gradient) for parameter in decoder.parameters()]


def _gradients(decoder: Decoder) -> Any:
    decoder(IDS).sum().backward()
    return [parameter.grad.clone() for parameter in decoder.parameters()]


@pytest.mark.parametrize("hold", [_graph, _views, _weak, _hooks, _gradients])
def test_a_weight_that_somebody_holds_stays_where_it_is(hold: Callable[[Decoder], Any]) -> None:
    decoder = plain("untied")
    wanted, addresses = logits(decoder), [parameter.data_ptr() for parameter in decoder.parameters()]
    held = hold(decoder)
    decoder.tune(10, pack=True)
    assert [parameter.data_ptr() for parameter in decoder.parameters()] == addresses
    near(logits(decoder), wanted)
    if isinstance(held, Tensor):
        held.backward()
    for parameter in decoder.parameters() if hold in (_graph, _gradients) else ():
        assert parameter.grad is not None


def test_what_was_set_on_a_parameter_stays_on_it() -> None:
    decoder = plain()
    for parameter in decoder.parameters():
        parameter.decays = parameter.dim() > 1
    decoder.tune(10, pack=True)
    assert all(parameter.decays == (parameter.dim() > 1) for parameter in decoder.parameters())
    decoder.unpack()
    assert all(parameter.decays == (parameter.dim() > 1) for parameter in decoder.parameters())


class ReadsItsWeights(nn.Module):
    """An FFN of others with a layer of archlab's, used as its author likes."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up = Linear(d_model, 2 * d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.up(x), self.up.weight.t())


@pytest.mark.usefixtures("own_choices")
def test_modules_of_others_may_read_their_weights() -> None:
    archlab.component("ffn", "reading", summary="for a test")(ReadsItsWeights)
    decoder = archlab.build(archlab.load("gqa", *SMALL[:3], "model/ffn=reading")).eval()
    wanted = logits(decoder)
    assert "packed" in decoder.tune(10, pack=True).values()
    near(logits(decoder), wanted)


@pytest.mark.parametrize("owner", ["embedding", "layer"])
def test_a_weight_of_two_modules_is_not_packed(owner: str) -> None:
    decoder = plain("untied")
    if owner == "embedding":
        decoder.head.weight = decoder.embedding.weight
    else:
        decoder.layers[1].attention.o.weight = decoder.layers[0].attention.o.weight
    wanted = logits(decoder)
    assert "packed" in decoder.tune(10, pack=True).values()
    near(logits(decoder), wanted)


def test_a_weight_is_packed_where_memory_holds_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = plain("untied")
    monkeypatch.setattr(tuning, "available_memory", lambda: 2 * 50 * 32 * 4)
    decoder.tune(10, pack=True)
    for name, held in decoder.named_parameters():
        wanted = name.endswith(("head.weight", "down.weight"))  # [50, 32] and [32, 48]; the others are larger
        assert held.is_mkldnn == wanted, name


def test_a_compiled_pass_says_what_it_cannot_read() -> None:
    compiled = torch.compile(packed(), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"decoder\.unpack\(\)"):
        logits(compiled)


def _detached(decoder: Decoder) -> Any:
    return [parameter.detach() for parameter in decoder.parameters()]


def _compiled(decoder: Decoder) -> Any:
    compiled = torch.compile(decoder, backend="eager")
    with pytest.raises(RuntimeError, match="unpack"):
        logits(compiled)
    return compiled


@pytest.mark.parametrize("hold", [_weak, _detached, _compiled])
def test_weights_are_unpacked_whoever_holds_them(hold: Callable[[Decoder], Any]) -> None:
    decoder, wanted = packed("untied"), plain("untied")
    parameters = list(decoder.parameters())
    held = hold(decoder)
    decoder.unpack()
    assert held is not None
    for parameter, same, value in zip(decoder.parameters(), parameters, wanted.parameters(), strict=True):
        assert parameter is same
        assert torch.equal(parameter, value)
    decoder(IDS).sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)


@pytest.mark.parametrize("rows", [0, -1, 1.5, "8", True])
@pytest.mark.parametrize("pack", [False, True])
def test_rows_that_no_pass_has_are_refused(rows: Any, pack: bool) -> None:
    with pytest.raises(RequestError, match=r"rows .* must be a whole number, 1 or more"):
        plain().tune(rows, pack=pack)


def test_nothing_is_found_for_no_rows() -> None:
    decoder = plain()
    assert decoder.tune(pack=True) == {}
    assert not any(parameter.is_mkldnn for parameter in decoder.parameters())


def test_one_thread_has_the_same_numbers() -> None:
    threads, decoder = torch.get_num_threads(), packed("untied")
    try:
        torch.set_num_threads(1)
        near(logits(decoder), logits(plain("untied")))
    finally:
        torch.set_num_threads(threads)
