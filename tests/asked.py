"""What the tests of `archlab lab` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lab = Callable[..., dict[str, Any]]
"""The command with these words; the JSON document that it prints."""

SMALL = ("model=gqa", "model.d_model=64", "model.n_layers=3", "model.vocab_size=97", "model.context=512")
"""The small starting model, smaller still: 8 query heads of 8, 2 KV heads, SwiGLU of 192."""


def rows(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    found: list[dict[str, Any]] = document["tables"][table]["rows"]
    return found
