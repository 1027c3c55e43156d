"""Devices: which one a name means, its peak memory, its warnings."""

from __future__ import annotations

import sys

import pytest
import torch

from archlab import host
from archlab.bench import device as devices
from archlab.bench.device import Cpu, environment, pick
from archlab.errors import RequestError
from archlab.hardware import Hardware

MIB = 2**20


def test_the_cpu_is_always_there() -> None:
    assert pick("cpu").name == "cpu"


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick("auto").name == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [pick(name).name for name in ("auto", "cuda", "cuda:0")] == ["cuda:1", "cuda:1", "cuda:0"]


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "cpu:7", "", "tpu"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RequestError) as refused:
        pick(name)
    assert str(refused.value) == f"device: {name!r} is not available here; valid: auto, cpu"


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset on Linux")
def test_g09_the_peak_is_reset_before_each_phase() -> None:
    if not host.reset_peak():
        pytest.skip("the peak cannot be reset here")
    device = Cpu()
    peaks = []
    for size in (256 * MIB, 8 * MIB):  # a big one first: its peak must not be the small one's
        device.release()
        device.reset_peaks()
        before = host.resident_memory()
        filled = torch.ones(size, dtype=torch.uint8)
        del filled
        count, how = device.peaks()["peak_bytes"]
        peaks.append(count - before)
        assert "VmHWM" in how
        assert "reset before the phase" in how
    assert peaks[0] == pytest.approx(256 * MIB, rel=0.1)
    assert peaks[1] < 64 * MIB


def test_a_peak_that_cannot_be_reset_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "reset_peak", lambda: False)
    device = Cpu()
    device.reset_peaks()
    assert "cannot be reset here" in device.peaks()["peak_bytes"][1]


@pytest.mark.parametrize(("elsewhere", "warned"), [(0.0, False), (1.7, True)])
def test_a_loaded_machine_is_warned_of(elsewhere: float, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.Busy, "elsewhere", lambda self: elsewhere)
    busy = host.Busy()
    busy.cpus = 2
    found = environment(Cpu(), "fp32", busy)
    how = "other processes used 1.7 of its 2 CPUs"
    assert found["warning"] == (f"the machine was loaded: {how}" if warned else None)
    assert found["warnings"] == ({"the machine was loaded": (how, 1.7)} if warned else None)


def test_an_emulated_dtype_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.Busy, "elsewhere", lambda self: 0.0)
    monkeypatch.setattr(Cpu, "supports", lambda self, dtype: dtype == "fp32")
    assert "no bf16 arithmetic" in environment(Cpu(), "bf16", host.Busy())["warning"]
    assert environment(Cpu(), "fp32", host.Busy())["warning"] is None


def test_a_device_that_others_use_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.Busy, "elsewhere", lambda self: 0.0)
    monkeypatch.setattr(Cpu, "strangers", lambda self: 2)
    found = environment(Cpu(), "fp32", host.Busy())
    assert found["processes_on_device"] == 2
    assert found["warning"] == "cpu was shared: 2 other processes have memory there"


def test_the_datasheet_is_that_of_the_device_that_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"device_name": "NVIDIA H100 80GB HBM3", "device_memory_bytes": 81_559 * MIB}
    monkeypatch.setattr(Cpu, "describe", lambda self: about)
    assert Cpu().datasheet().peak("bf16") == pytest.approx(989.4e12, rel=0.001)
    monkeypatch.setattr(Cpu, "describe", lambda self: {"device_name": "a processor that nobody knows"})
    assert Cpu().datasheet() == Hardware("a processor that nobody knows")


def test_metal_is_waited_for_on_both_sides_and_is_taken_where_there_is_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: told.append("wait"))
    device = pick("auto")
    assert (device.name, device.kind) == ("mps", "mps")
    assert device.time(lambda: told.append("work")) >= 0
    assert told == ["wait", "work", "wait"]
    assert not device.supports("fp64")


@pytest.mark.gpu
def test_g01_cuda_waits_for_the_work_it_started() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = pick("cuda")
    x = torch.randn(4096, 4096, device=device.name)
    device.time(lambda: x @ x)
    one, four = (min(device.time(lambda n=n: [x @ x for _ in range(n)]) for _ in range(5)) for n in (4, 16))
    assert four / one == pytest.approx(4, rel=0.15)
    device.release()
    device.reset_peaks()
    assert device.peaks()["peak_bytes"][0] >= x.nbytes
    assert device.peaks().keys() == {"peak_bytes", "peak_reserved_bytes"}
    assert device.available() > 0
    assert devices.environment(device, "fp32", host.Busy())["driver"]
