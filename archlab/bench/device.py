"""One interface to every device: a timer, memory that is free, peak memory, what the machine is.

A new kind of device is a subclass of `Device` and a line in `pick`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import torch

from archlab import host
from archlab.bench.clock import Call, stopwatch
from archlab.errors import ConfigError
from archlab.hardware import Hardware, matching
from archlab.units import show_bytes

Peaks = dict[str, tuple[int, str]]
"""Peak bytes and how they were read, by the figure's ending: `peak_bytes`, `peak_reserved_bytes`."""


class Device(ABC):
    """Where a model is built and timed."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def kind(self) -> str:
        """`cpu`, `cuda`, `mps`: the name without its number."""
        return self.name.partition(":")[0]

    @abstractmethod
    def time(self, call: Call) -> float:
        """Seconds that `call` takes, to the end of the work that it starts on the device."""

    @abstractmethod
    def available(self) -> int:
        """Bytes that can still be allocated."""

    @abstractmethod
    def reset_peaks(self) -> None:
        """Forget the peaks so far."""

    @abstractmethod
    def peaks(self) -> Peaks:
        """The highest memory since `reset_peaks`."""

    @abstractmethod
    def supports(self, dtype: str) -> bool:
        """Whether it computes in `dtype` (`bf16`, `fp32`, ..), rather than emulating it."""

    @property
    def native_dtype(self) -> str:
        """What to compute in where nobody says: bf16, or fp32 where bf16 is emulated."""
        return "bf16" if self.supports("bf16") else "fp32"

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The hardware."""

    def state(self) -> dict[str, Any]:
        """What its driver says of it now, which takes a process to ask."""
        return {}

    def datasheet(self) -> Hardware:
        """The device on paper; of one that is not known, its name and nothing more."""
        about = self.describe()
        name = about["device_name"]
        return matching(name, about.get("device_memory_bytes")) or Hardware(name)

    def strangers(self) -> int:
        """Other processes that have memory on the device."""
        return 0

    def release(self) -> None:
        """Give back what is no longer used, so that one phase's memory is not another's."""
        gc.collect()


class Cpu(Device):
    """The processor and the memory of this machine."""

    def __init__(self, name: str = "cpu") -> None:
        super().__init__(name)
        self._stopwatch = stopwatch(time.perf_counter)
        self._reset = False
        self._before = 0

    def time(self, call: Call) -> float:
        return self._stopwatch(call)

    def available(self) -> int:
        return host.available_memory()

    def reset_peaks(self) -> None:
        self._reset = host.reset_peak()
        self._before = host.resident_memory()

    def peaks(self) -> Peaks:
        bytes_, source = host.peak_memory()
        since = "reset before the phase" if self._reset else "since the process started: it cannot be reset here"
        before = f"{show_bytes(self._before)} before it, torch and the weights among them"
        return {"peak_bytes": (bytes_, f"high-water resident memory of the process ({source}), {since}; {before}")}

    def supports(self, dtype: str) -> bool:
        if dtype not in ("bf16", "fp16"):
            return True
        probe = getattr(torch.ops.mkldnn, f"_is_mkldnn_{dtype}_supported", None)  # oneDNN has the fast products
        return bool(probe and probe())

    def describe(self) -> dict[str, Any]:
        return {"device": self.name, "device_name": host.cpu_name()}

    def release(self) -> None:
        super().release()
        with suppress(OSError, AttributeError):  # only glibc has it; elsewhere the peak may be a little high
            ctypes.CDLL(None).malloc_trim(0)


