"""Estimated memory: its parts by hand, and against what torch really keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from archlab.bench.phases import PHASES
from archlab.cost.kv import kv_cache
from archlab.cost.memory import Memory, inference_memory, training_memory
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.workload import Workload

SIZES = {"d_model": 64, "n_layers": 3, "vocab_size": 211, "context": 128}
HEADS = {"n_heads": 4, "n_kv_heads": 2}
MIXTURE = {"choice": "moe", "expert": {"choice": "swiglu", "d_ff": 48}}
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "gqa": {"dropout": {"choice": "none"}},
    "gpt2-like": {"norm": {"choice": "layernorm"}, "ffn": {"choice": "gelu"}, "position": {"choice": "learned"}},
    "explicit softmax": {"attention": {"choice": "gqa", **HEADS, "backend": "math"}, "dropout": {"choice": "none"}},
    "query/key norm": {"attention": {"choice": "gqa", **HEADS, "qk_norm": "head"}, "dropout": {"choice": "none"}},
    "shared keys and values": {"layers": [{}, {"attention": {"shares_kv": True}}], "dropout": {"choice": "none"}},
    "parallel": {"block": {"choice": "parallel"}, "dropout": {"choice": "none"}},
    "sandwich": {"block": {"choice": "sandwich"}, "dropout": {"choice": "none"}},
    "dropout": {"dropout": {"choice": "all"}},
    "classes": {"head": {"choice": "classification"}},
    "mixture": {"ffn": MIXTURE, "dropout": {"choice": "none"}},
    "mixture of many": {"ffn": MIXTURE | {"n_experts": 64, "experts_per_token": 8}, "dropout": {"choice": "none"}},
    "mixture and shared": {"ffn": MIXTURE | {"n_shared": 2, "shared_gate": True}, "dropout": {"choice": "all"}},
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_training_keeps_no_more_than_estimated(name: str, dtype: str, make: Any) -> None:
    spec, workload = make(**SIZES, **COMPOSITIONS[name]), Workload(batch=2, prompt=48, dtype=dtype)
    memory = training_memory(spec, workload)
    estimated = memory.activations + memory.logits
    kept = bytes_kept(build(spec, dtype=dtype), workload)
    assert kept <= estimated <= 2.2 * kept


def bytes_kept(decoder: Decoder, workload: Workload) -> int:
    """Bytes of the distinct tensors that autograd keeps between a step's forward and backward, weights apart."""
    own = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    own |= {t.untyped_storage().data_ptr() for position in decoder.positions for t in getattr(position, "tables", ())}
    held: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        held.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with PHASES["train"](decoder, workload, 0) as step, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step.call()
    return sum(tensor.untyped_storage().nbytes() for address, tensor in held.items() if address not in own)


def test_the_parts_by_hand(spec: DecoderSpec) -> None:
    workload = Workload(batch=2, prompt=10, new=3, dtype="bf16", kv_dtype="fp32")
    weights = 2 * parameters(spec).total
    inference, training = inference_memory(spec, workload), training_memory(spec, workload)
    assert inference.parts.keys() == {"weights", "cache", "activations", "logits"}
    assert (inference.weights, inference.cache) == (weights, kv_cache(spec, 2, 13, "fp32").bytes)
    assert inference.logits == 2 * 61 * (2 + 4)
    assert (training.weights, training.optimizer) == (weights, 2 * weights)
    assert training.gradients == weights + 2 * 61 * 32  # tied: one gradient from the head, one from the lookup
    assert training.logits == 2 * 10 * 61 * (2 + 3 * 4)
    assert training.cache == 0
    assert training.total == sum(training.parts.values())


def test_h12_logits_of_a_large_vocabulary(make: Any) -> None:
    """2 x 512 x 32,000 in float32 are 125 MiB; a loss makes three of them beside the logits themselves."""
    memory = training_memory(make(vocab_size=32_000, context=512), Workload(batch=2, prompt=512, dtype="bf16"))
    assert memory.logits == (3 * 125 + 62.5) * 2**20


@pytest.mark.parametrize("change", ["batch", "prompt"])
def test_more_work_needs_more(change: str, spec: DecoderSpec) -> None:
    small, large = Workload(batch=2, prompt=8), Workload(**{"batch": 2, "prompt": 8, change: 16})
    for needs in (inference_memory, training_memory):
        less, more = needs(spec, small), needs(spec, large)
        assert more.weights == less.weights
        assert more.activations > less.activations


def test_absent_parts_are_left_out() -> None:
    assert Memory(1, 0, 0, 2, 3, 4).parts == {"weights": 1, "cache": 2, "activations": 3, "logits": 4}
