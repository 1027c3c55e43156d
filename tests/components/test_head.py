"""Heads: what they own and what they give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from archlab.options import read_options
from archlab.registry import choice, module_class

SIZES = {"d_model": 6, "vocab_size": 10}


def head(name: str, **options: Any) -> nn.Module:
    chosen = choice("head", name)
    values = read_options(chosen.spec, options, skip=chosen.fixed)
    chosen.apply_fixed(values)
    made: nn.Module = module_class("head", chosen.spec.resolve("head", name, values, SIZES))(
        chosen.spec.resolve("head", name, values, SIZES)
    )
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_head_projects_through_the_embedding_and_owns_no_weight(bias: bool) -> None:
    module, x, embedding = head("tied", bias=bias, logit_scale=0.25), torch.randn(2, 3, 6), torch.randn(10, 6)
    assert [name for name, _ in module.named_parameters()] == (["bias"] if bias else [])
    wanted = 0.25 * (x @ embedding.T + (module.bias if bias else 0))
    assert torch.allclose(module(x, embedding), wanted, atol=1e-6)


def test_an_untied_head_ignores_the_embedding() -> None:
    module, x = head("untied"), torch.randn(2, 3, 6)
    assert torch.allclose(module(x, torch.full((10, 6), torch.nan)), x @ module.weight.T, atol=1e-6)


@pytest.mark.parametrize("name", ["classification", "regression"])
def test_a_task_head_has_outputs_and_a_bias(name: str) -> None:
    module, x = head(name, n_outputs=4), torch.randn(2, 3, 6)
    assert module.weight.shape == (4, 6)
    assert torch.allclose(module(x, torch.empty(0)), x @ module.weight.T + module.bias, atol=1e-6)


def test_a_cap_comes_after_the_scale() -> None:
    """30 tanh(x / 30), the final_logit_softcapping of Gemma 2."""
    module, x, embedding = head("tied", logit_scale=0.5, logit_cap=30.0), 9 * torch.randn(2, 3, 6), torch.randn(10, 6)
    wanted = 30 * torch.tanh(0.5 * (x @ embedding.T) / 30)
    assert torch.allclose(module(x, embedding), wanted, atol=1e-5)
    assert wanted.abs().max() < 30 < (0.5 * (x @ embedding.T)).abs().max() * 2
