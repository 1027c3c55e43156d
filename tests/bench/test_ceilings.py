"""Ceilings on a device whose rates are known, and how near a phase comes to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from archlab.bench.ceilings import LEAST_MOVED, MOST_MOVED, Ceilings
from archlab.bench.clock import Call, measure
from archlab.bench.device import Cpu
from archlab.bench.fractions import fractions, work_of, working_set
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.cost.roofline import Setting, Work
from archlab.decoder.spec import DecoderSpec
from archlab.hardware import Hardware, hardware
from archlab.record import Figure
from archlab.workload import BenchOptions, Workload

MIB = 2**20


class Known(Cpu):
    """A device whose calls take as long as their `work`, give or take 1 %."""

    work = 0.0

    def __init__(self, machine: Any) -> None:
        super().__init__()
        self.machine = machine
        self.asked: list[float] = []

    def time(self, call: Call) -> float:
        self.asked.append(self.work)
        return self.machine.timer(self.machine.job(self.work))


@pytest.fixture
def known(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Known:
    """It reads 20 GB/s by the better of two ways, copies 16 GB/s, read and written, and multiplies at 300 GFLOP/s."""
    device = Known(machine(rate=1.0, jitter=0.01))
    rates = {
        "B/s": {"torch.sum": 20e9, "matrix-vector": 15e9, "read and written": 16e9},
        "FLOP/s": {"oneDNN": 300e9, "torch.mm": 250e9},
    }
    best = Ceilings._best

    def timed(self: Ceilings, call: Call, amount: int, unit: str, what: str, share: float = 1.0) -> Figure:
        rate = next(rate for words, rate in rates[unit].items() if words in what)
        device.work = amount / rate
        return best(self, call, amount, unit, what, share)

    monkeypatch.setattr(Ceilings, "_best", timed)
    return device


def test_a_known_device_is_measured_within_2_percent(known: Known) -> None:
    ceilings = Ceilings(known, 0.6)
    assert ceilings.read(40 * MIB).value == pytest.approx(20e9, rel=0.02)
    assert ceilings.copy(40 * MIB).value == pytest.approx(16e9, rel=0.02)
    assert ceilings.matmul("fp32").value == pytest.approx(300e9, rel=0.02)


class Moved(TorchDispatchMode):
    """Counts the bytes of what is summed, copied and written to, or multiplied."""

    MOVES = (torch.ops.aten.sum.default, torch.ops.aten.copy_.default, torch.ops.aten.bmm.default)

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.MOVES:
            self.bytes += sum(each.nbytes for each in args if isinstance(each, torch.Tensor))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("what", ["read", "copy"])
@pytest.mark.parametrize("size", [MIB, 40 * MIB])
def test_as_many_bytes_are_moved_as_are_counted(what: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def counted(self: Ceilings, call: Call, amount: int, unit: str, how: str, share: float = 1.0) -> Figure:
        with Moved() as moved:
            call()
        shares.append(moved.bytes / amount)
        return Figure(1.0, unit, "measured", how)

    monkeypatch.setattr(Ceilings, "_best", counted)
    getattr(Ceilings(Cpu(), 0.01), what)(size)
    assert shares
    assert all(1 <= share < 1.02 for share in shares)  # a matrix-vector product also reads its vector


def test_a_product_has_the_flops_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, tuple[int, int]] = {}

    def counted(self: Ceilings, call: Call, amount: int, unit: str, how: str, share: float = 1.0) -> Figure:
        with FlopCounterMode(display=False) as counter:
            call()
        made[how.partition(",")[0]] = counter.get_total_flops(), amount
        return Figure(1.0, unit, "measured", how)

    monkeypatch.setattr(Ceilings, "_best", counted)
    Ceilings(Cpu(), 0.01).matmul("fp32")
    assert made["torch.mm"][0] == made["torch.mm"][1] == 2 * 1024**3  # torch's counter knows no oneDNN
    assert {amount for _, amount in made.values()} == {2 * 1024**3}


def test_working_sets_are_stated_shared_and_limited(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings = Ceilings(known, 0.01)
    first = ceilings.read(40 * MIB)
    assert "torch.sum, over 40.00 MiB" in first.how
    assert ceilings.read(42 * MIB) is first
    assert ceilings.read(60 * MIB) is not first
    monkeypatch.setattr(known, "available", lambda: 80 * MIB)
    assert "over 20.00 MiB" in ceilings.read(MOST_MOVED).how


def test_a_small_working_set_is_gone_through_until_the_call_is_long(known: Known) -> None:
    Ceilings(known, 0.01).read(MIB)
    assert min(known.asked) == pytest.approx(LEAST_MOVED / 20e9)


def test_ceilings_of_this_machine_are_rates_that_a_machine_can_have() -> None:
    ceilings = Ceilings(Cpu(), 0.1)
    for figure in (ceilings.read(8 * MIB), ceilings.copy(8 * MIB)):
        assert 1e8 < figure.value < 1e13
        assert figure.value == figure.high >= figure.low
    assert 1e8 < ceilings.matmul("fp32").value < 1e14


def seconds(value: float, spread: float = 0.0) -> Any:
    draws = iter([value, value, value, *[value * (1 + spread * (-1) ** n) for n in range(100)]])
    return measure(lambda: None, BenchOptions(seconds=9.0), lambda call: next(draws), lambda share: None)


FAST = Figure(1e15, "FLOP/s", "measured", "best of 3 runs")
READ = Figure(3e12, "B/s", "measured", "best of 3 runs")


def work(flops: float, moved: float = 1e6) -> Work:
    return Work("train", 1000, int(flops), {"weights": moved}, 0, Setting("bf16", "bf16", "bf16"))


def test_g04_104_percent_of_another_devices_peak_is_invalid_and_the_time_stays() -> None:
    """Forward and backward at 324.5 TFLOP/s: 104 % of an A100's 312, 32.8 % of the H100 that it ran on."""
    ran = work(1.04 * 312e12)
    wrong = fractions(ran, seconds(1.0), FAST, READ, hardware("a100-sxm-80gb"))
    assert wrong["train_mfu_datasheet"].value is None
    assert wrong["train_mfu_datasheet"].status == "invalid"
    assert wrong["train_mfu_datasheet"].reason.startswith("104.0 % of 312")
    right = fractions(ran, seconds(1.0), FAST, READ, hardware("h100-sxm"))
    assert right["train_mfu_datasheet"].value == pytest.approx(32.8, abs=0.05)
    assert right["train_mfu"].value == wrong["train_mfu"].value == pytest.approx(32.448)


