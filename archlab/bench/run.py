"""Time a composition on a device: build it, run each phase under the clock, and put the results as figures.

Nothing that goes wrong with one phase loses another: out of memory is a status of that phase's figures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from archlab.bench.clock import Sample, measure
from archlab.bench.device import Device, environment, pick
from archlab.bench.figures import TIMES, Figures, Trouble, missing
from archlab.bench.phases import PHASES, Run
from archlab.cost.activations import Training
from archlab.cost.memory import Inference, inference_memory, training_memory
from archlab.cost.optimizers import RECIPES
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import Unsaid
from archlab.host import Busy
from archlab.model import build
from archlab.record import Figure
from archlab.units import show_bytes
from archlab.workload import BenchOptions, Workload

Progress = Callable[[str, float], None]
T = TypeVar("T")

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")
"""What an error says, in lower case, when an allocation failed: torch has no class of its own for it on the CPU."""


def run(
    spec: DecoderSpec,
    workload: Workload,
    options: BenchOptions,
    device: str | Device = "auto",
    seed: int = 0,
    on_progress: Progress | None = None,
    weights: str | None = None,
    on_figures: Callable[[Figures], None] | None = None,
) -> tuple[Figures, dict[str, Any]]:
    """The measured figures by name, and the environment that they hold for.

    Where the workload leaves the dtype open, it is the device's own. `on_progress(phase, done)` is told the share of
    each phase that is done, 0 to 1; the first is `build`. `on_figures` gets a phase's figures once it is timed.
    weights: a file to load, see `archlab.build`. Raises ConfigError where the device is not there.
    """
    device = pick(device) if isinstance(device, str) else device
    workload = workload.timed_in(device.native_dtype)
    busy = Busy()
    figures: Figures = {}
    for made in Bench(spec, workload, options, device, seed, on_progress or _silent, weights).stream():
        figures |= made
        if on_figures is not None:
            on_figures(made)
    device.release()
    return figures, environment(device, workload.weight_dtype, busy)


def _silent(phase: str, done: float) -> None:
    pass


@dataclass(frozen=True)
class Bench:
    """One composition on one device."""

    spec: DecoderSpec
    workload: Workload
    options: BenchOptions
    device: Device
    seed: int
    on_progress: Progress
    weights: str | None = None

    def stream(self) -> Iterator[Figures]:
        """The figures of each phase, as soon as it is timed."""
        phases = [phase for phase in PHASES if phase in self.options.phases]
        troubles = {phase: self._foreseen(phase) for phase in phases}
        decoder: Decoder | Trouble | None = None
        for phase in phases:
            trouble = troubles[phase]
            if trouble is None:
                decoder = decoder or self._attempt(self._build)
                timed = decoder if isinstance(decoder, Trouble) else self._attempt(self._time, phase, decoder)
                yield self._missing(phase, timed) if isinstance(timed, Trouble) else timed
            else:
                yield self._missing(phase, trouble)

    def _foreseen(self, phase: str) -> Trouble | None:
        """Why the phase is not tried: it makes no sense, or the estimate says that it does not fit."""
        if phase == "decode" and self.spec.head.last_token_only:
            return Trouble("ok", f"not timed: a {self.spec.head.choice} head makes no tokens")
        try:
            needed, available = memory_of(phase, self.spec, self.workload, self.device), self.device.available()
        except Unsaid:  # nothing is foreseen; what runs out of memory is a row of its own
            return None
        if needed <= available:
            return None
        reason = f"needs {show_bytes(needed)} (estimated), {self.device.name} has {show_bytes(available)} free"
        return Trouble("too_large", reason)

    def _attempt(self, work: Callable[..., T], *args: Any) -> T | Trouble:
        """What `work` gives, or why it failed; then its memory is free again."""
        try:
            return work(*args)
        except (RuntimeError, MemoryError) as error:
            trouble = _trouble(error)
        self.device.release()  # here, where the error no longer holds the frames that hold the tensors
        return trouble

    def _build(self) -> Decoder:
        self.on_progress("build", 0.0)
        dtype = self.workload.weight_dtype
        decoder = build(self.spec, device=self.device.name, dtype=dtype, weights=self.weights, seed=self.seed)
        self.on_progress("build", 1.0)
        return decoder

    def _time(self, phase: str, decoder: Decoder) -> Figures:
        with PHASES[phase](decoder, self.workload, self.seed) as timed:
            self.device.release()
            self.device.reset_peaks()
            sample = measure(timed.call, self.options, self.device.time, functools.partial(self.on_progress, phase))
            peaks = self.device.peaks()
        figures = self._speeds(phase, timed, sample)
        for ending, (count, how) in peaks.items():
            figures[f"{phase}_{ending}"] = Figure(count, "B", "measured", how)
        if timed.cache_bytes is not None:
            how = f"bytes of the KV cache's tensors: {self.workload.batch} x {self.workload.length} tokens"
            how = f"{how}, {self.workload.cache_dtype}"
            figures["kv_allocated_bytes"] = Figure(timed.cache_bytes, "B", "measured", how)
        return figures

    def _speeds(self, phase: str, timed: Run, sample: Sample) -> Figures:
        """Tokens a second and seconds a step, each with its spread over the runs."""
        how = f"{timed.counted}; {self.workload.weight_dtype} on {self.device.name}; {sample.describe()}"
        seconds, unit = TIMES[phase]
        rate = [timed.tokens / s for s in (sample.median, sample.p90, sample.p10)]  # slow runs are low rates
        time = [s / timed.steps for s in (sample.median, sample.p10, sample.p90)]
        warm = f"{sample.warmup_runs} untimed runs of the same shape, the first in {sample.first:.3g} s"
        return {
            f"{phase}_tok_s": _spread(rate, "tok/s", how, sample),
            seconds: _spread(time, unit, how, sample),
            f"{phase}_warmup_seconds": Figure(sample.warmup, "s", "measured", warm),
        }

    def _missing(self, phase: str, trouble: Trouble) -> Figures:
        """The phase's figures without a value."""
        return missing(phase, trouble, f"{self.workload.weight_dtype} on {self.device.name}")


def memory_of(phase: str, spec: DecoderSpec, workload: Workload, device: Device) -> int:
    """Bytes that a phase needs, estimated; training is timed with AdamW, all in the dtype of the weights."""
    kind, dtype = device.name.partition(":")[0], workload.weight_dtype
    if phase == "train":
        training = Training(workload.batch, workload.prompt, dtype, kind, workload.recompute)
        return training_memory(spec, training, RECIPES["adamw"]).total
    work = Inference(workload.batch, workload.prompt, workload.length, dtype, workload.cache_dtype, kind)
    return inference_memory(spec, work).total


def _spread(values: list[float], unit: str, how: str, sample: Sample) -> Figure:
    middle, low, high = values
    return Figure(middle, unit, "measured", how, low=low, high=high, repeats=sample.repeats)


def _trouble(error: BaseException) -> Trouble:
    """Out of memory, or whatever else torch could not do."""
    first = str(error).partition("\n")[0] or type(error).__name__
    lacking = isinstance(error, MemoryError | torch.OutOfMemoryError)
    lacking = lacking or any(words in str(error).lower() for words in OUT_OF_MEMORY)
    return Trouble("oom", f"out of memory: {first}") if lacking else Trouble("failed", first)
