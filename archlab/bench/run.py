"""Time a composition on a device: build it, run each phase under the clock, and put the results as figures.

Nothing that goes wrong with one phase loses another: out of memory is a status of that phase's figures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from archlab.bench import backends
from archlab.bench.ceilings import Ceilings
from archlab.bench.clock import REFILLED, Sample, Turn, measure, refilled
from archlab.bench.compiled import check_switches, compilations, compile_in_place
from archlab.bench.device import Device, environment, machine, pick
from archlab.bench.figures import Figures, Trouble, compiling, missing, room, speeds
from archlab.bench.fractions import fractions, work_of, working_set
from archlab.bench.listener import Listener
from archlab.bench.needs import lacks_memory, phase_memory
from archlab.bench.phases import PHASES, Run, packs
from archlab.components.head.spec import LanguageHead
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import Unsaid
from archlab.hardware import Hardware, located
from archlab.host import Busy
from archlab.model import build
from archlab.record import Figure
from archlab.units import DTYPE_BYTES, show_bytes
from archlab.workload import BenchOptions, Workload

T = TypeVar("T")

REFILLING = f"each run of up to {REFILLED:g} s after one that is not timed"


def run(
    spec: DecoderSpec,
    workload: Workload,
    options: BenchOptions,
    device: str | Device = "auto",
    seed: int = 0,
    weights: str | None = None,
    hardware: Hardware | None = None,
    listener: Listener | None = None,
) -> tuple[Figures, dict[str, Any]]:
    """The measured figures by name, and the environment that they hold for.

    Where the workload leaves the dtype open, it is the device's own. weights: a file to load, see `archlab.build`.
    hardware: whose datasheet to measure against; without one, that of the device itself where it is known. Raises
    ConfigError where the device is not there.
    """
    device = pick(device) if isinstance(device, str) else device
    workload = workload.timed_in(device.native_dtype)
    check_switches(options.inductor)
    spec = options.timed(spec)
    busy = Busy()
    figures: Figures = {}
    sheet = located(hardware or Hardware("auto"), device.datasheet())
    bench = Bench(spec, workload, options, device, seed, weights, sheet, listener or Listener())
    bench.listener.environment(machine(device, workload.weight_dtype))
    for made in bench.stream():
        figures |= made
        bench.listener.figures(made)
    device.release()
    found = environment(device, workload.weight_dtype, busy)
    return figures, {**found, "attention": bench.attention, "compiled": options.compile, "inductor": options.inductor}


@dataclass(frozen=True)
class Bench:
    """One composition on one device. sheet: the device on paper. attention: the backends that each phase ran."""

    spec: DecoderSpec
    workload: Workload
    options: BenchOptions
    device: Device
    seed: int
    weights: str | None
    sheet: Hardware
    listener: Listener
    attention: dict[str, str] = field(default_factory=dict)

    @functools.cached_property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.device, self.options.seconds)

    @functools.cached_property
    def needed(self) -> dict[str, int]:
        """Bytes that phases need, estimated; without those of choices that do not say."""
        found = {}
        for phase in self.options.phases:
            with suppress(Unsaid):
                found[phase] = memory_of(phase, self.spec, self.workload, self.device)
        return found

    def stream(self) -> Iterator[Figures]:
        """The figures of each phase, as soon as it is timed."""
        self.listener.needs(self.needed)
        phases = [phase for phase in PHASES if phase in self.options.phases]
        troubles = {phase: self._foreseen(phase) for phase in phases}
        decoder: Decoder | Trouble | None = None
        for phase in phases:
            trouble = troubles[phase]
            if trouble is None:
                decoder = decoder or self._attempt(phase, self._build)
                timed = decoder if isinstance(decoder, Trouble) else self._attempt(phase, self._time, phase, decoder)
                yield self._missing(phase, timed) if isinstance(timed, Trouble) else timed
            else:
                yield self._missing(phase, trouble)

    def _foreseen(self, phase: str) -> Trouble | None:
        """Why the phase is not tried: it makes no sense, or the estimate says that it does not fit."""
        if phase == "decode" and self.spec.head.last_token_only:
            return Trouble("ok", f"not timed: a {self.spec.head.choice} head makes no tokens")
        if phase == "decode" and self.options.graphs and self.device.kind != "cuda":
            return Trouble("invalid", f"CUDA graphs are for cuda, not for {self.device.name}")
        try:
            backends.check(phase, self.spec, self.options, self.workload.weight_dtype, self.device.name)
        except backends.Unable as error:
            return Trouble("invalid", str(error))
        free = self.device.available()
        fits = self.needed.get(phase, 0) <= free  # where it is not said, it may run out of memory
        return None if fits else Trouble("too_large", self._room(phase, free))

    def _room(self, phase: str, free: int) -> str:
        """What a phase asks for and what there is."""
        return room(self.needed.get(phase), f"{self.device.name} has {show_bytes(free)} free")

    def _attempt(self, phase: str, work: Callable[..., T], *args: Any) -> T | Trouble:
        """What `work` gives, or why it failed; then its memory is free again."""
        try:
            return work(*args)
        except (RuntimeError, MemoryError) as error:
            trouble = _trouble(error, self._room(phase, self.device.available()))
        self.device.release()  # here, where the error no longer holds the frames that hold the tensors
        return trouble

    def _build(self) -> Decoder:
        self.listener.progress("build", 0.0)
        dtype = self.workload.weight_dtype
        decoder = build(self.spec, device=self.device.name, dtype=dtype, weights=self.weights, seed=self.seed)
        if self.options.compile:
            compile_in_place(decoder, self.device, self.options.backend, self.options.inductor)
        self.listener.progress("build", 1.0)
        return decoder

    def _time(self, phase: str, decoder: Decoder) -> Figures:
        figures: Figures = {}
        with backends.held_to(self.options.backend):
            ceilings = self._ceilings(phase) if self.options.ceilings else {}
            how = {"graphs": True} if phase == "decode" and self.options.graphs else {}
            with PHASES[phase](decoder, self.workload, self.seed, **how) as timed:
                sample, peaks = self._clocked(phase, timed)
                seen = backends.seen(timed.step or timed.call, self.spec.n_layers)
        self.attention[phase] = ", ".join(seen) or "not seen"
        figures |= self._speeds(phase, timed, sample, seen)
        if ceilings:
            figures |= self._against(phase, sample, ceilings)
        return figures | peaks

    def _against(self, phase: str, sample: Sample, ceilings: Figures) -> Figures:
        """The ceilings and what the phase reached of them; those that it beat are measured once more after it.

        A machine that was busy just then reached less than it can.
        """
        found = self._fractions(phase, sample, ceilings)
        if any(found[f"{phase}_{share}"].status == "invalid" for share in ("mfu", "mbu")):
            self.ceilings.forget()
            again = self._ceilings(phase)
            ceilings = {name: max(old, again[name], key=lambda made: made.value or 0) for name, old in ceilings.items()}
            found = self._fractions(phase, sample, ceilings)
        return ceilings | found

    def _fractions(self, phase: str, sample: Sample, ceilings: Figures) -> Figures:
        matmul, read = ceilings["ceiling_matmul"], ceilings[f"ceiling_read.{phase}"]
        return fractions(work_of(phase, self.spec, self.workload), sample, matmul, read, self.sheet)

    def _ceilings(self, phase: str) -> Figures:
        """What the device can do at best, at the working set of one step of the phase."""
        work = work_of(phase, self.spec, self.workload)
        size = working_set(work, self.workload.new if phase == "decode" else 1)
        return {
            "ceiling_matmul": self.ceilings.matmul(self.workload.weight_dtype),
            f"ceiling_read.{phase}": self.ceilings.read(size),
            f"ceiling_copy.{phase}": self.ceilings.copy(size),
        }

    def _clocked(self, phase: str, timed: Run) -> tuple[Sample, Figures]:
        """The timed runs, and the memory that they took at most."""
        self.device.release()
        self.device.reset_peaks()
        progress = functools.partial(self.listener.progress, phase)
        turn: Turn = functools.partial(self.listener.turn, phase)
        if self.listener.takes_turns:
            turn = refilled(turn, timed.call, self.device.time)
        compiles = compilations if self.options.compile else int
        sample = measure(timed.call, self.options, self.device.time, progress, turn, compiles)
        peaks = self.device.peaks().items()
        figures = {f"{phase}_{ending}": Figure(count, "B", "measured", how) for ending, (count, how) in peaks}
        if timed.cache_bytes is not None:
            how = f"bytes of the KV cache's tensors: {self.workload.batch} x {self.workload.length} tokens"
            how = f"{how}, {self.workload.cache_dtype}"
            figures["kv_allocated_bytes"] = Figure(timed.cache_bytes, "B", "measured", how)
        return sample, figures

    def _speeds(self, phase: str, timed: Run, sample: Sample, seen: dict[str, str]) -> Figures:
        attention = ", ".join(f"{name} ({evidence})" for name, evidence in seen.items()) or "not seen by the profiler"
        facts = {"products": timed.products} if timed.products else {}
        facts |= {"in turns": REFILLING} if self.listener.takes_turns else {}
        how = f"{timed.counted}; {self.workload.weight_dtype} on {self.device.name}"
        figures = speeds(phase, timed.tokens, timed.steps, sample, how, facts | {"attention": attention})
        return figures | (compiling(phase, sample) if self.options.compile else {})

    def _missing(self, phase: str, trouble: Trouble) -> Figures:
        """The phase's figures without a value."""
        return missing(phase, trouble, f"{self.workload.weight_dtype} on {self.device.name}")


def memory_of(phase: str, spec: DecoderSpec, workload: Workload, device: Device) -> int:
    """Bytes that a phase needs, estimated, the copy among them that a packed tied head is."""
    dtype = workload.weight_dtype
    copies = phase != "train" and packs(dtype, device.kind) and _is_tied(spec)
    copied = spec.head.width * spec.d_model * DTYPE_BYTES[dtype] if copies else 0
    return phase_memory(phase, spec, workload, device.kind) + copied


def _is_tied(spec: DecoderSpec) -> bool:
    return isinstance(spec.head, LanguageHead) and spec.head.tied


def _trouble(error: BaseException, asked: str) -> Trouble:
    """Out of memory, a backend that cannot do what is asked, or whatever else torch could not do."""
    if isinstance(error, backends.Unable):
        return Trouble("invalid", str(error))
    first = str(error).partition("\n")[0] or type(error).__name__
    return Trouble("oom", f"out of memory: {first}; {asked}") if lacks_memory(error) else Trouble("failed", first)
