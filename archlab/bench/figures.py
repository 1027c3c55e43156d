"""The names and units of what is measured, and what stands in their place where it could not be. No torch."""

from __future__ import annotations

from archlab.frozen import Frozen
from archlab.record import Figure

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


def missing(phase: str, trouble: Trouble, how: str) -> Figures:
    """A phase's figures without a value."""
    seconds, unit = TIMES[phase]
    units = {f"{phase}_tok_s": "tok/s", seconds: unit, f"{phase}_peak_bytes": "B", f"{phase}_warmup_seconds": "s"}
    return {
        name: Figure(None, unit, "measured", how, status=trouble.status, reason=trouble.reason)
        for name, unit in units.items()
    }
