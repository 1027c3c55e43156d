"""What a training pass keeps, against what torch's own saved-tensor hooks count on the CPU, to the byte."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs
from torch import Tensor

from archlab.bench.phases import loss_of
from archlab.components.tape import RECOMPUTE
from archlab.cost.activations import Training, kept
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec

MODEL: dict[str, Any] = {
    "d_model": 48,
    "n_layers": 3,
    "vocab_size": 211,
    "context": 64,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 6, "n_kv_heads": 2},
    "ffn": {"choice": "swiglu"},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
GPT2 = {
    "norm": {"choice": "layernorm"},
    "position": {"choice": "learned"},
    "attention": {"choice": "mha", "n_heads": 6, "q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True},
    "ffn": {"choice": "gelu_tanh", "bias": True},
    "dropout": {"choice": "classic"},
}
WINDOWS = [{"attention": {"window": 16}, "repeat": 2}, {}]
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "gpt2-like": GPT2,
    "gpt2-like without dropout": GPT2 | {"dropout": {"choice": "none"}},
    "llama-like": {},
    "windows in turn": {"layers": WINDOWS},
    "sandwich with capped scores": {
        "block": {"choice": "sandwich"},
        "attention": {"choice": "gqa", "n_heads": 6, "n_kv_heads": 2, "logit_cap": 50.0},
        "head": {"choice": "tied", "logit_cap": 30.0},
        "ffn": {"choice": "geglu_tanh"},
        "layers": WINDOWS,
    },
    "parallel": {"block": {"choice": "parallel"}, "attention": {"choice": "mqa", "n_heads": 6}, "norm": GPT2["norm"]},
    "mixture": {"ffn": {"choice": "moe", "n_experts": 8, "n_shared": 1, "expert": {"choice": "swiglu", "d_ff": 32}}},
    "mla": {"attention": {"choice": "mla", "n_heads": 6, "q_rank": 24, "kv_rank": 16, "nope_dim": 8, "rope_dim": 4}},
    "alibi": {"position": {"choice": "alibi"}, "attention": {"choice": "mha", "n_heads": 6}},
    "sinks": {"attention": {"choice": "gqa", "n_heads": 6, "sinks": True}, "ffn": {"choice": "swiglu_clamped"}},
    "classes": {"head": {"choice": "classification"}},
}


class Kept:
    """A tensor that autograd keeps, as long as it does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def counted(decoder: Decoder, batch: int, length: int) -> int:
    """Bytes of the distinct storages that autograd keeps after a training pass, parameters and fixed tables apart."""
    ids = torch.randint(decoder.spec.vocab_size, (batch, length + 1), generator=torch.Generator().manual_seed(0))
    ids = ids.to(decoder.embedding.weight.device)
    found: list[weakref.ref[Kept]] = []

    def pack(tensor: Tensor) -> Kept:
        found.append(weakref.ref(saved := Kept(tensor)))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        loss = loss_of(decoder.train()(ids[:, :-1]), ids[:, 1:], decoder)
    tables = [table for position in decoder.positions for table in getattr(position, "tables", ())]
    own = {tensor.untyped_storage().data_ptr() for tensor in (*decoder.parameters(), *decoder.buffers(), *tables)}
    storages = [saved.tensor.untyped_storage() for ref in found if (saved := ref()) is not None]
    assert loss.requires_grad  # the graph is still there
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr() not in own}.values())


def on_paper(spec: DecoderSpec, training: Training) -> int:
    """As counted: masks that layers are run again with are held by no saved tensor."""
    return sum(size for purpose, size in kept(spec, training).items() if purpose != "held")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", ["sdpa", "math"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_what_is_kept_is_what_torch_keeps(name: str, backend: str, dtype: str) -> None:
    model = MODEL | COMPOSITIONS[name]
    spec = resolve(model | {"attention": {**model["attention"], "backend": backend}}).spec
    decoder = build(spec, dtype=dtype)
    for decoder.recompute in RECOMPUTE:
        assert on_paper(spec, Training(2, 40, dtype, recompute=decoder.recompute)) == counted(decoder, 2, 40)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpt2-like", "llama-like", "parallel", "mixture"])
def test_what_is_kept_on_cuda_is_what_torch_keeps_there(name: str) -> None:
    spec = resolve(MODEL | COMPOSITIONS[name]).spec
    found = counted(build(spec, "cuda", "bf16"), 2, 40)
    assert on_paper(spec, Training(2, 40, "bf16", "cuda")) == pytest.approx(found, rel=0.05)


@given(
    spec=specs(),
    batch=st.integers(2, 4),  # of one sequence the targets would be a view of the ids
    length=st.integers(2, CONTEXT),
    dtype=st.sampled_from(["fp32", "bf16", "fp16", "fp64"]),
    recompute=st.sampled_from(RECOMPUTE),
)
@settings(max_examples=80)
def test_every_composition_keeps_what_torch_keeps(
    spec: DecoderSpec, batch: int, length: int, dtype: str, recompute: str
) -> None:
    decoder = build(spec, dtype=dtype)
    decoder.recompute = recompute
    assert on_paper(spec, Training(batch, length, dtype, recompute=recompute)) == counted(decoder, batch, length)
