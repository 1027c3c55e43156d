"""How results read."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
