"""lab cache: rows that are worked out again, tokens that are the same, and gradients that a cache stops."""

from __future__ import annotations

from typing import Any

import pytest
from asked import SMALL, Lab, rows
from torch import Tensor

from archlab.bench.device import pick
from archlab.components.span import Span
from archlab.lab import cache
from archlab.lab.cache import recomputed
from archlab.units import dtype_bytes

QUICK = ("new=5", "contexts=4,16")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SECONDS", 0.02)


def test_1000_tokens_save_499500_rows(lab: Lab) -> None:
    """Token by token, step t runs t tokens, of which t - 1 were there before: 1,000 x 999 / 2."""
    made = lab("cache", *SMALL, *QUICK, "lengths=1000,2048")
    long = {row["tokens"]: row for row in rows(made, "generation")}
    assert long[1000]["recomputed"] == 499_500
    each = 2 * 3 * 2 * 8 * dtype_bytes(pick().native_dtype)  # keys and values, 3 layers, 2 heads of 8
    assert long[2048]["cache"] == 2048 * each
    assert [row["recomputed"] for row in rows(made, "steps")] == [3, 15]


@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (1, 7), (5, 1), (5, 7)])
def test_rows_by_walking_through_the_steps(prompt: int, new: int) -> None:
    held, again = 0, 0
    for step in range(new):
        run = prompt + step
        again += min(held, run)
        held = run
    assert recomputed(prompt, new) == again


def test_both_ways_give_the_same_tokens_and_the_gradient_of_keys_and_values_is_lost(lab: Lab) -> None:
    made = lab("cache", *SMALL, *QUICK)
    assert rows(made, "generation")[0]["same_tokens"] == "yes"
    assert made["verdict"].startswith("the same 5 tokens with the cache, which saves 10 rows a layer; ")
    whole, cached, _ = rows(made, "training")
    assert whole["with_gradient"] - cached["with_gradient"] == 3 * 64 * (2 * 2 * 8)  # key and value projections
    assert "through the cache 6,144 parameters lose their gradient" in made["verdict"]
    assert cached["cache"] == 16 * 2 * 3 * 2 * 8 * dtype_bytes(pick().native_dtype)


def test_a_cache_that_keeps_something_else_gives_other_tokens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Span.write

    def spoilt(self: Span, held: Tensor, new: Tensor, *more: Any) -> Tensor:
        return write(self, held, 100 * new, *more)

    monkeypatch.setattr(Span, "write", spoilt)
    made = lab("cache", *SMALL, "model/head=untied", "new=16", "contexts=4")
    assert rows(made, "generation")[0]["same_tokens"] == "no"
    assert made["verdict"].startswith("other 16 tokens with the cache")


@pytest.mark.slow
def test_minimind_at_2048_tokens(lab: Lab) -> None:
    """2 x 8 layers x 4 heads x 96 x 2,048 x 2 B = 25,165,824 B in 16 bits."""
    made = lab("cache", "lengths=2048", "contexts=64", "new=8")
    held = rows(made, "generation")[-1]["cache"]
    assert held * 2 == 25_165_824 * dtype_bytes(pick().native_dtype)
    whole, cached, _ = rows(made, "training")
    assert whole["with_gradient"] - cached["with_gradient"] == 8 * (768 * 768 + 96)  # and the norm on keys
