"""Whom the clock tells of what it does, and who holds it back. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archlab.bench.clock import until_enough
from archlab.bench.figures import Figures


class Listener:
    """One that hears nothing and holds nothing back; others override what they want to know."""

    takes_turns = False
    """Whether others run while a run is held back."""

    def needs(self, needed: Mapping[str, int]) -> None:
        """Bytes that phases need, estimated, by phase, before anything is built; without what cannot be said."""

    def environment(self, found: Mapping[str, Any]) -> None:
        """What the figures hold for, as far as it is known before the first phase."""

    def progress(self, phase: str, share: float) -> None:
        """The share of a phase that is done, 0 to 1; the first phase is `build`."""

    def figures(self, made: Figures) -> None:
        """What was measured of a phase, once it is timed."""

    def turn(self, phase: str, stopped: str | None, runs: Sequence[float]) -> bool:
        """Whether to time another run. stopped: why those made are enough; runs: their seconds."""
        return until_enough(stopped, runs)
