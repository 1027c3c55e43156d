"""Layers that share keys and values with an earlier one, against plain loops, by hand, and in all that they refuse."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import spread_weights
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

import archlab
from archlab.components.attention.module import Step
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.memory import Inference, inference_memory
from archlab.cost.parallel import Split
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.interop.components import components
from archlab.interop.export import export
from archlab.interop.weights import save_weights

CONTEXT = 10
MODEL: dict[str, Any] = {
    "d_model": 12,
    "n_layers": 4,
    "vocab_size": 23,
    "context": CONTEXT,
    "norm": {"choice": "rmsnorm", "eps": 1e-5},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, "head_dim": 6},
    "ffn": {"choice": "relu", "d_ff": 20},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
SHARES: dict[str, Any] = {"attention": {"shares_kv": True}}
LOCAL: dict[str, Any] = {"attention": {"window": 3}}
LOCAL_SHARES: dict[str, Any] = {"attention": {"window": 3, "shares_kv": True}}
CHUNK: dict[str, Any] = {"attention": {"chunk": 4}}
CHUNK_SHARES: dict[str, Any] = {"attention": {"chunk": 4, "shares_kv": True}}
STILL: dict[str, Any] = {"position": {"choice": "none"}}

PATTERNS: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "every second": ([{}, SHARES], [0, 0, 2, 2, 4, 4]),
    "one for three": ([{}, SHARES | {"repeat": 2}], [0, 0, 0, 3, 3, 3]),
    "one for all after": ([{}, SHARES | {"repeat": 5}], [0] * 6),
    "local and global apart": ([LOCAL, {}, LOCAL_SHARES | {"repeat": 2}, SHARES], [0, 1, 0, 0, 1, 5]),
    "past layers of other kinds": ([{}, LOCAL, CHUNK, SHARES, CHUNK_SHARES, LOCAL_SHARES], [0, 1, 2, 0, 2, 1]),
    "without positions apart": ([{}, STILL, SHARES, SHARES | STILL], [0, 1, 0, 1, 4, 5]),
    "other queries": ([{}, {"attention": {"shares_kv": True, "n_heads": 6, "qk_norm": "head"}}], [0, 0, 2, 2, 4, 4]),
}
"""A pattern of layers, and whose keys and values each of six reads."""


def spec(layers: list[dict[str, Any]], n_layers: int = 6, **attention: Any) -> DecoderSpec:
    changed = {"n_layers": n_layers, "layers": layers, "attention": MODEL["attention"] | attention}
    return resolve(MODEL | changed).spec


def float64(made: DecoderSpec) -> Decoder:
    return spread_weights(build(made, dtype="fp64")).eval()


def ids(batch: int = 2, count: int = CONTEXT) -> Tensor:
    return torch.randint(0, 23, (batch, count), generator=torch.Generator().manual_seed(3))


# --- the model in plain loops: nothing of archlab but its weights


def plain_logits(w: Mapping[str, Tensor], layers: list[dict[str, Any]], sources: list[int], tokens: Tensor) -> Tensor:
    """One sequence [n] -> [n, vocabulary]: every query by itself, over a list of the keys that it sees.

    layers: of each, `n_heads`, `window`, `chunk`, `turned`, `normed`; sources: whose keys and values it reads.
    """
    x = w["embedding.weight"][tokens]
    kept: list[tuple[Tensor, Tensor]] = []
    for index, layer in enumerate(layers):
        own = {name.split(".", 2)[2]: t for name, t in w.items() if name.startswith(f"layers.{index}.")}
        a = rms(x, own["attention_norm.weight"])
        if sources[index] == index:
            k, v = heads(own, "k", a, layer), heads(own, "v", a, layer)
        else:
            assert not any(name.startswith(("attention.k", "attention.v", "attention.qkv")) for name in own)
            k, v = kept[sources[index]]
        kept.append((k, v))
        x = x + attend(heads(own, "q", a, layer), k, v, layer) @ own["attention.o.weight"].T
        x = x + (rms(x, own["ffn_norm.weight"]) @ own["ffn.up.weight"].T).relu() @ own["ffn.down.weight"].T
    return rms(x, w["final_norm.weight"]) @ w["embedding.weight"].T


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def heads(own: Mapping[str, Tensor], name: str, x: Tensor, layer: Mapping[str, Any]) -> Tensor:
    """[n, heads, 6]: projected, normalised head by head, each pair (i, i + 3) turned by position x 10,000^(-i/3)."""
    y = (x @ own[f"attention.{name}.weight"].T).unflatten(-1, (-1, 6))
    if f"attention.{name}_norm.weight" in own:
        y = rms(y, own[f"attention.{name}_norm.weight"])
    if name == "v" or not layer["turned"]:
        return y
    z = torch.complex(y[..., :3], y[..., 3:])
    turns = [[[position * 10_000.0 ** (-i / 3) for i in range(3)]] for position in range(len(x))]
    z = z * torch.exp(1j * torch.tensor(turns, dtype=torch.float64))
    return torch.cat((z.real, z.imag), -1)


def attend(q: Tensor, k: Tensor, v: Tensor, layer: Mapping[str, Any]) -> Tensor:
    rows = []
    for position, query in enumerate(q):
        seen = [past for past in range(position + 1) if sees(layer, position, past)]
        out = []
        for head, one in enumerate(query):
            kv = head // (q.shape[1] // k.shape[1])
            scores = torch.stack([one @ k[past, kv] / math.sqrt(6) for past in seen])
            out.append(scores.softmax(0) @ torch.stack([v[past, kv] for past in seen]))
        rows.append(torch.cat(out))
    return torch.stack(rows)


def sees(layer: Mapping[str, Any], position: int, past: int) -> bool:
    if layer["window"] is not None:
        return position - past < layer["window"]
    return layer["chunk"] is None or position // layer["chunk"] == past // layer["chunk"]


def as_plain(made: DecoderSpec) -> list[dict[str, Any]]:
    found = []
    for layer in made.layers:
        locality = layer.attention.locality
        turned = layer.position.choice == "rope"
        found.append({"window": locality.window, "chunk": locality.chunk, "turned": turned})
    return found


@pytest.mark.parametrize("name", PATTERNS)
@torch.no_grad()
def test_logits_are_those_of_plain_loops(name: str) -> None:
    pattern, sources = PATTERNS[name]
    model = float64(spec(pattern))
    wanted = torch.stack([plain_logits(components(model), as_plain(model.spec), sources, row) for row in ids()])
    limit = 1e-9 * wanted.abs().max()
    assert (model(ids()) - wanted).abs().max() < limit
    for static in (False, True):
        for size in (1, 3, 7):
            cache = KVCache(model.spec, 2, CONTEXT, torch.float64, static=static)
            rows = torch.cat([model(part, cache) for part in ids().split(size, 1)], 1)
            assert (rows - wanted).abs().max() < limit, (static, size)


def test_gradients_are_those_of_plain_loops_and_reach_every_parameter() -> None:
    pattern, sources = PATTERNS["local and global apart"]
    model = float64(spec(pattern))
    of_module = torch.autograd.grad(model(ids(1)).square().sum(), list(model.parameters()))
    plain = plain_logits(components(model), as_plain(model.spec), sources, ids(1)[0])
    of_loops = torch.autograd.grad(plain.square().sum(), list(model.parameters()))
    for (name, _), one, other in zip(model.named_parameters(), of_module, of_loops, strict=True):
        assert one.abs().max() > 0, name
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max())), name


def test_a_layer_run_again_for_its_backward_pass_gives_the_same_gradients() -> None:
    model = float64(spec(PATTERNS["every second"][0]))
    wanted = torch.autograd.grad(model(ids()).square().sum(), list(model.parameters()))
    for layer in model.layers:
        inner = layer.forward
        layer.forward = lambda x, step, inner=inner: checkpoint(inner, x, step, use_reentrant=False)
    again = torch.autograd.grad(model(ids()).square().sum(), list(model.parameters()))
    assert all(torch.allclose(one, other, rtol=1e-12) for one, other in zip(again, wanted, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [[{}, SHARES], [LOCAL, {}, LOCAL_SHARES, SHARES], [CHUNK, CHUNK_SHARES]])
@pytest.mark.parametrize("chunk", [1, 3])
@torch.no_grad()
def test_compiled_decode_is_one_graph_and_agrees(pattern: list[dict[str, Any]], chunk: int) -> None:
    model = float64(spec(pattern, n_layers=4))
    full = model(ids(count=9))
    counter = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    cache = KVCache(model.spec, 2, 9, torch.float64)
    rows = [compiled(part, cache) for part in ids(count=9).split(chunk, 1)]
    assert counter.frame_count == (1 if chunk == 1 else 2)  # a prompt into an empty cache is a pass of its own
    assert torch.allclose(torch.cat(rows, 1), full, rtol=0, atol=1e-10)


@torch.no_grad()
def test_no_more_than_one_layer_of_a_kind_is_held_on() -> None:
    model = float64(spec([LOCAL, LOCAL_SHARES, {}, {}], n_layers=8))
    held: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def look(_: Any, inputs: tuple[Tensor, Step]) -> None:
        if inputs[1].shared is not None and inputs[1].shared not in [ref() for ref in held]:
            held.append(weakref.ref(inputs[1].shared))
        alive.append(sum(ref() is not None for ref in held))

    for layer in model.layers:
        layer.register_forward_pre_hook(look)
    model(ids())
    assert len(held) == 2
    assert alive == [1] * 8


@torch.no_grad()
def test_saved_weights_load_again(tmp_path: Path) -> None:
    model, file = float64(spec([{}, SHARES])), tmp_path / "model.safetensors"
    save_weights(model, file)
    again = archlab.build(model.spec, dtype="fp64", weights=file).eval()
    assert torch.equal(again(ids()), model(ids()))


# --- which layer is read


@pytest.mark.parametrize("name", PATTERNS)
def test_the_nearest_earlier_layer_of_the_same_kind_is_read(name: str) -> None:
    pattern, sources = PATTERNS[name]
    assert list(spec(pattern).kv_sources) == sources


@given(st.lists(st.sampled_from([{}, LOCAL, CHUNK, STILL, SHARES, LOCAL_SHARES, CHUNK_SHARES]), min_size=1, max_size=9))
@settings(max_examples=200)
def test_sources_are_those_of_a_search_backwards(layers: list[dict[str, Any]]) -> None:
    def own(entry: dict[str, Any]) -> dict[str, Any]:
        attention = {name: value for name, value in entry.get("attention", {}).items() if name != "shares_kv"}
        return {"attention": attention, "position": entry.get("position")}

    def source(index: int) -> int | None:
        if "shares_kv" not in layers[index].get("attention", {}):
            return index
        before = [at for at in range(index) if source(at) == at and own(layers[at]) == own(layers[index])]
        return max(before, default=None)

    wanted = [source(index) for index in range(len(layers))]
    if None in wanted:
        with pytest.raises(ConfigError, match=f"shares_kv: layer {wanted.index(None)} "):
            spec(layers, len(layers))
    else:
        assert list(spec(layers, len(layers)).kv_sources) == wanted


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "the first": ([SHARES, {}], "layer 0 has no layer before it to read from; set it on later ones, in model.layers"),
    "after latents": ([{"attention": {"choice": "mla"}}, SHARES], "layer 1 has no layer before it to read from"),
    "heads": (
        [{}, {"attention": {"shares_kv": True, "n_kv_heads": 1}}],
        "layer 1 can only read keys and values with n_kv_heads = 1; layer 0, the nearest before it, has them with "
        "n_kv_heads = 2",
    ),
    "width": (
        [{}, {}, {"attention": {"shares_kv": True, "head_dim": 8}}],
        "layer 2 can only read keys and values with head_dim = 8; layer 1, the nearest before it, has them with "
        "head_dim = 6",
    ),
    "a ring": (
        [LOCAL, SHARES],
        "layer 1 can only read keys and values of all tokens; layer 0, the nearest before it, has them of a window "
        "of 3",
    ),
    "a wider window": ([LOCAL, {"attention": {"window": 4, "shares_kv": True}}], "of a window of 4; layer 0"),
    "a window of all": ([{}, LOCAL_SHARES], "of a window of 3; layer 0, the nearest before it, has them of all tokens"),
    "chunks": ([CHUNK, {"attention": {"window": 4, "shares_kv": True}}], "of a window of 4; layer 0"),
    "another base": ([{}, SHARES | {"position": {"base": 500.0}}], "turned by rope (base 500.0, "),
    "no rotation": (
        [{}, SHARES | STILL],
        "that are not turned; layer 0, the nearest before it, has them turned by rope",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_has_nothing_to_read_is_refused_with_both_sides(name: str) -> None:
    pattern, problem = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        spec(pattern)
    assert caught.value.key == "model.attention.shares_kv"
    assert problem in caught.value.problem


def test_latent_attention_has_no_such_option() -> None:
    with pytest.raises(ConfigError, match="mla has no such option; it is an option of mha, gqa, mqa"):
        spec([{}, {"attention": {"choice": "mla", "shares_kv": True}}])


@pytest.mark.parametrize("position", ["alibi", "t5", "learned", "none"])
def test_keys_that_are_not_turned_are_shared_whatever_the_position(position: str) -> None:
    changed = MODEL | {"position": {"choice": position}, "layers": [{}, SHARES | STILL]}
    assert resolve(changed).spec.kv_sources == (0, 0, 2, 2)


# --- on paper, by hand

EVERY_SECOND = ("llama-3-8b", "model.layers=[{},{attention:{shares_kv:true}}]")


def test_llama_3_8b_with_every_second_layer_sharing() -> None:
    """8 KV heads x 128 x 2 x 2 B x 16 layers; 16 layers without two projections of 4096 x 1024."""
    whole, half = archlab.load("llama-3-8b"), archlab.load(*EVERY_SECOND)
    for made, layers in ((whole, 32), (half, 16)):
        cost = kv_cache(made, 2, 8192)
        assert cost.bytes_per_token == layers * 8 * 128 * 2 * 2
        assert cost.required == cost.allocated == cost.engine == 2 * 8192 * cost.bytes_per_token
    assert kv_cache(half, 1, 1).bytes_per_token == 65_536
    spared = 16 * 2 * 4096 * 1024
    assert parameters(whole).total - parameters(half).total == spared
    assert parameters(half).total == 8_030_261_248 - 134_217_728
    for phase in ("prefill_per_token", "decode_per_token"):
        assert getattr(flops(whole, 1, 64), phase) - getattr(flops(half, 1, 64), phase) == 2 * spared


def test_it_has_no_key_and_value_projections_biases_or_key_norm() -> None:
    biased = {"q_bias": True, "k_bias": True, "v_bias": True, "qk_norm": "head", "sinks": True}
    made = spec([{}, SHARES], **biased)
    own, shared = (set(made.layers[index].attention.params()) for index in (0, 1))
    assert own - shared == {"k", "v", "k_bias", "v_bias", "k_norm"}
    assert shared == {"q", "q_bias", "q_norm", "o", "sinks"}
    assert made.layers[1].attention.cached() == ()


def test_devices_copy_the_heads_of_the_layer_that_is_read() -> None:
    half = archlab.load(*EVERY_SECOND)
    assert [kv_cache(half, 1, 1, tp=tp).bytes_per_token for tp in (8, 16, 32)] == [8192] * 3


def test_keys_that_a_prefill_holds_on_for_others_are_counted() -> None:
    """Two layers' windows in a row: of the one that is shared, keys and values of the whole prompt stay, 2 x 2 x 6."""
    serving = Inference(3, CONTEXT, CONTEXT, weights="fp32")

    def working(layers: list[dict[str, Any]]) -> int:
        return inference_memory(spec(layers, 2), serving).parts["working"]

    assert working([LOCAL, LOCAL_SHARES]) - working([LOCAL, LOCAL]) == 3 * CONTEXT * 2 * (2 * 6) * 4
    assert working([{}, SHARES]) == working([{}])


def test_stages_do_not_part_a_layer_from_the_one_that_it_reads() -> None:
    made = spec([{}, SHARES], 8)
    Split(pp=4).check(made, CONTEXT)
    with pytest.raises(ConfigError, match=r"8 stages part layer 1 from layer 0, .* valid: 1, 2, 4") as caught:
        Split(pp=8).check(made, CONTEXT)
    assert caught.value.key == "pp"


def test_no_family_of_hugging_face_says_it() -> None:
    with pytest.raises(ConfigError, match=r"layer 1: attention.shares_kv would be False, not True"):
        export(archlab.load(*EVERY_SECOND))
