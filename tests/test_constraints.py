"""Limits of figures: read in the figure's own unit, and how far a record goes beyond them."""

import json
import math

import pytest

from archlab.cli.app import answer
from archlab.constraints import broken, excesses, read
from archlab.errors import ConfigError
from archlab.record import Figure, Record

PARAMS = Figure(1_500_000_000, "parameters", "exact", "")
CACHE = Figure(32_768, "B/token", "exact", "")
SPEED = Figure(18.0, "tok/s", "measured", "")


@pytest.mark.parametrize(
    ("text", "figure", "excess"),
    [
        ("params<=1B", PARAMS, 0.5),  # a billion, not a byte
        ("params <= 1.5B", PARAMS, 0.0),
        ("params<1.5B", PARAMS, 2**-52),
        ("params<=3e9", PARAMS, -0.5),
        ("kv_bytes_per_token<=32KiB", CACHE, 0.0),
        ("kv<=16KiB", CACHE, 1.0),
        ("kv<=32KB", CACHE, 768 / 32_000),
        ("decode_tok_s>=20", SPEED, 0.1),
        ("decode>=9", SPEED, -1.0),
        ("decode>=9", None, None),
    ],
)
def test_how_far_beyond_a_limit_as_a_share_of_it(text, figure, excess):
    assert read(text).excess(figure) == (None if excess is None else pytest.approx(excess))


@pytest.mark.parametrize("text", ["params", "<=1B", "params<=", "params==1B", "1B>=params>=2B", "", "params<=1B<=2B"])
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(ConfigError, match="no limit of a figure"):
        read(text)


@pytest.mark.parametrize(
    ("text", "figure", "says"), [("params<=1GiB", PARAMS, "power of ten"), ("kv<=1K", CACHE, "KiB")]
)
def test_a_limit_in_another_unit_is_refused(text, figure, says):
    with pytest.raises(ConfigError, match=says):
        read(text).excess(figure)


def test_what_a_record_breaks():
    record = Record({"constraints": ["params<=1B", "kv<=32KiB", "decode>=20"]}, figures={"params": PARAMS})
    assert broken(record) == ["params<=1B"]  # of the others nothing is known
    assert broken(Record({}, figures={"params": PARAMS})) == []


WRONG = ("garbage", "", "params<=<", "params<=abc", "params<=1B/s", "params<=1GiB", "kv<=12KiBB")


@pytest.mark.parametrize("text", WRONG)
def test_of_a_record_one_that_cannot_be_read_is_not_kept_and_says_so(text):
    record = Record({"constraints": [text, "kv<=16KiB"]}, figures={"params": PARAMS, "kv_bytes_per_token": CACHE})
    assert broken(record) == [f"{text!r}, which cannot be read", "kv<=16KiB"]
    assert excesses([text], record.figures) == {text: math.inf}


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("command", [("results",), ("results", "--json"), ("compare",), ("compare", "--json")])
def test_one_such_record_takes_none_of_the_others_away(tmp_path, capsys, command, text):
    for index in range(3):
        figures = {"params": PARAMS, "kv_bytes_per_token": CACHE}
        config = {"model": {"name": "m"}, "constraints": [text if index == 1 else "params<=2B"]}
        Record(config, [f"model.n_layers={index}"], figures=figures).save(tmp_path / str(index))
    assert answer([command[0], str(tmp_path), *command[1:]]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    if "--json" in command:
        assert len(json.loads(shown.out)["points"]) == 3
    else:
        assert "1,500,000,000" in shown.out
        assert shown.out.count("which cannot be read") == 1
