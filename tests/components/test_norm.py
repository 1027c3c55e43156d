"""Norms: the formulas in float64, and statistics that half precision cannot spoil."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archlab.components.norm.module import make_norm
from archlab.components.norm.spec import Norm
from archlab.errors import ConfigError
from archlab.options import read_options
from archlab.registry import choice

EPS = 1e-3
VARIANTS: dict[str, dict[str, Any]] = {
    "layernorm": {"choice": "layernorm", "eps": EPS},
    "layernorm without bias": {"choice": "layernorm", "eps": EPS, "bias": False},
    "layernorm without weight": {"choice": "layernorm", "eps": EPS, "weight": False},
    "layernorm with bias alone": {"choice": "layernorm", "eps": EPS, "weight": False, "bias": True},
    "rmsnorm": {"choice": "rmsnorm", "eps": EPS},
    "rmsnorm without weight": {"choice": "rmsnorm", "eps": EPS, "weight": False},
    "rmsnorm without weight, eps outside": {
        "choice": "rmsnorm",
        "eps": EPS,
        "weight": False,
        "eps_place": "outside",
    },
    "rmsnorm, eps outside": {"choice": "rmsnorm", "eps": EPS, "eps_place": "outside"},
    "rmsnorm, unit offset": {"choice": "rmsnorm", "eps": EPS, "unit_offset": True},
    "rmsnorm, both": {"choice": "rmsnorm", "eps": EPS, "unit_offset": True, "eps_place": "outside"},
}


def spec(variant: str) -> Norm:
    options = dict(VARIANTS[variant])
    chosen = choice("norm", options.pop("choice"))
    made: Norm = chosen.spec.resolve("norm", chosen.name, read_options(chosen.spec, options), {})
    return made


def norm(variant: str, width: int, dtype: torch.dtype = torch.float64, heads: int | None = None) -> nn.Module:
    return make_norm(spec(variant), width, heads).to(dtype)


def formula(variant: str, x: Tensor, weight: Tensor | float, bias: Tensor | float) -> Tensor:
    if variant.startswith("layernorm"):
        centred = x - x.mean(-1, keepdim=True)
        return weight * centred / (centred.pow(2).mean(-1, keepdim=True) + EPS).sqrt() + bias
    gain = 1 + weight if VARIANTS[variant].get("unit_offset") else weight
    square = x.pow(2).mean(-1, keepdim=True)
    outside = VARIANTS[variant].get("eps_place") == "outside"
    return gain * x / (square.sqrt() + EPS if outside else (square + EPS).sqrt())


def randomised(module: nn.Module) -> tuple[Tensor | float, Tensor | float]:
    """Random weights in place; the weight and the bias in float64."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    found = dict(module.named_parameters())
    bias = found["bias"].detach().double() if "bias" in found else 0.0
    return found["weight"].detach().double() if "weight" in found else 1.0, bias


@pytest.mark.parametrize("variant", VARIANTS)
def test_formula(variant: str) -> None:
    module, x = norm(variant, 24), 0.1 * torch.randn(2, 5, 24, dtype=torch.float64)
    weight, bias = randomised(module)
    assert torch.allclose(module(x), formula(variant, x, weight, bias), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_norm_a_head_has_weights_a_head(variant: str, dtype: torch.dtype) -> None:
    module, x = norm(variant, 24, dtype, heads=3), torch.randn(2, 5, 3, 24).to(dtype)
    weight, bias = randomised(module)
    assert all(parameter.shape == (3, 24) for parameter in module.parameters())
    wanted = formula(variant, x.double(), weight, bias)
    assert ((module(x).double() - wanted).abs() <= torch.finfo(dtype).eps * wanted.abs() + 1e-6).all()


def test_a_norm_without_weight_owns_nothing_and_needs_none_to_offset() -> None:
    assert spec("layernorm without weight").params(24) == spec("rmsnorm without weight").params(24) == {}
    with pytest.raises(ConfigError, match="weight is false"):
        choice("norm", "rmsnorm").spec.resolve(
            *("norm", "rmsnorm"), {"eps": EPS, "eps_place": "inside", "weight": False, "unit_offset": True}, {}
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_statistics_are_float32_whatever_the_dtype(variant: str, size: float, dtype: torch.dtype) -> None:
    """300 squared is past float16's end; and a result off by more than its own rounding shows rounded statistics."""
    module, x = norm(variant, 256, dtype), (size * torch.randn(4, 256)).to(dtype)
    weight, bias = randomised(module)
    wanted = formula(variant, x.double(), weight, bias)
    given = module(x)
    assert given.dtype == dtype
    assert ((given.double() - wanted).abs() <= torch.finfo(dtype).eps * wanted.abs() + 1e-6).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_new_norm_has_unit_gain(variant: str) -> None:
    module, x = norm(variant, 24), 5 * torch.randn(3, 24, dtype=torch.float64)
    rms = module(x).pow(2).mean(-1).sqrt()
    assert torch.allclose(rms, torch.ones(3, dtype=torch.float64), atol=1e-3)


def test_no_norm_gives_what_it_got() -> None:
    chosen = choice("norm", "none")
    module = make_norm(chosen.spec.resolve("norm", "none", {}, {}), 24)
    x = torch.randn(3, 24)
    assert module(x) is x
    assert not list(module.parameters())
