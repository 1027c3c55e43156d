"""How many values an override is swept over, told without a list, against the list that Hydra makes."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from archlab.errors import RequestError
from archlab.multirun.checks import MOST_POINTS, check_count, count

whole = st.integers(-60, 60)
quarters = st.integers(-60, 60).map(lambda n: n / 4)  # exact in binary, so that Hydra's sums of steps are too


def parsed(text):
    return OverridesParser.create().parse_override(text)


@given(st.one_of(st.tuples(whole, whole, whole), st.tuples(quarters, quarters, quarters)).filter(lambda ends: ends[2]))
def test_a_range(ends):
    override = parsed(f"a=range({','.join(map(str, ends))})")
    assert count(override) == len(list(override.sweep_iterator()))


@pytest.mark.parametrize(("text", "values"), [("a=1", 1), ("a=1,null,x", 3), ("a=[1,2]", 1), ("a=interval(1,9)", 1)])
def test_what_is_no_range(text, values):
    assert count(parsed(text)) == values


def test_as_many_as_a_sweep_may_have_and_one_more():
    check_count([parsed(f"a=range(0,{MOST_POINTS // 2})"), parsed("b=1,2")])
    with pytest.raises(RequestError, match=f"a sweep of {MOST_POINTS + 2:,} points"):
        check_count([parsed(f"a=range(0,{MOST_POINTS // 2 + 1})"), parsed("b=1,2")])
