"""Quotes around an override's value, and off it: as Hydra's own parser reads them."""

import contextlib
import itertools

import pytest
from hydra._internal.grammar.utils import escape_special_characters
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import HydraException

from archlab.quotes import quoted, unquoted

TEXTS = ["".join(chosen) for length in range(5) for chosen in itertools.product("a'\"\\", repeat=length)]


def read(value: str) -> object:
    return OverridesParser.create().parse_override(f"key={value}")._value


def test_what_is_put_in_quotes_comes_out_as_it_was() -> None:
    for text in TEXTS:
        value = read(quoted(text))
        assert isinstance(value, QuotedString)
        assert value.text == unquoted(quoted(text)) == text


@pytest.mark.parametrize("mark", ["'", '"'])
def test_quotes_are_read_as_hydra_reads_them(mark: str) -> None:
    seen = 0
    for raw in (f"{mark}{text}{mark}" for text in TEXTS):
        with contextlib.suppress(HydraException):
            value = read(raw)
            seen += isinstance(value, QuotedString)
            assert unquoted(raw) == (value.text if isinstance(value, QuotedString) else raw)
    assert seen > 80


def test_what_is_escaped_outside_of_quotes_is_read_as_hydra_reads_it() -> None:
    """As a sweep writes a text, `${seed}` among them."""
    parts = ("a", "$", "/", "\\a", "${a\\,b}", *(f"\\{letter}" for letter in "\\()[]{}:=, \t"))
    seen = 0
    for raw in map("".join, itertools.chain.from_iterable(itertools.product(parts, repeat=n) for n in (1, 2, 3))):
        value = read(raw)
        assert unquoted(raw) == value, raw
        assert unquoted(escape_special_characters(value)) == value
        seen += raw != value
    assert seen > 2000


def test_what_stands_in_quotes_in_a_list_is_as_hydra_reads_it() -> None:
    raw = r"[a\,b,'c\\d\,',${e\,f}]"
    one, two, three = read(raw)
    assert unquoted(raw) == f"[{one},'{two.text}',{three}]" == r"[a,b,'c\\d\,',${e\,f}]"


@pytest.mark.parametrize("value", ["", "7", "null", "gqa", "[1,2]", "{a:1}", "it's", "'a','b'", "'", "'a\\'"])
def test_what_is_not_one_text_in_quotes_stays(value: str) -> None:
    assert unquoted(value) == value
