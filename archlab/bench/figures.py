"""The names and units of what is measured, and what stands in their place where it could not be. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from archlab.bench.clock import Sample
from archlab.frozen import Frozen, replace
from archlab.record import Figure
from archlab.units import show_bytes

Figures = dict[str, Figure]

TIMES = {
    "prefill": ("prefill_seconds", "s"),  # to the first token
    "decode": ("decode_seconds_per_token", "s/token"),
    "train": ("train_seconds_per_step", "s/step"),
}
"""The figure that holds each phase's time, and its unit."""


class Trouble(Frozen):
    """Why something has no value: a status of records, and the reason."""

    status: str
    reason: str


def room(needed: int | None, has: str, ready: bool = True) -> str:
    """What was asked for, in bytes, None where that cannot be said, and what there is.

    ready: whether torch was there; before, it may be more (`at_least`), and torch itself takes some.
    """
    if needed is None:
        return has
    size = show_bytes(needed)
    return f"needs {size} (estimated), {has}" if ready else f"needs at least {size} (estimated) beside torch, {has}"


def missing(phase: str, trouble: Trouble, how: str) -> Figures:
    """A phase's figures without a value."""
    seconds, unit = TIMES[phase]
    units = {f"{phase}_tok_s": "tok/s", seconds: unit, f"{phase}_peak_bytes": "B", f"{phase}_warmup_seconds": "s"}
    return {
        name: Figure(None, unit, "measured", how, status=trouble.status, reason=trouble.reason)
        for name, unit in units.items()
    }


def told(how: str, facts: Mapping[str, str]) -> str:
    """A figure's `how` with its facts in words."""
    return "; ".join((how, *(f"{name}: {fact}" for name, fact in facts.items())))


def speeds(phase: str, tokens: int, steps: int, sample: Sample, how: str, facts: Mapping[str, str]) -> Figures:
    """Tokens a second and seconds a step, each with its spread over the runs, and what went before the clock.

    tokens, steps: of one timed call. facts: what ran, by name.
    """
    facts = {**facts, "stopped": sample.stopped}
    how = told(f"{how}; {sample.describe()}", facts)
    seconds, unit = TIMES[phase]
    rate = [tokens / s for s in (sample.median, sample.p90, sample.p10)]  # slow runs are low rates
    time = [s / steps for s in (sample.median, sample.p10, sample.p90)]
    warm = f"{sample.warmup_runs} untimed runs of the same shape, the first in {sample.first:.3g} s"
    return {
        f"{phase}_tok_s": replace(_spread(rate, "tok/s", how, sample), facts=facts),
        seconds: _spread(time, unit, how, sample),
        f"{phase}_warmup_seconds": Figure(sample.warmup, "s", "measured", warm),
    }


def compiling(phase: str, sample: Sample) -> Figures:
    """What compiling took, and whether any of it fell into the runs that were timed."""
    before, during = sample.compiled
    steady = sample.warmup_runs * sample.median
    how = f"{before} graphs; what {sample.warmup_runs} runs to warm up took beyond as many at the median"
    bad = f"{during} graphs were compiled while the clock ran: its times hold that too"
    counted = "graphs compiled while the clock ran"
    return {
        f"{phase}_compile_seconds": Figure(max(0.0, sample.warmup - steady), "s", "measured", how),
        f"{phase}_recompiles": Figure(during, "graphs", "measured", counted)
        if not during
        else Figure(during, "graphs", "measured", counted, status="invalid", reason=bad),
    }


def _spread(values: list[float], unit: str, how: str, sample: Sample) -> Figure:
    middle, low, high = values
    return Figure(middle, unit, "measured", how, low=low, high=high, repeats=sample.repeats)
