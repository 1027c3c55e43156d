"""The clock tried on the real module: more work takes longer in proportion, and what is slow shows where it is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from archlab.bench import run as bench
from archlab.bench.device import Cpu, Device, pick
from archlab.bench.phases import PHASES
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.workload import BenchOptions, Workload

WIDE: dict[str, Any] = {"d_model": 192, "context": 512, "dropout": {"choice": "none"}}
ROUNDS, TRIES = 60, 6


def times(device: Device, first: tuple[DecoderSpec, Workload], second: tuple[DecoderSpec, Workload]) -> list[float]:
    """The median of many prefills of each, in turns: what others do on the machine falls on both in proportion."""
    made = [(build(spec, dtype="fp32", device=device.name), workload) for spec, workload in (first, second)]
    with PHASES["prefill"](*made[0], 0) as one, PHASES["prefill"](*made[1], 0) as two:
        rounds = [[device.time(each.call) for each in (one, two)] for _ in range(ROUNDS)]
        return [statistics.median(taken) for taken in zip(*rounds[3:], strict=True)]


def doubled(device: Device, make: Callable[..., DecoderSpec], what: str) -> float:
    """How many times as long twice the work takes."""
    work = Workload(batch=1, prompt=128, new=1, dtype="fp32")
    once, twice = make(**WIDE, n_layers=4), make(**WIDE, n_layers=8)
    pairs = {
        "layers": ((once, work), (twice, work)),
        "batch": tuple((once, Workload(batch=batch, prompt=128, new=1, dtype="fp32")) for batch in (4, 8)),
        "tokens": ((once, work), (once, Workload(batch=1, prompt=256, new=1, dtype="fp32"))),
    }
    one, two = times(device, *pairs[what])
    return two / one


@pytest.mark.slow
@pytest.mark.parametrize("what", ["layers", "batch", "tokens"])
def test_g01_twice_the_work_takes_twice_as_long(what: str, make: Callable[..., DecoderSpec]) -> None:
    """As far as the work is in the products: one short sequence also waits for weights and calls, so four and eight."""
    found = []
    for _ in range(TRIES):  # a clock that does not see the work says 1 each time, however quiet the machine
        found.append(doubled(Cpu(), make, what))
        if found[-1] == pytest.approx(2, rel=0.15):
            return
    pytest.fail(f"{what}: {found}")


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["layers", "batch"])
def test_g01_twice_the_work_takes_twice_as_long_on_a_gpu(what: str, make: Callable[..., DecoderSpec]) -> None:
    large = {"d_model": 4096, "attention": {"choice": "gqa", "n_heads": 32, "n_kv_heads": 8}}
    assert doubled(pick("cuda"), lambda **changes: make(**changes | large), what) == pytest.approx(2, rel=0.15)


SLEEP = 0.2
IS_IN = {
    "prefill": lambda decoder, tokens: not decoder.training and tokens > 1,
    "decode": lambda decoder, tokens: tokens == 1,
    "train": lambda decoder, tokens: decoder.training,
}
SECONDS = {"prefill": "prefill_seconds", "decode": "decode_seconds_per_token", "train": "train_seconds_per_step"}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_sleep_in_a_layer_shows_in_its_phase_alone(
    phase: str, spec: DecoderSpec, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.build

    def drowsy(*args: Any, **kwargs: Any) -> Decoder:
        decoder = whole(*args, **kwargs)

        def nap(layer: torch.nn.Module, inputs: tuple[torch.Tensor, Any]) -> None:
            if IS_IN[phase](decoder, inputs[0].shape[1]):
                time.sleep(SLEEP)

        decoder.layers[1].register_forward_pre_hook(nap)
        return decoder

    monkeypatch.setattr(bench, "build", drowsy)
    options = BenchOptions(seconds=0.6, max_repeats=6, ceilings=False)
    figures, _ = bench.run(spec, workload, options, "cpu")
    took = {name: figures[seconds].low for name, seconds in SECONDS.items()}
    assert took[phase] >= SLEEP
    assert all(took[other] < SLEEP for other in PHASES if other != phase), took


@pytest.mark.slow
def test_g07_a_compiled_decode_step_is_compiled_once_and_before_the_clock(spec: DecoderSpec) -> None:
    workload = Workload(batch=1, prompt=12, new=8, dtype="fp32")
    options = BenchOptions(("prefill", "decode"), seconds=0.2, compile=True, ceilings=False)
    figures, environment = bench.run(spec, workload, options, "cpu")
    assert environment["compiled"] is True
    for phase in ("prefill", "decode"):
        assert figures[f"{phase}_tok_s"].status == "ok", figures[f"{phase}_tok_s"].reason
        assert figures[f"{phase}_compile_seconds"].value > 0.1
        assert (figures[f"{phase}_recompiles"].value, figures[f"{phase}_recompiles"].status) == (0, "ok")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_mixture_is_timed_compiled(dtype: str, make: Callable[..., DecoderSpec]) -> None:
    """Whole in bf16; in float32 around the experts, whose tokens no compiler knows the number of."""
    expert = {"choice": "swiglu", "d_ff": 16}
    spec = make(d_model=32, n_layers=1, ffn={"choice": "moe", "n_experts": 4, "expert": expert})
    options = BenchOptions(("prefill",), seconds=0.2, compile=True, ceilings=False)
    figures, _ = bench.run(spec, Workload(batch=1, prompt=12, new=4, dtype=dtype), options, "cpu")
    assert figures["prefill_tok_s"].status == "ok", figures["prefill_tok_s"].reason
    assert figures["prefill_recompiles"].value == 0
