"""A mixture of experts: who is chosen and with which weight against a plain loop, and all that a stack must keep."""

from __future__ import annotations

import copy
import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from strategies import spread_weights
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from archlab.components.dropout.spec import Dropout
from archlab.components.ffn.experts import Experts
from archlab.components.ffn.module import MixtureOfExperts
from archlab.components.ffn.router import Router
from archlab.components.ffn.spec import MixtureOfExperts as Spec
from archlab.cost.flops import flops
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec

MODEL: dict[str, Any] = {
    "d_model": 16,
    "n_layers": 2,
    "vocab_size": 31,
    "context": 16,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2},
    "dropout": {"choice": "none"},
    "head": {"choice": "untied"},
    "block": {"choice": "pre_norm"},
}
EXPERT = {"choice": "swiglu", "d_ff": 6}
V3 = {"scoring": "sigmoid", "n_experts": 12, "n_groups": 4, "groups_per_token": 2, "group_score": "top2"}
V3 |= {"experts_per_token": 3, "balance_bias": True, "scaling": 2.5, "n_shared": 1}


def model(layers: list[dict[str, Any]] | None = None, **options: Any) -> DecoderSpec:
    return resolve(MODEL | {"ffn": {"choice": "moe", "expert": EXPERT} | options, "layers": layers}).spec


def spec(**options: Any) -> Spec:
    found = model(**options).layers[0].ffn
    assert isinstance(found, Spec)
    return found


def decoder(dtype: str = "fp64", **options: Any) -> Decoder:
    return spread_weights(build(model(**options), dtype=dtype)).eval()


def tokens(count: int = 12) -> Tensor:
    return torch.arange(2 * count).view(2, count) % 31


# --- routing ----------------------------------------------------------------------------------------------------------

GROUPS = [{}, {"n_groups": 4, "groups_per_token": 2}, {"n_groups": 2, "groups_per_token": 1}, {"n_groups": 6}]
SWITCHES = ("normalise", "balance_bias", "router_bias")
ROUTINGS = [
    {"scoring": scoring, "group_score": best, **groups, **dict(zip(SWITCHES, switches, strict=True))}
    for scoring, best, groups, switches in itertools.product(
        ("softmax", "sigmoid"), ("max", "top2"), GROUPS, itertools.product((False, True), repeat=3)
    )
]