def test_g04_an_unknown_device_gets_no_datasheets_fraction() -> None:
    found = fractions(work(1e12), seconds(1.0), FAST, READ, Hardware("AMD EPYC"))
    assert set(found) == {"train_bound_tok_s", "train_mfu", "train_mbu"}


@pytest.mark.parametrize(("spread", "status"), [(0.05, "ok"), (0.01, "invalid")])
def test_g04_a_fraction_above_100_within_the_spread_stands(spread: float, status: str) -> None:
    found = fractions(work(1.03e15), seconds(1.0, spread), FAST, READ, None)["train_mfu"]
    assert found.status == status
    assert (found.value is None) == (status == "invalid")


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm", "h100-pcie", "h100-nvl", "h200", "rtx-4090"])
def test_g11_peaks_are_dense(name: str) -> None:
    dense = {"a100-sxm-80gb": 312, "h100-sxm": 989, "h100-pcie": 756, "h100-nvl": 835, "h200": 989, "rtx-4090": 165}
    peak = hardware(name).peak("bf16")
    found = fractions(work(1e12), seconds(1.0), FAST, READ, hardware(name))["train_mfu_datasheet"]
    assert peak == pytest.approx(dense[name] * 1e12, rel=0.005)
    assert found.value == pytest.approx(100 * 1e12 / peak)


def test_the_bound_is_of_the_ceiling_that_binds() -> None:
    found = fractions(work(1e15, 6e12), seconds(10.0), FAST, READ, None)
    assert found["train_bound_tok_s"].value == pytest.approx(1000 / 2)  # 6e12 B at 3e12 B/s
    assert found["train_bound_tok_s"].fact("binds") == "memory"
    assert found["train_bound_tok_s"].how.endswith("; binds: memory")
    assert (found["train_mfu"].value, found["train_mbu"].value) == (pytest.approx(10), pytest.approx(20))


def test_formulas_stand_beside_the_fractions() -> None:
    found = fractions(work(1e15), seconds(10.0), FAST, READ, None)
    assert "causal FLOPs, 3 x forward" in found["train_mfu"].how
    assert "/ time /" in found["train_mfu"].how
    assert found["train_mbu"].how == "1,000,000 B (weights) / time / 3.00 TB/s (measured, best of 3 runs)"


def test_a_phases_work_is_what_its_timed_call_does(spec: DecoderSpec) -> None:
    workload = Workload(batch=2, prompt=12, new=5, dtype="fp32", kv_dtype="bf16")
    held = 4 * parameters(spec).total
    decode = work_of("decode", spec, workload)
    assert decode.tokens == 2 * 5
    steps = [12, 13, 14, 15, 16]
    seen = sum(kv_cache(spec, 2, tokens, "bf16").required for tokens in steps)
    assert decode.bytes["cache read"] == seen
    assert decode.bytes["weights"] + decode.bytes["embedding rows"] == pytest.approx(5 * held, rel=0.05)
    assert working_set(decode, 5) == int(decode.moved / 5)
    train = work_of("train", spec, workload)
    assert working_set(train, 1) == 4 * held
    prefill = work_of("prefill", spec, workload)
    assert 3 * prefill.flops <= train.flops
    assert prefill.tokens == train.tokens == 24
