"""Which points a scatter draws, which of them are its front, and how it looks in a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from archlab.errors import ConfigError
from archlab.report.chart import show_chart
from archlab.results import Results, Row
from archlab.scatter import in_terminal, scatter

UNITS = {"params": "parameters", "kv_bytes_per_token": "B/token", "decode_tok_s": "tok/s", "solved_d_ff": "features"}


def results(*points: tuple[float, float], **others: float) -> Results:
    rows = [
        Row(Path(f"{i}"), "gqa", {}, "ok", None, {"params": x, "decode_tok_s": y} | others, {})
        for i, (x, y) in enumerate(points)
    ]
    failed = Row(Path("failed"), "gqa", {}, "oom", "needs 14.00 GiB", {"params": 1}, {})
    return Results([*rows, failed], UNITS)


def drawn(shown: Results, asked: str, width: int, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_chart(in_terminal(scatter(shown, asked)), Console(file=file, width=width))
    file.seek(0)
    return file.read().splitlines()


def test_the_front_is_of_the_two_figures_and_the_rest_is_counted() -> None:
    shown = scatter(results((1, 1), (2, 3), (3, 2), (4, 9)), "params,decode")
    assert [shown.at(row) for row in shown.best] == [(1, 1), (2, 3), (4, 9)]  # fewer parameters, more tokens a second
    assert [shown.at(row) for row in shown.others] == [(3, 2)]
    assert shown.absent == 1


def test_axes_that_nobody_chose_are_those_that_tell_the_points_apart() -> None:
    same_size = results((5, 1), (5, 2), kv_bytes_per_token=8)
    assert scatter(same_size).y == "decode_tok_s"
    both = scatter(results((1, 1), (2, 3), kv_bytes_per_token=8))
    assert (both.x, both.y) == ("params", "decode_tok_s")


def test_a_figure_of_which_neither_is_better_has_no_front() -> None:
    shown = scatter(results((1, 1), (2, 3), solved_d_ff=64), "params,solved_d_ff")
    assert (shown.best, len(shown.others)) == ([], 2)


@pytest.mark.parametrize("asked", ["params", "params,params", "params,kv,decode"])
def test_what_are_not_two_figures_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="two different figures"):
        scatter(results((1, 1)), asked)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "●"), ("ascii", "o")])
def test_the_corners_of_a_terminal_scatter_are_its_extremes(width: int, encoding: str, mark: str) -> None:
    lines = drawn(results((1e6, 10), (3e6, 30), (3e6, 10)), "params,decode", width, encoding)
    plot = [line for line in lines if "│" in line or "|" in line]
    assert all(len(line) <= width for line in lines)
    assert plot[0].endswith(mark)  # the fastest is the largest: top right
    assert plot[0].split("|" if encoding == "ascii" else "│")[0].strip() == "30.00"
    assert plot[-1].replace("|", "│").split("│")[1].startswith(mark)  # the smallest: bottom left
    assert plot[-1].endswith("·" if encoding == "utf-8" else ".")
    foot = lines[lines.index(plot[-1]) + 1]
    assert foot.split() == ["1.00", "M", "2.00", "M", "3.00", "M"]
    assert all(any(entry in line for line in lines) for entry in ("1 others", "2 on the front"))


def test_a_scatter_over_decades_is_logarithmic_and_says_so() -> None:
    lines = drawn(results((1e6, 10), (1e8, 11), (1e10, 12)), "params,decode", 80)
    assert "params, log" in "".join(lines[:2])
    middle = next(line for line in lines if "●" in line and not line.strip().startswith(("12", "10")))
    assert middle.index("●") == pytest.approx(43, abs=4)  # 10^8 lies half way between 10^6 and 10^10
