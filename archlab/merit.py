"""Which way a figure is better: as its unit has it, or as a sweep was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from archlab.record import full_name

DIRECTIONS = ("minimize", "maximize")
NO_MERIT = ("params.", "solved_", "budget_", "ceiling_")
"""Figures that are no merit of a model: parts of others, what was asked for, what the device can do."""

Wishes = Mapping[str, int]
"""Of figures by name, where not their units decide: 1 more is better, -1 less."""


def direction(unit: str) -> int:
    """Whether more of a unit is better (1), less is (-1), or neither: rates are wanted, costs are not."""
    if unit.endswith("/s"):
        return 1
    return -1 if unit.split("/")[0] in ("parameters", "B", "FLOP", "s") else 0


def wishes(config: Mapping[str, Any]) -> Wishes:
    """What a config's `direction` says of the figures that its `objective` names."""
    names = config.get("objective") or ["params"]
    said = config.get("direction") or []
    return {full_name(name): 1 if word == DIRECTIONS[1] else -1 for name, word in zip(names, said, strict=False)}


def agreed(told: Iterable[Wishes]) -> Wishes:
    """What all of some wishes have in common."""
    found = [set(one.items()) for one in told]
    return dict(set.intersection(*found)) if found else {}
