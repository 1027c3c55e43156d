"""The contexts that a command on paper shows where none were asked for."""

from __future__ import annotations

from archlab.decoder.spec import DecoderSpec

STEPS = (2048, 8192, 32768, 131072)


def usual_contexts(*specs: DecoderSpec) -> tuple[int, ...]:
    """A few up to the shortest context of these models, that one too."""
    end = min(spec.context for spec in specs)
    return (*(step for step in STEPS if step < end), end)
