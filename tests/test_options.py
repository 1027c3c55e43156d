"""Typed options: what each type takes, what it refuses, and how an error names it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archlab.errors import ConfigError
from archlab.frozen import Frozen
from archlab.options import option, options_of, read_options
from archlab.registry import AXES, choices


class Sample(Frozen):
    count: int = option(1, ge=1, lt=10)
    rate: float = option(0.5, ge=0)
    on: bool = option(False)
    word: str = option("a", valid=("a", "b"))
    maybe: float | None = option(None, gt=0)
    numbers: tuple[float, ...] = option((), gt=0)
    words: tuple[str, ...] | None = option(None, valid=("x", "y"))
    text: str = option("a")
    texts: tuple[str, ...] = option(("a",))
    empty: str = option("")
    empty_too: str = option("a", valid=("", "a"))
    ruled: int = option(auto="by a rule")
    needed: int = option(help="give it")


GOOD = {
    "count": [1, 9],
    "rate": [0, 0.0, 3, 1e-9],
    "on": [True, False],
    "word": ["a", "b"],
    "maybe": [None, 1, 0.5],
    "numbers": [[], [1, 2.5], (3,)],
    "words": [None, [], ["x"], ["x", "y"]],
    "text": ["any", " a "],
    "texts": [[], ["b", "c"]],
    "empty": ["", "a"],
    "empty_too": ["", "a"],
    "ruled": [None, 5],
}
BAD = {
    "count": [0, 10, 1.0, "1", True, None, [1], float("nan")],
    "rate": [-1, float("nan"), float("inf"), "0.5", True, None],
    "on": [0, 1, "true", None],
    "word": ["c", 1, None, ["a"]],
    "maybe": [0, -1, "1", False],
    "numbers": [[0], ["1"], [True], 1, None, [[1]], [float("nan")]],
    "words": ["x", ["z"], [1]],
    "text": ["", " ", "\t\n"],
    "texts": [[""], ["a", " "]],
    "ruled": [1.5, "5"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_a_good_value_is_taken(name, value):
    read = read_options(Sample, {"needed": 1, name: value})
    if name == "ruled" and value is None:
        assert name not in read
    else:
        assert read[name] == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_names_its_option(name, value):
    with pytest.raises(ConfigError) as caught:
        read_options(Sample, {"needed": 1, name: value})
    assert caught.value.key == name


def test_a_missing_option_says_what_it_is():
    with pytest.raises(ConfigError, match=r"needed: is required \(give it\)"):
        read_options(Sample, {})


def test_an_int_where_a_float_is_meant_becomes_one():
    assert isinstance(read_options(Sample, {"needed": 1, "rate": 3})["rate"], float)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(AXES), st.data())
def test_no_value_of_any_option_escapes_as_another_exception(axis, data):
    choice = data.draw(st.sampled_from(sorted(choices(axis))))
    spec = choices(axis)[choice].spec
    raw = data.draw(st.dictionaries(st.sampled_from([*options_of(spec), "unknown"]), ANY))
    with contextlib.suppress(ConfigError):
        read_options(spec, raw)


def test_every_option_of_every_choice_says_what_it_is():
    for axis in AXES:
        for choice in choices(axis).values():
            for opt in choice.options.values():
                assert opt.help, f"{axis}/{choice.name}: {opt.name}"
                assert opt.describe()