class Cuda(Device):
    """One CUDA device. Timed with events on its own stream, and one wait at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.device = torch.device(name)

    def time(self, call: Call) -> float:
        with torch.cuda.device(self.device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def available(self) -> int:
        return int(torch.cuda.mem_get_info(self.device)[0])

    def reset_peaks(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peaks(self) -> Peaks:
        since = "reset before the phase"
        return {
            "peak_bytes": (torch.cuda.max_memory_allocated(self.device), f"highest allocated by torch, {since}"),
            "peak_reserved_bytes": (torch.cuda.max_memory_reserved(self.device), f"highest reserved by torch, {since}"),
        }

    def supports(self, dtype: str) -> bool:
        return dtype != "bf16" or torch.cuda.get_device_capability(self.device) >= (8, 0)

    def describe(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "device": self.name,
            "device_name": properties.name,
            "device_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }

    def state(self) -> dict[str, Any]:
        return {"driver": host.nvidia_driver(), **host.gpu_state(self._uuid())}

    def _uuid(self) -> str:
        """What the driver knows the device by: its number in this process may be another."""
        return f"GPU-{getattr(torch.cuda.get_device_properties(self.device), 'uuid', '')}"

    def strangers(self) -> int:
        return max(
            0, host.gpu_processes(self._uuid()) - 1
        )  # this one is there too, by a number of its own in a container

    def release(self) -> None:
        super().release()
        torch.cuda.empty_cache()


class Mps(Device):
    """The GPU of an Apple processor, which shares the machine's memory. It is waited for before and after."""

    def __init__(self, name: str = "mps") -> None:
        super().__init__(name)
        self._stopwatch = stopwatch(time.perf_counter)

    def time(self, call: Call) -> float:
        def waited() -> None:
            call()
            torch.mps.synchronize()

        torch.mps.synchronize()
        return self._stopwatch(waited)

    def available(self) -> int:
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())

    def reset_peaks(self) -> None:
        torch.mps.empty_cache()

    def peaks(self) -> Peaks:
        """It keeps no high-water mark; what the driver has given is not taken back before `reset_peaks`."""
        how = "memory that the driver had given by the end of the phase, emptied of what was unused before it"
        return {"peak_bytes": (torch.mps.driver_allocated_memory(), how)}

    def supports(self, dtype: str) -> bool:
        return dtype != "fp64"

    def describe(self) -> dict[str, Any]:
        return {"device": self.name, "device_name": host.cpu_name()}

    def release(self) -> None:
        super().release()
        torch.mps.empty_cache()


def pick(name: str = "auto") -> Device:
    """The device of that name: `cpu`, `mps`, `cuda`, `cuda:0`; `auto` is a GPU where there is one, else the CPU.

    Raises ConfigError where it is not there.
    """
    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    metal = ["mps"] if torch.backends.mps.is_available() else []
    if name == "auto":
        name = "cuda" if found else "mps" if metal else "cpu"
    if name == "cpu":
        return Cpu()
    if name in metal:
        return Mps()
    if name == "cuda" and found:
        return Cuda(f"cuda:{torch.cuda.current_device()}")
    if name in found:
        return Cuda(name)
    raise ConfigError("device", f"{name!r} is not available here", value=name, valid=["auto", "cpu", *metal, *found])


def machine(device: Device, dtype: str) -> dict[str, Any]:
    """The machine that figures hold for, which stays as it is while they are timed. dtype: what they are timed in."""
    return {
        **device.describe(),
        "timed_dtype": dtype,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "cpu": host.cpu_name(),
        "threads": torch.get_num_threads(),
    }


def environment(device: Device, dtype: str, busy: host.Busy) -> dict[str, Any]:
    """The machine, and its state by the end. busy: started before the figures.

    `warning`: why not to trust them, in a line; `warnings`: the same by reason, each with how and how much of it.
    """
    elsewhere, strangers = busy.elsewhere(), device.strangers()
    warned = _warnings(device, dtype, elsewhere, busy.cpus, strangers)
    load = [round(average, 2) for average in os.getloadavg()] if hasattr(os, "getloadavg") else None
    return {
        **machine(device, dtype),
        **device.state(),
        "cpus": busy.cpus,
        "cpu_mhz": host.cpu_mhz(),
        "load_average": load,
        "cpus_used_elsewhere": round(elsewhere, 2),
        "processes_on_device": strangers,
        "warning": "; ".join(f"{reason}: {how}" for reason, (how, _) in warned.items()) or None,
        "warnings": warned or None,
    }


def _warnings(device: Device, dtype: str, elsewhere: float, cpus: int, strangers: int) -> dict[str, tuple[str, float]]:
    """What speaks against the figures: by reason, how, and how much of it; 0 where it is all or nothing."""
    found = {}
    if elsewhere > host.LOADED * cpus:
        found["the machine was loaded"] = f"other processes used {elsewhere:.1f} of its {cpus} CPUs", elsewhere
    if strangers:
        found[f"{device.name} was shared"] = f"{strangers} other processes have memory there", strangers
    if not device.supports(dtype):
        found[f"{device.name} has no {dtype} arithmetic"] = "torch emulates it, many times slower than fp32", 0
    return found
