"""Attention: every way through the door against a softmax written out, and the public cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from archlab.components.attention.attend import attend
from archlab.components.attention.backend import BACKENDS
from archlab.components.attention.module import SelfAttention, Step
from archlab.components.locality import Locality
from archlab.components.position.module import Rotation
from archlab.components.span import causal_mask
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import LayerSpec
from archlab.errors import ConfigError

MODEL: dict[str, Any] = {
    "d_model": 12,
    "n_layers": 1,
    "vocab_size": 5,
    "context": 16,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "none"},
    "attention": {"choice": "gqa", "n_heads": 4},
    "ffn": {"choice": "gelu"},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}


def layer(
    d_model: int = 12, dropout: dict[str, Any] | None = None, norm: str = "rmsnorm", **attention: Any
) -> LayerSpec:
    """A layer with this attention."""
    model = MODEL | {"d_model": d_model, "norm": {"choice": norm}, "attention": {"choice": "gqa", **attention}}
    model["dropout"] = dropout or model["dropout"]
    return resolve(model).spec.layers[0]


def module(spec: LayerSpec) -> SelfAttention:
    made = SelfAttention(spec.attention, spec.dropout).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
    return made


def by_hand(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    visible: Tensor,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    cap: float | None = None,
) -> Tensor:
    """One query at a time: softmax over what it sees, times the values."""
    batch, heads, queries, _ = q.shape
    out = q.new_zeros(batch, heads, queries, v.shape[-1])
    for b, h, i in itertools.product(range(batch), range(heads), range(queries)):
        kv = h // (heads // k.shape[1])
        scores = torch.stack([scale * (q[b, h, i] * key).sum() for key in k[b, kv]])
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        scores = scores if bias is None else scores + bias[h, i]
        most = scores[visible[i]].max()
        powers = torch.where(visible[i], (scores - most).exp(), 0)
        sink = 0 if sinks is None else (sinks[h] - most).exp()
        out[b, h, i] = (powers[:, None] * v[b, kv]).sum(0) / (powers.sum() + sink)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (2, 5), (5, 5)])
@pytest.mark.parametrize(("heads", "kv"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_every_way_is_the_softmax_by_hand(
    backend: str, queries: int, keys: int, heads: int, kv: int, masked: bool
) -> None:
    q = torch.randn(2, heads, queries, 3, dtype=torch.float64)
    k, v = (torch.randn(2, kv, keys, 3, dtype=torch.float64) for _ in range(2))
    visible = torch.rand(queries, keys) > 0.5
    visible[:, 0] = True
    mask = visible if masked else None
    given = attend(q, k, v, scale=0.7, mask=mask, causal=not masked, backend=backend)
    wanted = by_hand(q, k, v, 0.7, visible if masked else causal_mask(queries, keys, q.device))
    assert torch.allclose(given, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (2, 5), (5, 5)])
@pytest.mark.parametrize(("heads", "kv"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("kind", ["causal", "bool", "bias"])
@pytest.mark.parametrize("values", [2, 3])
def test_sinks_caps_and_biases_by_hand(
    backend: str,
    queries: int,
    keys: int,
    heads: int,
    kv: int,
    cap: float | None,
    with_sinks: bool,
    kind: str,
    values: int,
) -> None:
    q = torch.randn(2, heads, queries, 3, dtype=torch.float64)
    k, v = torch.randn(2, kv, keys, 3, dtype=torch.float64), torch.randn(2, kv, keys, values, dtype=torch.float64)
    visible = causal_mask(queries, keys, q.device)
    bias = torch.randn(heads, queries, keys, dtype=torch.float64) if kind == "bias" else None
    mask = {"causal": None, "bool": visible}.get(kind)
    mask = mask if bias is None else bias.masked_fill(~visible, -torch.inf)
    sinks = torch.randn(heads, dtype=torch.float64) if with_sinks else None
    wanted = by_hand(q, k, v, 0.7, visible, bias, sinks, cap)
    for trained in (False, True):
        with torch.set_grad_enabled(trained):
            asked = {"mask": mask, "causal": mask is None, "sinks": sinks, "logit_cap": cap, "backend": backend}
            assert torch.allclose(attend(q, k, v, scale=0.7, **asked), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_d10_a_cap_is_applied_by_every_backend(backend: str) -> None:
    """50 tanh(x / 50) of scores 100, 50, 10: 48.20, 38.08, 9.87; read back from the weights."""
    q, k = torch.ones(1, 1, 1, 1).double(), torch.tensor([100.0, 50.0, 10.0]).double().view(1, 1, 3, 1)
    v = torch.eye(3).double().view(1, 1, 3, 3)
    logs = attend(q, k, v, scale=1.0, causal=True, logit_cap=50.0, backend=backend)[0, 0, 0].log()
    capped = torch.tensor([48.20, 38.08, 9.87]).double()
    assert torch.allclose(logs - logs[0], capped - capped[0], rtol=0, atol=0.011)


def test_d10_the_module_says_what_really_ran() -> None:
    assert module(layer(n_heads=4)).backend_used == "sdpa"
    capped = layer(n_heads=4, logit_cap=50.0)
    assert (capped.attention.backend_used, module(capped).backend_used) == ("math", "math")
    assert module(layer(n_heads=4, sinks=True, window=3)).backend_used == "sdpa"
    capped = layer(n_heads=4, logit_cap=50.0, backend="flex")
    assert (capped.attention.backend_used, module(capped).backend_used) == ("flex", "flex")


@pytest.mark.parametrize("cap", [0, -50.0, float("inf"), float("nan"), "off"])
@pytest.mark.parametrize("axis", ["attention", "head"])
def test_d11_a_cap_is_finite_and_positive_or_null(cap: Any, axis: str) -> None:
    spec = resolve(MODEL | {axis: MODEL[axis] | {"logit_cap": None}}).spec
    assert (spec.head if axis == "head" else spec.layers[0].attention).options()["logit_cap"] is None
    with pytest.raises(ConfigError, match=rf"model\.{axis}\.logit_cap"):
        resolve(MODEL | {axis: MODEL[axis] | {"logit_cap": cap}})


@pytest.mark.parametrize("option", ["window", "chunk"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_a_window_of_no_whole_key_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"model\.attention\.{option}"):
        layer(n_heads=4, **{option: value})


def test_window_and_chunk_say_one_thing_two_ways() -> None:
    with pytest.raises(ConfigError, match="set one of them"):
        layer(n_heads=4, window=3, chunk=4)
    model = MODEL | {"attention": MODEL["attention"] | {"window": 3, "chunk": 4}}
    assert resolve(model, typed=["model.attention.chunk"]).spec.layers[0].attention.locality == Locality(chunk=4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("queries", [1, 2])
def test_d01_queries_after_a_cache_see_all_of_it(backend: str, queries: int) -> None:
    q, k, v = torch.zeros(1, 1, queries, 5), torch.zeros(1, 1, 5, 5), torch.eye(5).view(1, 1, 5, 5)
    seen = attend(q, k, v, scale=1.0, causal=True, backend=backend)[0, 0] > 0
    wanted = {1: [[1, 1, 1, 1, 1]], 2: [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]}
    assert seen.int().tolist() == wanted[queries]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("queries", [1, 3])
def test_d05_kv_heads_are_repeated_not_tiled(backend: str, queries: int) -> None:
    q, k = torch.zeros(1, 4, queries, 2), torch.zeros(1, 2, 3, 2)
    v = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 3, 2)
    served = attend(q, k, v, scale=1.0, causal=True, backend=backend)[0, :, 0, 0]
    assert served.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_f01_dropout_drops_pairs_not_features(backend: str) -> None:
    q, k, v = torch.zeros(1, 2, 64, 8), torch.zeros(1, 2, 64, 8), torch.ones(1, 2, 64, 8)
    y = attend(q, k, v, scale=1.0, causal=True, dropout_p=0.5, backend=backend)
    assert torch.allclose(y, y[..., :1].expand_as(y))  # each key is kept or dropped for all of its features
    assert y[..., 32:, 0].std() > 0.05
    assert y[..., 32:, 0].mean().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_d14_eval_is_bit_identical(backend: str) -> None:
    attention = module(layer(dropout={"choice": "all", "p": 0.5}, n_heads=4, backend=backend))
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    assert not torch.equal(attention(x, Step()), attention(x, Step()))
    attention.eval()
    assert torch.equal(attention(x, Step()), attention(x, Step()))


def test_d16_heads_wider_than_the_model() -> None:
    spec = layer(1536, n_heads=32, n_kv_heads=32, head_dim=64)
    attention = SelfAttention(spec.attention, spec.dropout)
    assert attention.o.weight.shape == (1536, 2048)
    assert attention(torch.zeros(1, 3, 1536), Step()).shape == (1, 3, 1536)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_explicit_softmax_is_computed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 2, 40, 16).to(dtype) for _ in range(3))
    wide = attend(q.double(), k.double(), v.double(), scale=0.25, causal=True, backend="math")
    given = attend(q, k, v, scale=0.25, causal=True, backend="math")
    assert given.dtype == dtype
    assert (given.double() - wide).abs().max() <= torch.finfo(dtype).eps * wide.abs().max()  # one rounding, at the end


def test_gradients_are_those_of_the_explicit_softmax() -> None:
    inputs = [torch.randn(2, heads, 5, 4, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]
    grads = []
    for backend in BACKENDS:
        y = attend(*inputs, scale=0.5, causal=True, backend=backend)
        grads.append(torch.autograd.grad(y.square().sum(), inputs))
    for found in zip(*grads, strict=True):
        assert all(torch.allclose(one, found[0], rtol=0, atol=1e-11) for one in found)


def test_projections_are_fused_unless_their_biases_differ() -> None:
    assert set(dict(module(layer(n_heads=4, q_bias=True)).named_parameters())) == {
        *("q.weight", "q.bias", "k.weight", "v.weight", "o.weight"),
    }
    assert set(dict(module(layer(n_heads=4)).named_parameters())) == {"qkv.weight", "o.weight"}


@torch.no_grad()
def test_fused_and_separate_projections_agree() -> None:
    fused, separate = module(layer(n_heads=4)), module(layer(n_heads=4, v_bias=True))
    assert fused.qkv is not None
    for part, rows in zip((separate.q, separate.k, separate.v), fused.qkv.weight.split(fused.widths), strict=True):
        part.weight.copy_(rows)
    separate.v.bias.zero_()
    separate.o.weight.copy_(fused.o.weight)
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    assert torch.allclose(fused(x, Step()), separate(x, Step()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("qk_norm", ["head", "full", "per_head"])
@pytest.mark.parametrize("clip", [None, 0.3])
@torch.no_grad()
def test_query_and_key_norms_come_before_the_rotation(qk_norm: str, norm: str, clip: float | None) -> None:
    """A clip stands between the full norm, as in OLMoE, and the head's; OLMo 1, MPT and DBRX clip without a norm."""
    attention = module(layer(norm=norm, n_heads=4, n_kv_heads=2, head_dim=4, qk_norm=qk_norm, qkv_clip=clip))
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    assert attention.qkv is not None
    q, k, v = attention.qkv(x).split([16, 8, 8], -1)
    if qk_norm == "full":
        q, k = attention.q_norm(q), attention.k_norm(k)
    q, k, v = ((t if clip is None else t.clamp(-clip, clip)).view(2, 3, -1, 4) for t in (q, k, v))
    if qk_norm != "full":
        q, k = attention.q_norm(q), attention.k_norm(k)
    angle = torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.1])).double()
    turn = Rotation(angle.cos(), angle.sin(), interleaved=False)
    q, k, v = turn(q.transpose(1, 2)), turn(k.transpose(1, 2)), v.transpose(1, 2)
    y = by_hand(q, k, v, 0.5, causal_mask(3, 3, q.device)).transpose(1, 2).flatten(2)
    assert torch.allclose(attention(x, Step(turn)), attention.o(y), rtol=0, atol=1e-12)


def test_residual_dropout_follows_the_output_projection() -> None:
    attention = module(layer(dropout={"choice": "all", "p": 0, "residual": 0.5}, n_heads=4))
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    dropped = attention(x, Step())
    kept = attention.eval()(x, Step())
    assert 0.2 < (dropped == 0).double().mean() < 0.8
    assert torch.allclose(dropped[dropped != 0], 2 * kept[dropped != 0])
