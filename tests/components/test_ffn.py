"""FFN: activations and gating, with the numbers of the study notes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from archlab.components.dropout.spec import Dropout
from archlab.components.ffn import spec as specs
from archlab.components.ffn.activation import ACTIVATIONS
from archlab.components.ffn.module import FeedForward
from archlab.options import read_options
from archlab.registry import choice, choices, module_class

NO_DROPOUT = Dropout.resolve("dropout", "none", {"p": 0.0}, {})
BY_HAND = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_bloom": lambda x: 0.5 * x * (1 + math.tanh(0.79788456 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu2": lambda x: max(0.0, x) ** 2,
}


def ffn(name: str, d_model: int = 1, dropout: Dropout = NO_DROPOUT, **options: Any) -> FeedForward:
    chosen = choice("ffn", name)
    values = read_options(chosen.spec, options, skip=chosen.fixed)
    chosen.apply_fixed(values)
    spec = chosen.spec.resolve("ffn", name, values, {"d_model": d_model})
    made: FeedForward = module_class("ffn", spec)(spec, dropout).double()
    return made


@pytest.mark.parametrize("name", BY_HAND)
def test_activations(name: str) -> None:
    points = torch.linspace(-4, 4, 81, dtype=torch.float64)
    wanted = [BY_HAND[name](x) for x in points.tolist()]
    assert ACTIVATIONS[name](points).tolist() == pytest.approx(wanted, abs=1e-12)


def test_silu_and_gelu_numbers() -> None:
    silu = ACTIVATIONS["silu"](torch.tensor([-2.0, -1.0, 1.0, 2.0]))
    assert silu.tolist() == pytest.approx([-0.2384, -0.2689, 0.7311, 1.7616], abs=5e-5)
    points = torch.linspace(-6, 6, 10_001, dtype=torch.float64)
    gap = (ACTIVATIONS["gelu"](points) - ACTIVATIONS["gelu_tanh"](points)).abs().max()
    assert gap.item() == pytest.approx(4.7e-4, abs=5e-6)


@pytest.mark.parametrize(("gate", "wanted"), [(2.0, 5.285), (-2.0, -0.715)])
@torch.no_grad()
def test_swiglu_of_gate_and_up_3(gate: float, wanted: float) -> None:
    module = ffn("swiglu", d_ff=1)
    module.gate_up.weight.copy_(torch.tensor([[gate], [3.0]]))
    module.down.weight.fill_(1.0)
    assert module(torch.ones(1, 1, 1, dtype=torch.float64)).item() == pytest.approx(wanted, abs=5e-4)


PLAIN = [name for name, chosen in choices("ffn").items() if chosen.spec is specs.FeedForward]


def test_every_choice_is_tested() -> None:
    assert {*PLAIN, "swiglu_clamped", "moe"} == set(choices("ffn"))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_every_choice_by_hand(name: str, bias: bool) -> None:
    module = ffn(name, d_model=6, d_ff=5, bias=bias)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    fixed = choice("ffn", name).fixed
    act = ACTIVATIONS[fixed["activation"]]
    if fixed["gated"]:
        gate, up = module.gate_up(x)[..., :5], module.gate_up(x)[..., 5:]
        middle = act(gate) * up
    else:
        middle = act(module.up(x))
    wanted = middle @ module.down.weight.T + (module.down.bias if bias else 0)
    assert torch.allclose(module(x), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("limit", [7.0, 0.5])
@torch.no_grad()
def test_the_clamped_gate_is_that_of_gpt_oss(limit: float) -> None:
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssExperts

    theirs = GptOssExperts(GptOssConfig(hidden_size=6, intermediate_size=5, num_local_experts=1, swiglu_limit=limit))
    module = ffn("swiglu_clamped", d_model=6, d_ff=5, bias=True, limit=limit)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=3)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    gate_up = module.gate_up(x)
    middle = theirs._apply_gate(torch.stack((gate_up[..., :5], gate_up[..., 5:]), -1).flatten(-2))
    assert torch.allclose(module(x), module.down(middle), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("gate", "up", "wanted"),
    [
        (1.0, 2.0, 3 * 1 / (1 + math.exp(-1.702))),
        (9.0, 2.0, 3 * 7 / (1 + math.exp(-1.702 * 7))),  # the gate is held at 7
        (-9.0, 2.0, 3 * -9 / (1 + math.exp(1.702 * 9))),  # but from above only
        (1.0, 9.0, 8 * 1 / (1 + math.exp(-1.702))),
        (1.0, -9.0, -6 * 1 / (1 + math.exp(-1.702))),
    ],
)
@torch.no_grad()
def test_clamped_swiglu_by_hand(gate: float, up: float, wanted: float) -> None:
    module = ffn("swiglu_clamped", d_ff=1, bias=True)
    module.gate_up.weight.copy_(torch.tensor([[gate - 0.5], [up + 0.5]]))
    module.gate_up.bias.copy_(torch.tensor([0.5, -0.5]))
    module.down.weight.fill_(2.0)
    module.down.bias.fill_(0.25)
    given = module(torch.ones(1, 1, 1, dtype=torch.float64)).item()
    assert given == pytest.approx(2 * wanted + 0.25, abs=1e-12)


def test_dropout_follows_the_down_projection() -> None:
    rates = Dropout.resolve("dropout", "all", {"p": 0.0, "ffn": 0.5}, {})
    module, x = ffn("swiglu", d_model=64, dropout=rates), torch.randn(2, 3, 64, dtype=torch.float64)
    dropped, kept = module(x), module.eval()(x)
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    assert torch.allclose(dropped[dropped != 0], 2 * kept[dropped != 0])
