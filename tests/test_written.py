"""Arithmetic that remembers itself: the same values as plain numbers, and a text that says so."""

from __future__ import annotations

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from worked import evaluate, with_numbers

from archlab.written import Written, named, over, symbol

OPERATIONS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
d, h, width, tokens = symbol(4096, "d_model"), symbol(32, "n_heads"), symbol(128, "head_dim"), symbol(10, "prompt")


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 4) -> tuple[Any, int]:
    """An expression with symbols in it, and the same over plain numbers."""
    value = draw(st.integers(0, 9))
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from("abc")) + str(value)
        return (symbol(value, name) if draw(st.booleans()) else value), value
    (one, plain), (other, plain_other) = draw(arithmetic(depth=depth - 1)), draw(arithmetic(depth=depth - 1))
    operation = draw(st.sampled_from(OPERATIONS[: 5 if plain_other > 0 else 3]))
    return operation(one, other), operation(plain, plain_other)


@given(arithmetic())
def test_the_value_is_that_of_plain_numbers_and_the_text_says_it(pair: tuple[Any, int]) -> None:
    number, plain = pair
    assert number == plain
    if isinstance(number, Written):
        assert evaluate(number.numbers) == plain


@given(arithmetic(), st.integers(1, 9))
def test_a_quotient_says_its_value(pair: tuple[Any, int], divisor: int) -> None:
    unit = symbol(divisor, "prompt")
    number = pair[0] + 0 * unit
    if isinstance(number, Written):
        assert evaluate(over(number * unit, unit).numbers) == pair[1]
        assert evaluate(over(number, unit).numbers) * divisor == pair[1]


def test_like_products_are_counted_together() -> None:
    number = sum([d * h * width, d * (h * width), h * width * d, 2 * d, 0 * h])
    assert number.symbols == "3 d_model n_heads head_dim + 2 d_model"
    assert number.numbers == "3 x 4,096 x 32 x 128 + 2 x 4,096"
    assert (number - number).symbols == "0"


def test_powers_sums_and_halves() -> None:
    triangle = tokens * (tokens + 1) // 2
    assert (triangle, triangle.symbols, triangle.numbers) == (55, "prompt (prompt + 1) / 2", "10 x (10 + 1) / 2")
    assert (tokens * tokens * h).symbols == "prompt^2 n_heads"
    assert (d - 2 * h).numbers == "4,096 - 2 x 32"
    assert over(3 * (2 * tokens * d + 4 * triangle * h), tokens).symbols == "3 (2 d_model + 2 (prompt + 1) n_heads)"
    low = symbol(-3, "low")
    assert (d - low * low).numbers == "4,096 - (-3)^2"
    assert over(d + tokens, tokens).symbols == "(d_model + prompt) / prompt"


def test_symbols_and_numbers_say_the_same() -> None:
    number = (d - 1) * (h + 2) * 3 + d * d
    assert with_numbers(number.symbols, {"d_model": 4096, "n_heads": 32}) == number.numbers


def test_other_kinds_of_numbers_are_left_alone() -> None:
    assert d * 0.5 == 2048.0
    assert d / 2 == 2048.0
    assert named(7, "N") == 7
    assert named(d + 1, "N").symbols == "N"  # type: ignore[attr-defined]
