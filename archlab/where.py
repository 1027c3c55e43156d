"""A condition on records, such as `params<200M and attention!=mha`: a small language, read here and never evaluated
as Python.

    condition   comparison { and|or comparison }, `not`, parentheses
    comparison  NAME < <= > >= = == != VALUE, chained: 10M < params < 20M
    VALUE       a number with or without a unit (200M, 32KiB, 8k, 2e8), a word, 'text in quotes', null, true, false

A name is a figure, an option or an override of the records. What a record lacks is null, and null is neither less nor
more than anything.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from archlab.errors import ArchlabError, ConfigError, RequestError
from archlab.frozen import Frozen
from archlab.record import no_figure
from archlab.units import read_bytes, read_count, read_tokens

Facts = Mapping[str, Any]
Test = Callable[[Facts], bool]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|==|!=|<|>|=|\(|\))"
    r"|(?P<number>-?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[A-Za-z]*(?![\w.]))|(?P<word>[^\s<>=!()'\"]+))"
)
_SIGNS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS = {"null": None, "true": True, "false": False}
MOST_NESTED = 50


class Name(Frozen):
    """One side of a comparison that a record has to fill in. unit: of the figure; empty for an option."""

    name: str
    unit: str


def condition(text: str, units: Mapping[str, str]) -> Test:
    """The test that a condition makes. units: the unit of each name there is, empty where it has none.

    Raises RequestError for what cannot be read, ConfigError for a name that there is not.
    """
    return _Reader(text, units).read()


class _Reader:
    def __init__(self, text: str, units: Mapping[str, str]) -> None:
        self.text, self.units, self.depth = text, units, 0
        self.tokens = list(_tokens(text))

    def read(self) -> Test:
        test = self._any()
        if self.tokens:
            raise self._wrong(f"{self._shown()} is not expected here")
        return test

    def _any(self) -> Test:
        tests = [self._all()]
        while self._takes("or"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda facts: any(test(facts) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._takes("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda facts: all(test(facts) for test in tests)

    def _one(self) -> Test:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self._wrong("it is nested too deeply")
        test = self._nested()
        self.depth -= 1
        return test

    def _nested(self) -> Test:
        if self._takes("not"):
            inverted = self._one()
            return lambda facts: not inverted(facts)
        if not self._takes("("):
            return self._comparison()
        test = self._any()
        if not self._takes(")"):
            raise self._wrong(") is missing")
        return test

    def _comparison(self) -> Test:
        sides, signs = [self._side()], []
        while self.tokens and self.tokens[0][1] in _SIGNS:
            signs.append(self.tokens.pop(0)[1])
            sides.append(self._side())
        if not signs:
            raise self._wrong(f"a comparison is expected, such as params<200M; {sides[0][1]!r} stands alone")
        pairs = list(zip(sides, signs, sides[1:], strict=False))
        tests = [self._pair(left, sign, right) for left, sign, right in pairs]
        return lambda facts: all(test(facts) for test in tests)

    def _side(self) -> tuple[str, str]:
        if not self.tokens or self.tokens[0][0] == "sign" or self.tokens[0][1] in ("and", "or", "not"):
            raise self._wrong(f"a name or a value is expected before {self._shown()}")
        return self.tokens.pop(0)

    def _pair(self, left: tuple[str, str], sign: str, right: tuple[str, str]) -> Test:
        one, other = self._named(left), self._named(right)
        if one is None and other is None:
            word = left[1] if left[0] == "word" else right[1]
            raise no_figure("where", word, sorted(self.units), self.text, "figure or option")
        first = one or self._value(left, sign, other)
        second = other or self._value(right, sign, one)
        compare = _SIGNS[sign]
        return lambda facts: _holds(compare, _fill(first, facts), _fill(second, facts))

    def _value(self, token: tuple[str, str], sign: str, name: Name | None) -> Any:
        """The value that a name is compared with. Raises RequestError for a word where only a number can be meant."""
        value = _value(token, name.unit if name else "")
        if isinstance(value, str) and (sign not in ("=", "==", "!=") or (name and name.unit)):
            raise self._wrong(f"{name.name if name else sign} wants a number, not {token[1]!r}")
        return value

    def _named(self, token: tuple[str, str]) -> Name | None:
        kind, text = token
        return Name(text, self.units[text]) if kind == "word" and text in self.units else None

    def _takes(self, word: str) -> bool:
        if self.tokens and self.tokens[0][0] != "text" and self.tokens[0][1] == word:
            self.tokens.pop(0)
            return True
        return False

    def _shown(self) -> str:
        return repr(self.tokens[0][1]) if self.tokens else "the end"

    def _wrong(self, problem: str) -> RequestError:
        return RequestError(f"--where {self.text!r}: {problem}")


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise RequestError(f"--where {text!r}: {text[place:].strip()[:20]!r} cannot be read")
        kind, word = match.lastgroup, match[match.lastgroup]
        found.append((kind, word[1:-1] if kind == "text" else word))
        place = match.end()
    return found


def _value(token: tuple[str, str], unit: str) -> Any:
    """A value as the unit of what it is compared with has it read: 1B is a billion parameters, or one byte."""
    kind, text = token
    if kind == "number":
        return number(text, unit)
    return _WORDS.get(text.lower(), text) if kind == "word" else text


def number(text: str, unit: str) -> float | int:
    """A number as a unit has it read: 1B is a billion parameters, or one byte. Raises ConfigError."""
    try:
        return int(text)
    except ValueError:
        pass
    with contextlib.suppress(ValueError):
        found = float(text.replace("_", ""))
        if not math.isfinite(found):
            raise ConfigError("where", f"{text!r} is no finite number", value=text)
        return found
    if unit == "B" or unit.startswith("B/"):
        return read_bytes(text, "where")
    if unit in ("", "tokens"):
        try:
            return read_tokens(text, "where")
        except ArchlabError:
            return read_count(text, "where")
    return read_count(text, "where")


def _fill(side: Any, facts: Facts) -> Any:
    return facts.get(side.name) if isinstance(side, Name) else side


def _holds(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """Whether a comparison holds; words are equal in any case, a number and a word never."""
    if compare not in (operator.eq, operator.ne):
        return _numbers(left, right) and compare(left, right)
    if left is None or right is None or _numbers(left, right):
        return compare(left, right)
    return compare(str(left).lower(), str(right).lower())


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
