"""The most memory that a call holds at once, beyond what was there before it."""

from __future__ import annotations

import gc
import os

import torch
from torch.autograd.profiler import profile

from archlab.bench.clock import Call
from archlab.bench.device import Device


def peak(call: Call, device: Device) -> int | None:
    """Bytes at the peak of one run, as the device's allocator counts them; None where it does not count."""
    gc.collect()
    if device.kind == "cpu":
        return _of_profile(call)
    if device.kind != "cuda":
        return None
    before = torch.cuda.memory_allocated(device.name)
    device.reset_peaks()
    call()
    return device.peaks()["peak_bytes"][0] - before


def _of_profile(call: Call) -> int:
    """The highest sum of what torch's CPU allocator gave and took back, event by event."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler tells of its start and stop
    with profile(use_kineto=True, profile_memory=True) as profiled:
        call()
    events = [event for event in profiled.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
