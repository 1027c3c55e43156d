"""Building: weights as GPT-2 has them, from a seed, in the dtype and on the device asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_decoder import spec

from archlab.decoder.build import build
from archlab.errors import RequestError


def test_weights_are_spread_as_gpt2s() -> None:
    wide = spec(
        d_model=256,
        n_layers=8,
        vocab_size=1000,
        norm={"choice": "layernorm"},
        position={"choice": "learned"},
        attention={"choice": "mha", "n_heads": 8, "q_bias": True, "o_bias": True},
        ffn={"choice": "gelu", "bias": True},
        head={"choice": "untied"},
    )
    for name, parameter in build(wide).named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            scaled = name.endswith(("attention.o.weight", "ffn.down.weight"))
            assert parameter.std().item() == pytest.approx(0.02 / (4 if scaled else 1), rel=0.05), name
            assert abs(parameter.mean().item()) < 0.001, name


def test_a_unit_offset_starts_at_0() -> None:
    model = build(spec(norm={"choice": "rmsnorm", "unit_offset": True}))
    assert all((p == 0).all() for name, p in model.named_parameters() if "norm" in name)


def test_the_seed_sets_the_weights_and_torchs_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    one, same, other = (build(spec(), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("dtype", "wanted", "table"),
    [
        ("bf16", torch.bfloat16, torch.float32),
        ("float16", torch.float16, torch.float32),
        ("fp32", torch.float32, torch.float32),
        (torch.float64, torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dtypes(dtype: Any, wanted: torch.dtype, table: torch.dtype, device: str) -> None:
    model = build(spec(), device, dtype)
    assert {p.dtype for p in model.parameters()} == {wanted}
    assert {(t.dtype, t.device.type) for t in model.positions[0].tables} == {(table, device)}
    assert all(p.requires_grad for p in model.parameters())
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "int8"),
        ({"dtype": torch.int64}, "int64"),
        ({"device": "nowhere"}, "nowhere"),
        ({"weights": "model.safetensors"}, "no such file"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build(spec(), **options)


def test_a_backward_pass_reaches_every_parameter() -> None:
    model = build(spec(position={"choice": "learned"}, attention={"choice": "gqa", "n_heads": 4, "qk_norm": "head"}))
    model(torch.arange(32)[None]).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