def by_hand(x: list[float], router: Router, s: Spec) -> dict[int, float]:
    """Of one token: the chosen experts and their weights, as the papers say it."""
    rows, bias = router.weight.tolist(), router.bias.tolist() if router.bias is not None else [0.0] * s.n_experts
    logits = [sum(w * a for w, a in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]
    if s.scoring == "softmax":
        total = sum(math.exp(logit) for logit in logits)
        scores = [math.exp(logit) / total for logit in logits]
    else:
        scores = [1 / (1 + math.exp(-logit)) for logit in logits]
    balance = router.balance_bias.tolist() if router.balance_bias is not None else [0.0] * s.n_experts
    ranked = [score + b for score, b in zip(scores, balance, strict=True)]
    size, counted = s.n_experts // s.n_groups, 2 if s.group_score == "top2" else 1
    groups = [list(range(g * size, (g + 1) * size)) for g in range(s.n_groups)]
    groups.sort(key=lambda group: -sum(sorted((ranked[e] for e in group), reverse=True)[:counted]))
    allowed = [e for group in groups[: s.groups_per_token] for e in group]
    chosen = sorted(allowed, key=lambda e: -ranked[e])[: s.experts_per_token]
    divisor = sum(scores[e] for e in chosen) if s.normalise else 1.0
    return {e: s.scaling * scores[e] / divisor for e in chosen}


@pytest.mark.parametrize("options", ROUTINGS, ids=lambda o: "-".join(str(value) for value in o.values()))
@torch.no_grad()
def test_routing_by_hand(options: dict[str, Any]) -> None:
    s = spec(n_experts=12, experts_per_token=3, scaling=1.7, **options)
    router, x = Router(s).double(), torch.randn(20, 16, dtype=torch.float64)
    for tensor in (*router.parameters(), *router.buffers()):
        tensor.normal_(0, 0.3)
    for token, chosen, weights in zip(x.tolist(), *(t.tolist() for t in router(x)), strict=True):
        assert dict(zip(chosen, weights, strict=True)) == pytest.approx(by_hand(token, router, s), abs=1e-12)


@torch.no_grad()
def test_a_normalised_softmax_is_the_softmax_over_the_chosen() -> None:
    """gpt-oss takes the softmax after the choice, Mixtral before it and divides; they are one."""
    router, x = Router(spec(n_experts=12, experts_per_token=3, router_bias=True)).double(), torch.randn(9, 16).double()
    for tensor in router.parameters():
        tensor.normal_()
    best = torch.nn.functional.linear(x, router.weight, router.bias).topk(3, -1)
    chosen, weights = router(x)
    assert torch.equal(chosen, best.indices)
    assert torch.allclose(weights, best.values.softmax(-1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@torch.no_grad()
def test_routing_is_in_float32_or_wider(dtype: torch.dtype) -> None:
    router, x = Router(spec(n_experts=12, scoring="sigmoid")).to(dtype), torch.randn(50, 16).to(dtype)
    router.weight.normal_(0, 0.3)
    chosen, weights = router(x)
    wide = torch.promote_types(dtype, torch.float32)
    assert weights.dtype == wide
    exact = (x.to(wide) @ router.weight.to(wide).T).sigmoid()
    assert torch.equal(chosen.sort().values, exact.topk(2, -1).indices.sort().values)


@torch.no_grad()
def test_scores_that_are_all_0_do_not_divide_by_it() -> None:
    router = Router(spec(scoring="sigmoid"))
    router.weight.fill_(-1e4)
    assert torch.equal(router(torch.ones(3, 16))[1], torch.zeros(3, 2))


# --- the balance bias -------------------------------------------------------------------------------------------------


def test_the_balance_bias_is_a_buffer_that_no_cast_rounds() -> None:
    for dtype, wide in (("bf16", torch.float32), ("fp16", torch.float32), ("fp64", torch.float64)):
        made = build(model(**V3), dtype=dtype)
        router = made.layers[0].ffn.router
        assert "layers.0.ffn.router.balance_bias" in made.state_dict()
        assert all("balance" not in name for name, _ in made.named_parameters())
        assert torch.equal(router.balance_bias, torch.zeros(12, dtype=wide))
    held = torch.rand(12)
    router.balance_bias.copy_(held)
    moved = copy.deepcopy(made).float().bfloat16().float()
    assert torch.equal(moved.layers[0].ffn.router.balance_bias, held)
    assert moved.to("meta").layers[0].ffn.router.balance_bias.is_meta
    assert build(model(**V3), "meta", "bf16").layers[0].ffn.router.balance_bias.dtype == torch.float32


@torch.no_grad()
def test_the_balance_bias_chooses_but_does_not_weigh() -> None:
    router, x = Router(spec(n_experts=4, experts_per_token=1, balance_bias=True, normalise=False)), torch.randn(5, 16)
    router.weight.normal_()
    router.balance_bias[3] = 10.0
    chosen, weights = router(x)
    assert (chosen == 3).all()
    assert torch.allclose(weights[:, 0], (x @ router.weight.T).softmax(-1)[:, 3])


# --- the experts ------------------------------------------------------------------------------------------------------

EXPERTS = [{"choice": "swiglu"}, {"choice": "gelu", "bias": True}, {"choice": "swiglu_clamped", "bias": True}]


@pytest.mark.parametrize("path", [None, "sorted", "gathered", "looped"])
@pytest.mark.parametrize("expert", EXPERTS, ids=lambda e: e["choice"])
@torch.no_grad()
def test_the_block_by_hand(expert: dict[str, Any], path: str | None) -> None:
    made = decoder(expert=expert | {"d_ff": 6}, n_experts=5, n_shared=2, shared_gate=True).layers[0].ffn
    made.experts.path = path
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    chosen, weights = made.router(x.flatten(0, 1))
    wanted = made.shared_gate(x).sigmoid() * made.shared(x)
    for row, experts, shares in zip(wanted.view(-1, 16).unbind(), chosen.tolist(), weights.tolist(), strict=True):
        token = x.view(-1, 16)[[row.storage_offset() // 16]]
        for index, share in zip(experts, shares, strict=True):
            row += share * one_expert(made, expert["choice"], index)(token)[0]
    assert torch.allclose(made(x), wanted, rtol=0, atol=1e-12)


def one_expert(made: MixtureOfExperts, choice: str, index: int) -> torch.nn.Module:
    """Expert `index` as the plain FFN that it is."""
    stacks = made.experts
    alone = build(resolve(MODEL | {"ffn": {"choice": choice, "d_ff": 6, "bias": len(stacks.names) == 4}}).spec)
    ffn = alone.layers[0].ffn.double()
    renamed = {name if "bias" in name else f"{name}_weight": getattr(stacks, name)[index] for name in stacks.names}
    ffn.load_state_dict({".".join(name.rsplit("_", 1)): tensor for name, tensor in renamed.items()})
    return ffn


@pytest.mark.parametrize("path", ["sorted", "gathered", "looped"])
def test_gradients_are_the_same_on_every_way(path: str) -> None:
    gradients = []
    for way in ("looped", path):
        made = decoder(**V3)
        for layer in made.layers:
            layer.ffn.experts.path = way
        made(tokens()).square().sum().backward()
        gradients.append([p.grad for p in made.parameters()])
    for given, wanted in zip(*gradients, strict=True):
        assert torch.allclose(given, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda e: e["choice"])
def test_one_product_for_all_experts_is_each_expert_asked(expert: dict[str, Any]) -> None:
    """In bf16, which alone has it, beside float64; some experts have no token."""
    made = decoder("bf16", expert=expert | {"d_ff": 8}, n_experts=12).layers[0].ffn
    x, found = torch.randn(1, 5, 16).bfloat16(), []
    for ffn, path in ((made, "grouped"), (copy.deepcopy(made).double(), "looped")):
        ffn.experts.path = path
        y = ffn(x.to(ffn.experts.down.dtype))
        y.double().square().sum().backward()
        found.append([y.detach(), *(parameter.grad for parameter in ffn.parameters())])
    for given, wanted in zip(*found, strict=True):  # by the norm: what cancels in one number may be off by much of it
        assert (given.double() - wanted).norm() < 0.1 * wanted.norm()


@torch.no_grad()
def test_in_half_precision_the_sum_is_taken_in_float32() -> None:
    made = decoder("bf16", n_experts=8, experts_per_token=8).layers[0].ffn
    x = torch.randn(1, 64, 16).bfloat16()
    chosen, weights = made.router(x[0])
    outputs = made.experts._looped(x[0], chosen)
    assert outputs.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    made.experts.path = "looped"
    assert torch.equal(made(x)[0], (outputs.float() * weights[..., None]).sum(1).bfloat16())


def test_the_way_is_chosen_by_what_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    experts, x = Experts(spec()), torch.zeros(1, 16)
    chosen = torch.zeros(1, 2, dtype=torch.int64)
    assert experts._suitable(x, chosen) == "sorted"
    assert experts._suitable(x.to("meta"), chosen) == "gathered"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert experts._suitable(x, chosen) == "gathered"
    assert experts._suitable(x.expand(9, 16), chosen.expand(9, 2)) == "sorted"


@pytest.mark.parametrize("width", [16, 12])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_many_tokens_go_in_one_product_where_there_is_one(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of whole 16 bytes in bf16: under torch.compile anywhere, and on CUDA from Hopper on always."""
    experts = Experts(spec(expert=EXPERT | {"d_ff": width}))
    there = dtype == torch.bfloat16 and width == 16
    for device, compiling, major, wanted in (
        ("cpu", False, 0, "sorted"),
        ("cpu", True, 0, "grouped" if there else "sorted"),
        ("cuda", False, 9, "grouped" if there else "sorted"),
        ("cuda", False, 8, "sorted"),
    ):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda so=compiling: so)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, is_=major: SimpleNamespace(major=is_))
        with FakeTensorMode():
            x, chosen = torch.empty(9, 16, dtype=dtype, device=device), torch.empty(9, 2, device=device).long()
            assert experts._suitable(x, chosen) == wanted


@pytest.mark.parametrize("count", [1, 16])
def test_a_compiled_mixture_in_bf16_is_one_graph(count: int) -> None:
    made = decoder("bf16", **V3, expert=EXPERT | {"d_ff": 8}).layers[0].ffn
    x = torch.randn(1, count, 16).bfloat16()
    compiled = torch.compile(made, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x).float(), made(x).float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("count", [1, 16])
@torch.no_grad()
def test_a_compiled_mixture_is_the_eager_one(count: int) -> None:
    made, x = decoder(**V3).layers[0].ffn, torch.randn(1, count, 16, dtype=torch.float64)
    compiled = torch.compile(made, backend="eager", fullgraph=count == 1)
    assert torch.allclose(compiled(x), made(x), rtol=0, atol=1e-12)


@torch.no_grad()
def test_compiled_decode_is_one_graph_whatever_the_position() -> None:
    made, ids, counter = decoder(**V3), tokens(12), CompileCounter()
    cache = KVCache(made.spec, 2, 12, torch.float64, static=True)
    compiled = torch.compile(made, backend=counter)
    rows = [made(ids[:, :4], cache), *(compiled(ids[:, [step]], cache) for step in range(4, 12))]
    assert torch.allclose(torch.cat(rows, 1), made(ids), rtol=0, atol=1e-12)
    assert counter.frame_count == 1


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("options", [{}, V3 | {"shared_gate": True}, {"expert": EXPERT | {"bias": True}}])
@torch.no_grad()
def test_flops_are_those_of_the_active_experts(options: dict[str, Any], device: str) -> None:
    made = build(model(**options), device).eval()
    for layer in made.layers:
        layer.attention.backend = "math"
    with FlopCounterMode(display=False) as counter:
        made(tokens(9).to(device))
    assert counter.get_total_flops() == flops(made.spec, 2, 9, 0).prefill


def test_one_token_trains_just_the_active_parameters() -> None:
    """Brute force: a stack counts as many experts as got a gradient."""
    for options in ({"n_experts": 5}, V3, {"expert": EXPERT | {"bias": True}, "router_bias": True, "n_shared": 2}):
        made = decoder(**options)
        made(torch.tensor([[3]])).square().sum().backward()
        used = 0
        for name, parameter in made.named_parameters():
            rows = parameter.grad.flatten(1).abs().sum(1).bool().sum().item() if ".experts." in name else 1
            used += parameter.numel() * rows // len(parameter) if ".experts." in name else parameter.numel()
        assert used == parameters(made.spec).active


def test_a_backward_pass_reaches_every_parameter() -> None:
    made = decoder(**V3, shared_gate=True, router_bias=True)
    made(tokens()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in made.parameters())


def test_dropout_falls_once_on_the_sum() -> None:
    rates = Dropout.resolve("dropout", "all", {"p": 0.0, "ffn": 0.5}, {})
    made = MixtureOfExperts(spec(n_shared=1), rates).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 30, 16, dtype=torch.float64)
    dropped, kept = made(x), made.eval()(x)
    assert 0.4 < (dropped == 0).double().mean() < 0.6
    assert torch.allclose(dropped[dropped != 0], 2 * kept[dropped != 0])


# --- weights and parameters -------------------------------------------------------------------------------------------


def test_weights_are_spread_as_in_a_dense_model() -> None:
    ffn = {"choice": "moe", "n_experts": 16, "n_shared": 1, "router_bias": True, "expert": {"bias": True}}
    wide = resolve(MODEL | {"d_model": 128, "n_layers": 8, "ffn": ffn}).spec
    found = dict(build(wide).layers[0].ffn.named_parameters())
    for name, parameter in found.items():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            shrink = 4 if name in ("experts.down", "shared.down.weight") else 1
            assert parameter.std().item() == pytest.approx(0.02 / shrink, rel=0.05), name
    assert found["experts.gate_up"].shape == (16, 2 * 384, 128)
    assert found["experts.down"].shape == (16, 128, 384)
    assert found["router.weight"].shape == (16, 128)


DENSE = {"ffn": {"choice": "swiglu", "d_ff": 40}}


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ([DENSE | {"repeat": 3}, {"repeat": 58}], [(0, 1, 2), (3, 4, 5, 6)]),
        ([DENSE, {}], [(0, 2, 4, 6), (1, 3, 5)]),
        ([{"ffn": {"expert": {"d_ff": 7}}}, {}, {}], [(0, 3, 6), (1, 2, 4, 5)]),
    ],
    ids=["dense first", "alternating", "experts that differ"],
)
def test_patterns_of_dense_layers_and_mixtures(layers: list[dict[str, Any]], kinds: list[tuple[int, ...]]) -> None:
    resolved = resolve(MODEL | {"n_layers": 7, "ffn": {"choice": "moe", "expert": EXPERT}, "layers": layers})
    assert [indices for _, indices in resolved.spec.layer_kinds] == kinds
    assert resolved.notes == []
    made, paper = build(resolved.spec, "meta"), parameters(resolved.spec)
    detail: dict[str, int] = {}
    for name, parameter in made.named_parameters():
        if ".ffn." in name:
            role = {"router": "router", "experts": "routed_experts"}.get(name.split(".")[3], "dense")
            detail[role] = detail.get(role, 0) + parameter.numel()
    assert paper.ffn_detail == detail
    assert paper.total - paper.active == detail["routed_experts"] * 6 // 8
