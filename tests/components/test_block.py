"""Residual layouts: each against its formula, with both scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archlab.components.attention.module import Step
from archlab.errors import ConfigError
from archlab.options import read_options
from archlab.registry import choice, choices, module_class

R, B = 0.5, -0.3


class Branch(nn.Module):
    """Stands in for attention and FFN: a fixed matrix and a bend."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def forward(self, x: Tensor, step: Step | None = None) -> Tensor:
        return torch.tanh(x @ self.weight)


def block(name: str, **options: Any) -> nn.Module:
    chosen, norm = choice("block", name), choice("norm", "rmsnorm")
    spec = chosen.spec.resolve("block", name, read_options(chosen.spec, options), {"d_model": 6})
    norm_spec = norm.spec.resolve("norm", "rmsnorm", read_options(norm.spec, {}), {})
    made: nn.Module = module_class("block", spec)(spec, norm_spec, 6, Branch(1), Branch(2)).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def pre_norm(x: Tensor, m: Any) -> Tensor:
    x = R * x + B * m.attention(m.attention_norm(x))
    return R * x + B * m.ffn(m.ffn_norm(x))


def post_norm(x: Tensor, m: Any) -> Tensor:
    x = m.attention_norm(R * x + B * m.attention(x))
    return m.ffn_norm(R * x + B * m.ffn(x))


def sandwich(x: Tensor, m: Any) -> Tensor:
    x = R * x + B * m.attention_post_norm(m.attention(m.attention_norm(x)))
    return R * x + B * m.ffn_post_norm(m.ffn(m.ffn_norm(x)))


def res_post_norm(x: Tensor, m: Any) -> Tensor:
    x = R * x + B * m.attention_post_norm(m.attention(x))
    return R * x + B * m.ffn_post_norm(m.ffn(x))


def parallel_1(x: Tensor, m: Any) -> Tensor:
    normed = m.attention_norm(x)
    return R * x + B * (m.attention(normed) + m.ffn(normed))


def parallel_2(x: Tensor, m: Any) -> Tensor:
    return R * x + B * (m.attention(m.attention_norm(x)) + m.ffn(m.ffn_norm(x)))


LAYOUTS: list[tuple[str, dict[str, Any], Callable[[Tensor, Any], Tensor]]] = [
    ("pre_norm", {}, pre_norm),
    ("post_norm", {}, post_norm),
    ("sandwich", {}, sandwich),
    ("res_post_norm", {}, res_post_norm),
    ("parallel", {"n_norms": 1}, parallel_1),
    ("parallel", {"n_norms": 2}, parallel_2),
]


@pytest.mark.parametrize(("name", "options", "formula"), LAYOUTS)
def test_layout(name: str, options: dict[str, Any], formula: Callable[[Tensor, Any], Tensor]) -> None:
    module = block(name, residual_scale=R, branch_scale=B, **options)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    assert torch.allclose(module(x, Step()), formula(x, module), rtol=0, atol=1e-13)


def test_every_layout_is_tested() -> None:
    assert {name for name, _, _ in LAYOUTS} == set(choices("block"))


def test_a_residual_scale_of_0_removes_the_skip_path() -> None:
    module, x = block("pre_norm", residual_scale=0.0), torch.randn(1, 2, 6, dtype=torch.float64)
    assert torch.equal(module(x, Step()), module.ffn(module.ffn_norm(module.attention(module.attention_norm(x)))))


@pytest.mark.parametrize("name", sorted(choices("block")))
def test_the_scale_of_embeddings_may_follow_the_width(name: str) -> None:
    spec = choice("block", name).spec
    options = read_options(spec, {"embedding_scale": "sqrt_d_model"})
    assert spec.resolve("block", name, options, {"d_model": 1024}).options()["embedding_scale"] == 32.0
    with pytest.raises(ConfigError, match="'sqrt' is not a finite number or sqrt_d_model"):
        read_options(spec, {"embedding_scale": "sqrt"})
