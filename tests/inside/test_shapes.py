"""The path of a token: sums are those of the closed forms, shapes are by hand, what is kept is what torch keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from strategies import CONTEXT, specs

import archlab
from archlab.decoder.build import build
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError
from archlab.inside.shapes import document
from archlab.inside.trace import trace

T5 = archlab.load("minimind", "model/position=t5", "model.n_layers=2")
MINIMIND = {
    "embedding": ("[B, n]", "[B, n, d]", "[2, 128, 768]", 4_915_200, 0),
    "attention_norm": ("[B, n, d]", "[B, n, d]", "[2, 128, 768]", 768, 0),
    "attention.qkv": ("[B, n, d]", "[B, n, (h + 2 kv) hd]", "[2, 128, 1,536]", 768 * 16 * 96, 2 * 256 * 768 * 1536),
    "attention queries": ("[B, n, h hd]", "[B, h, n, hd]", "[2, 8, 128, 96]", 0, 0),
    "attention keys": ("[B, n, kv hd]", "[B, kv, n, hd]", "[2, 4, 128, 96]", 0, 0),
    "attention scores": ("[B, h, n, hd]", "[B, h, n, n]", "[2, 8, 128, 128]", 0, 0),
    "attention softmax(scores) values": (
        "[B, h, n, hd]",
        "[B, h, n, hd]",
        "[2, 8, 128, 96]",
        0,
        2 * 2 * (2 * 8 * 128 * 128 * 96),
    ),
    "attention.o": ("[B, n, h hd]", "[B, n, d]", "[2, 128, 768]", 768 * 768, 2 * 256 * 768 * 768),
    "ffn.gate_up": ("[B, n, d]", "[B, n, 2 f]", "[2, 128, 4,864]", 2 * 768 * 2432, 2 * 256 * 768 * 4864),
    "ffn between": ("[B, n, 2 f]", "[B, n, f]", "[2, 128, 2,432]", 0, 0),
    "ffn.down": ("[B, n, f]", "[B, n, d]", "[2, 128, 768]", 768 * 2432, 2 * 256 * 768 * 2432),
    "with residuals": ("[B, n, d]", "[B, n, d]", "[2, 128, 768]", 0, 0),
    "head": ("[B, n, d]", "[B, n, V]", "[2, 128, 6,400]", 0, 2 * 256 * 768 * 6400),
}
"""By hand, from the sizes of MiniMind: 768 wide, 8 query and 4 KV heads of 96, SwiGLU 2,432, vocabulary 6,400."""


def rows(spec: DecoderSpec, **asked: Any) -> dict[str, dict[str, Any]]:
    made = document(spec, **({"batch": 2, "context": 128} | asked))
    return {row["step"]: dict(row) for row in made.tables[0].rows}


def test_the_path_through_minimind() -> None:
    found = rows(archlab.load("minimind"))
    for step, (inputs, output, sizes, parameters, count) in MINIMIND.items():
        row = found[step]
        assert (row["input"], row["output"], row["sizes"]) == (inputs, output, sizes)
        assert (row["parameters"], row["flops"]) == (parameters, count)


def test_learned_positions_are_a_step_and_rotary_ones_are_not() -> None:
    assert rows(archlab.load("gpt2"))["positions.0 added"]["parameters"] == 1024 * 768
    assert "positions.0 added" not in rows(archlab.load("minimind"))


@pytest.mark.parametrize(
    ("head", "output", "sizes"), [("classification", "[B, C]", "[2, 2]"), ("regression", "[B, 1]", "[2, 1]")]
)
def test_a_task_head_reads_the_last_token_alone(head: str, output: str, sizes: str) -> None:
    row = rows(archlab.load("minimind", f"model/head={head}"))["head"]
    assert (row["input"], row["output"], row["sizes"]) == ("[B, 1, d]", output, sizes)


def test_qwen3_8b_has_the_embedding_that_anatomy_says() -> None:
    assert rows(archlab.load("qwen3-8b"))["embedding"]["parameters"] == 151_936 * 4_096 == 622_329_856


@given(specs())
@settings(max_examples=25, deadline=None)
@example(T5)
def test_sums_are_those_of_the_closed_forms(spec: DecoderSpec) -> None:
    steps = trace(spec, 2, CONTEXT)
    assert sum(step.parameters for step in steps) == archlab.parameters(spec).total
    assert sum(step.flops for step in steps) == archlab.flops(spec, batch=2, prompt=CONTEXT, new=0).total


@pytest.mark.parametrize("preset", ["deepseek-v3", "gpt-oss-20b", "gemma-3-1b", "falcon-7b"])
def test_a_large_model_is_walked_on_the_meta_device(preset: str) -> None:
    spec = archlab.load(preset)
    steps = trace(spec, 1, 16, "bf16")
    assert sum(step.parameters for step in steps) == archlab.parameters(spec).total


@pytest.mark.parametrize("overrides", [(), ("model/norm=layernorm", "model/ffn=gelu"), ("model/dropout=classic",)])
def test_what_is_kept_is_what_torch_keeps_on_the_cpu(overrides: tuple[str, ...]) -> None:
    small = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=50", "model.attention.head_dim=8")
    spec = archlab.load("gqa", *small, *overrides, "model.attention.backend=math")
    decoder, found = build(spec), {}
    tables = [table for position in decoder.positions for table in getattr(position, "tables", ())]
    own = {tensor.untyped_storage().data_ptr() for tensor in (*decoder.parameters(), *tables)}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        decoder(torch.zeros(2, 16, dtype=torch.int64))
    wanted = sum(tensor.untyped_storage().nbytes() for pointer, tensor in found.items() if pointer not in own)
    assert sum(step.kept or 0 for step in trace(spec, 2, 16)) == wanted


def test_a_layer_that_there_is_not() -> None:
    with pytest.raises(RequestError, match="layers 0 to 7"):
        document(archlab.load("minimind"), 1, 8, layer=8)
    with pytest.raises(RequestError, match=r"1,?024"):
        document(archlab.load("gpt2"), 1, 1025)
