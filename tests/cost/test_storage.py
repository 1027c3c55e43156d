"""How numbers are kept: bytes of quantised tensors with their scales, against the files' own layout and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs

import archlab
from archlab.cost.storage import (
    KV_STORAGE,
    WEIGHT_STORAGE,
    kv_storage,
    tensor_bytes,
    weight_bytes,
    weight_storage,
)
from archlab.decoder.build import build
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.units import DTYPE_BYTES


@pytest.mark.parametrize(
    ("name", "token"), [("bf16", 2048), ("fp32", 4096), ("fp8", 1024), ("int8", 1040), ("int4", 640)]
)
def test_a_token_of_keys_with_its_scales(name: str, token: int) -> None:
    """8 heads of 128: int8 adds 8 fp16 scales; int4 is llama.cpp's q4_1, 20 bytes for 32 elements."""
    assert kv_storage(name).bytes(8 * 128, 128) == token


def test_a_last_smaller_group_has_its_own_scales() -> None:
    assert kv_storage("int4").bytes(3 * 80, 80) == 3 * (40 + 3 * 4)
    assert weight_storage("int4").bytes(10 * 192, 192) == (10 * 192 * 4 + 10 * 2 * 20) // 8


@pytest.mark.parametrize(("inputs", "outputs"), [(4096, 11008), (1408, 2048), (14336, 4096)])
def test_int4_is_what_a_gptq_file_holds(inputs: int, outputs: int) -> None:
    """qweight [in / 8, out] int32, scales [in / 128, out] fp16, qzeros [in / 128, out / 8] int32."""
    groups = inputs // 128
    qweight = torch.empty(inputs // 8, outputs, dtype=torch.int32, device="meta")
    scales = torch.empty(groups, outputs, dtype=torch.float16, device="meta")
    qzeros = torch.empty(groups, outputs // 8, dtype=torch.int32, device="meta")
    held = sum(tensor.nbytes for tensor in (qweight, scales, qzeros))
    assert weight_storage("int4").bytes(inputs * outputs, inputs) == held


LLAMA_MATRICES = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
LLAMA_ROWS = 32 * (4096 + 1024 + 1024 + 4096 + 2 * 14336 + 4096)
LLAMA_OTHERS = 2 * 128_256 * 4096 + 65 * 4096


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", 2 * 8_030_261_248),
        ("fp32", 4 * 8_030_261_248),
        ("fp8", LLAMA_MATRICES + 2 * LLAMA_OTHERS),
        ("int8", LLAMA_MATRICES + 2 * LLAMA_ROWS + 2 * LLAMA_OTHERS),
        ("int4", LLAMA_MATRICES // 2 + LLAMA_MATRICES // 128 * 20 // 8 + 2 * LLAMA_OTHERS),
    ],
)
def test_llama_3_8b_as_published_checkpoints_keep_it(name: str, expected: int) -> None:
    """Embedding, head and norms stay in bf16."""
    assert weight_bytes(archlab.load("llama-3-8b"), weight_storage(name)) == expected


def test_experts_are_rounded_and_the_router_is_not() -> None:
    spec = archlab.load("mixtral-8x7b")
    layer = spec.layers[0]
    kept = tensor_bytes(layer.ffn, weight_storage("fp8"))
    assert kept == {"router": 2 * 8 * 4096, "experts.up": 8 * 2 * 4096 * 14336, "experts.down": 8 * 4096 * 14336}


@given(specs(), st.sampled_from(sorted(DTYPE_BYTES)))
def test_a_plain_dtype_holds_for_every_parameter(spec: DecoderSpec, name: str) -> None:
    held = sum(parameter.numel() for parameter in build(spec, device="meta").parameters())
    assert weight_bytes(spec, weight_storage(name)) == held * DTYPE_BYTES[name]


@given(specs(), st.sampled_from(["fp8", "int8", "int4"]))
def test_the_built_modules_matrices_are_rounded_and_nothing_else(spec: DecoderSpec, name: str) -> None:
    """By the tensors' own shapes: the last dimension of a matrix, stacked or not, is what a row has."""
    storage, decoder = weight_storage(name), build(spec, device="meta")
    rounded = {f"layers.{index}.{name}" for index, layer in enumerate(decoder.layers) for name in _matrices(layer)}
    expected = sum(
        storage.bytes(tensor.numel(), tensor.shape[-1]) if name in rounded else 2 * tensor.numel()
        for name, tensor in decoder.named_parameters()
    )
    apart = 4 * len(rounded) * (name == "int4")  # fused in the module, one by one on paper: each rounds up to a byte
    assert expected <= weight_bytes(spec, storage) <= expected + apart


def _matrices(layer: torch.nn.Module) -> list[str]:
    others = ("norm", "bias", "router", "shared_gate")
    named = [(name, tensor) for name, tensor in layer.named_parameters() if name.split(".")[0] in ("attention", "ffn")]
    return [name for name, tensor in named if tensor.ndim > 1 and not any(word in name for word in others)]


@pytest.mark.parametrize("find", [kv_storage, weight_storage])
def test_unknown_names_are_refused_with_the_nearest(find: Any) -> None:
    with pytest.raises(ConfigError, match=r"mine: 'int5'.*did you mean int[48]\?; valid: bf16, fp16, fp32, fp64, fp8"):
        find("int5", "mine")
    assert find("bfloat16") is find("bf16")
    assert set(KV_STORAGE) == set(WEIGHT_STORAGE)
