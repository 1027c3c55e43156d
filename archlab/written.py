"""Whole numbers that remember the arithmetic that made them, so that a closed form can say how it came to its value.

A closed form is code over the options of a spec. Run over options that are `Written`, it gives the same value, and with
it the formula, in symbols and in numbers: what is explained and the explanation are one piece of code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, Self


class Factor(NamedTuple):
    """A symbol and its number, or a sum in brackets."""

    symbols: str
    numbers: str


class Bracket(Factor):
    """A sum in brackets, whose terms are known."""

    terms: Terms

    @classmethod
    def around(cls, terms: Terms) -> Self:
        made = cls(f"({_sum_text(terms, 'symbols', ' ')})", f"({_sum_text(terms, 'numbers', ' x ')})")
        made.terms = terms
        return made


Term = tuple[int | Fraction, tuple[Factor, ...]]
"""A coefficient and what it multiplies."""

Terms = Mapping[tuple[Factor, ...], Term]
"""A sum: its products by their factors in order, so that like ones are counted together."""

Operation = Callable[[Any, Any], Any]


def _with_whole(operation: Operation) -> Operation:
    """The operation with a whole number; with any other, a plain number takes this one's place."""

    @functools.wraps(operation)
    def guarded(self: Written, other: Any) -> Any:
        return operation(self, other) if isinstance(other, int) else NotImplemented

    return guarded


class Written(int):
    """A whole number as a sum of products. What no rule here covers gives a plain number, written as its value."""

    terms: Terms

    @classmethod
    def made(cls, value: int, terms: Terms) -> Self:
        number = cls(value)
        number.terms = terms
        return number

    @property
    def value(self) -> int:
        """The plain number."""
        return int(self)

    @property
    def symbols(self) -> str:
        """`2 d_model d_ff + d_model`."""
        return _sum_text(self.terms, "symbols", " ")

    @property
    def numbers(self) -> str:
        """`2 x 512 x 1,408 + 512`."""
        return _sum_text(self.terms, "numbers", " x ")

    @_with_whole
    def __add__(self, other: int) -> Written:
        return Written.made(int(self) + int(other), _added(terms_of(self), terms_of(other).values()))

    __radd__ = __add__

    def __neg__(self) -> Written:
        return Written.made(-int(self), {key: (-count, factors) for key, (count, factors) in self.terms.items()})

    @_with_whole
    def __sub__(self, other: int) -> Written:
        return self + -other

    @_with_whole
    def __rsub__(self, other: int) -> Written:
        return -self + other

    @_with_whole
    def __mul__(self, other: int) -> Written:
        value = int(self) * int(other)
        if not value:
            return Written.made(0, {})
        for one, terms in ((self, terms_of(other)), (other, self.terms)):
            if terms_of(one) == ONE:
                return Written.made(value, terms)
        (count, factors), (times, more) = (_one_term(terms_of(number)) for number in (self, other))
        return Written.made(value, _sum([(count * times, (*factors, *more))]))

    __rmul__ = __mul__

    @_with_whole
    def __floordiv__(self, other: int) -> Written:
        value, rest = divmod(int(self), int(other))
        if rest or isinstance(other, Written):
            return symbol(value, f"floor({self.symbols} / {_in_brackets(other)})")
        count, factors = _one_term(self.terms)
        return Written.made(value, _sum([(Fraction(count) / other, factors)]))

    @_with_whole
    def __mod__(self, other: int) -> Written:
        return symbol(int(self) % int(other), f"({self.symbols} mod {_in_brackets(other)})")

    @_with_whole
    def __divmod__(self, other: int) -> tuple[Written, Written]:
        return self // other, self % other


class Quotient(NamedTuple):
    """One written number over another, or what else is no whole number."""

    symbols: str
    numbers: str
    value: float


def symbol(value: int, name: str) -> Written:
    """A number by its name; a negative one in brackets, or its square would read as one of its size, negated."""
    numbers = f"{int(value):,}" if value >= 0 else f"({int(value):,})"
    return Written.made(value, _sum([(1, (Factor(name, numbers),))]))


def named(value: int, name: str) -> int:
    """What was worked out, from here on by its name; a plain number stays one."""
    return symbol(value, name) if isinstance(value, Written) else value


def terms_of(number: int) -> Terms:
    """What a number is the sum of; a plain one is its value."""
    if not number:
        return {}
    return number.terms if isinstance(number, Written) else {(): (int(number), ())}


def summed(value: int, terms: Iterable[Term]) -> Written:
    """The sum of these products, which comes to a value."""
    return Written.made(value, _sum(terms))


ONE: Terms = {(): (1, ())}


def _sum(terms: Iterable[Term]) -> Terms:
    return _added({}, terms)


def _added(terms: Terms, more: Iterable[Term]) -> Terms:
    """A sum with more products, like ones counted together, in the order they came."""
    found = dict(terms)
    for count, factors in more:
        key = tuple(sorted(factors))
        before, first = found.get(key, (0, factors))
        found[key] = (before + count, first)
        if not before + count:
            del found[key]
    return found


def _one_term(terms: Terms) -> Term:
    """A sum as one product."""
    if len(terms) == 1:
        return next(iter(terms.values()))
    return 1, (Bracket.around(terms),)


# --- quotients --------------------------------------------------------------------------------------------------------


def ratio(number: int, divisor: int) -> float:
    """One number over another, whole where it is."""
    whole, rest = divmod(int(number), int(divisor))
    return number / divisor if rest else whole


def over(number: Written, divisor: Written) -> Quotient:
    """A number per so many of something, which goes out of every product where it is in all of them."""
    ((_, (unit,)),) = divisor.terms.values()
    value, without = ratio(number, divisor), _without(number.terms, unit)
    if without is None:
        return Quotient(f"({number.symbols}) / {unit.symbols}", f"({number.numbers}) / {unit.numbers}", value)
    return Quotient(_sum_text(without, "symbols", " "), _sum_text(without, "numbers", " x "), value)


def _without(terms: Terms, unit: Factor) -> Terms | None:
    """The terms divided by a factor, None where one of them lacks it."""
    left = [_term_without(term, unit) for term in terms.values()]
    return None if None in left else _sum(term for term in left if term is not None)


def _term_without(term: Term, unit: Factor) -> Term | None:
    count, factors = term
    for place, factor in enumerate(factors):
        inner = _without(factor.terms, unit) if isinstance(factor, Bracket) else None
        if factor == unit or inner is not None:
            rest = () if inner is None else (Bracket.around(inner),)
            return count, (*factors[:place], *rest, *factors[place + 1 :])
    return None


# --- text -------------------------------------------------------------------------------------------------------------


def _in_brackets(number: int) -> str:
    text = number.symbols if isinstance(number, Written) else f"{number:,}"
    return f"({text})" if " " in text else text


def _sum_text(terms: Terms, side: str, times: str) -> str:
    pieces: list[str] = []
    for count, factors in terms.values():
        sign = ("-" if count < 0 else "") if not pieces else (" - " if count < 0 else " + ")
        pieces += sign, _product_text(-count if count < 0 else count, factors, side, times)
    return "".join(pieces) or "0"


def _product_text(count: int | Fraction, factors: tuple[Factor, ...], side: str, times: str) -> str:
    powers = {factor: factors.count(factor) for factor in factors}
    pieces = [getattr(factor, side) + (f"^{power}" if power > 1 else "") for factor, power in powers.items()]
    if count.numerator != 1 or not pieces:
        pieces.insert(0, f"{count.numerator:,}")
    return times.join(pieces) + (f" / {count.denominator:,}" if count.denominator != 1 else "")
