"""How results read."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def others(count: int) -> str:
    """`the other one`, `the 5 others`."""
    return "the other one" if count == 1 else f"the {count} others"
