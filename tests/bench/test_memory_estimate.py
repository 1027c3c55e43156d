"""Estimated memory against what torch really allocates, by its profiler."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile

from archlab.bench.clock import Call
from archlab.bench.device import Cpu
from archlab.bench.phases import PHASES
from archlab.bench.run import memory_of
from archlab.components.product import Product
from archlab.cost.params import parameters
from archlab.decoder import tune
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.units import dtype_bytes
from archlab.workload import Workload

SIZES = {"d_model": 96, "n_layers": 2, "vocab_size": 1000, "context": 128}
HEADS = {"n_heads": 6, "n_kv_heads": 2}
NONE = {"choice": "none"}
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "gqa": {"dropout": NONE},
    "gpt2-like": {"norm": {"choice": "layernorm"}, "ffn": {"choice": "gelu"}, "position": {"choice": "learned"}},
    "explicit softmax": {"attention": {"choice": "gqa", **HEADS, "backend": "math"}, "dropout": NONE},
    "mixture": {"ffn": {"choice": "moe", "expert": {"choice": "swiglu", "d_ff": 64}}, "dropout": NONE},
    "shared keys and values": {"layers": [{}, {"attention": {"shares_kv": True}}], "dropout": NONE},
}


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_training_takes_what_is_estimated_or_a_little_less(name: str, recompute: str, make: Any) -> None:
    spec = make(**SIZES, **COMPOSITIONS[name])
    workload = Workload(batch=2, prompt=96, dtype="bf16", recompute=recompute)
    ratio = memory_of("train", spec, workload, Cpu()) / taken("train", spec, workload)
    assert 1 <= ratio < 1.45


@pytest.mark.parametrize(("name", "dtype"), [*((name, "fp32") for name in COMPOSITIONS), ("gqa", "bf16")])
def test_prefill_takes_what_is_estimated_or_a_little_less(
    name: str, dtype: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickest = {"packed": 0.5}  # the most memory: a tied head then has a copy
    monkeypatch.setattr(tune, "_time", lambda weights, rows, known: {way: quickest.get(way, 1.0) for way in known})
    spec, workload = make(**SIZES, **COMPOSITIONS[name]), Workload(batch=2, prompt=96, dtype=dtype)
    ratio = memory_of("prefill", spec, workload, Cpu()) / taken("prefill", spec, workload)
    assert 1 <= ratio < 1.3


def taken(phase: str, spec: DecoderSpec, workload: Workload) -> int:
    """Bytes at the peak of one run, with what was there before: weights, tables, a cache or the optimizer's state."""
    decoder = build(spec, dtype=workload.weight_dtype)
    weights = parameters(spec).total * dtype_bytes(workload.weight_dtype)
    before = weights + sum(table.nbytes for position in decoder.positions for table in tables(position))
    with PHASES[phase](decoder, workload, 0) as run:
        run.call()
        for parameter in decoder.parameters():  # the profiler does not always see memory go that was there before it
            parameter.grad = None
        copies = [module.copied.packed for module in decoder.modules() if isinstance(module, Product) and module.copied]
        before += sum(copy.numel() * copy.element_size() for copy in copies)
        return before + (run.cache_bytes or 2 * weights) + highest(run.call)  # of a step, the two moments


def tables(position: Any) -> tuple[Any, ...]:
    return getattr(position, "tables", ())


def highest(call: Call) -> int:
    """The most that a call has allocated at once."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def test_the_decoder_is_left_as_it_was(spec: DecoderSpec) -> None:
    decoder: Decoder = build(spec)
    with PHASES["train"](decoder, Workload(batch=1, prompt=8, recompute="full"), 0) as step:
        assert decoder.recompute == "full"
        step.call()
    assert decoder.recompute == "none"
