"""Tables in any width: no line past it, no letter lost, numbers whole and in their column."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from archlab.report.console import PIPED_WIDTH
from archlab.report.grid import Cell, Column, Grid, least_width, show

WORDS = st.text(st.sampled_from("abé漢 -"), max_size=40).map(lambda text: " ".join(text.split()))
NUMBERS = st.integers(0, 10**12).map(lambda number: f"{number:,}")


@st.composite
def grids(draw):
    kinds = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    heads = [draw(WORDS | st.just("two\nlines")) for _ in kinds]
    made = Grid([Column(head, number=number) for head, number in zip(heads, kinds, strict=True)])
    for _ in range(draw(st.integers(1, 4))):
        units = draw(st.sampled_from(["", "MiB"]))
        made.add(*(Cell(draw(NUMBERS if number else WORDS), "bold", units if number else "") for number in kinds))
    return made


def shown(grid, width):
    file = io.StringIO()
    show(grid, Console(file=file, width=width, color_system=None))
    return file.getvalue()


@settings(max_examples=60)
@given(grids(), st.integers(0, 60))
def test_no_line_is_too_long_and_nothing_is_lost(grid, more):
    width = 2 + least_width(grid) + more
    text = shown(grid, width)
    assert max(map(cell_len, text.splitlines()), default=0) <= width
    for row in grid.rows:
        for cell, column in zip(row, grid.columns, strict=True):
            if column.number:
                assert cell.shown in text
    letters = "".join("".join(cell.shown.split()) for row in grid.rows for cell in row)
    heads = "".join("".join(column.head.split()) for column in grid.columns)
    assert sorted(text.replace("─", "").replace(" ", "").replace("\n", "")) == sorted(letters + heads)


def test_heads_stand_on_the_rule_and_numbers_under_each_other():
    grid = Grid([Column("name"), Column("bytes\nB", number=True)])
    grid.add("a", "1,024")
    grid.add("two words", "7")
    assert shown(grid, 40).splitlines() == [
        "             bytes",
        "  name           B",
        "  ────────────────",
        "  a          1,024",
        "  two words      7",
    ]


def test_a_column_that_needs_little_more_is_not_folded_for_the_sake_of_a_long_one():
    grid = Grid([Column("a"), Column("b")])
    grid.add("seventeen letters", " ".join(["word"] * 40))
    lines = shown(grid, 60).splitlines()
    assert sum("seventeen letters" in line for line in lines) == 1
    assert "word word word word" in lines[2]


def test_texts_beside_a_number_are_folded_until_they_stand() -> None:
    """Four texts and a number at 60 columns: with 16 for each text they would take 86."""
    text, out = "[B, n, h, head_dim]", io.StringIO()
    grid = Grid([*(Column(f"text {n}") for n in range(4)), Column("count", number=True)], 4)
    grid.add(text, text, text, text, "1,234,567,890")
    show(grid, Console(file=out, width=60))
    assert max(map(cell_len, out.getvalue().splitlines())) <= 60
    assert "1,234,567,890" in out.getvalue()


def rule(grid):
    (found,) = [line for line in shown(grid, PIPED_WIDTH).splitlines() if set(line.strip()) == {"─"}]
    return len(found.strip())


@pytest.mark.parametrize("last", [Column("meaning"), Column()])
def test_a_text_of_any_length_makes_no_rule_of_that_length(last):
    grid = Grid([Column("name"), Column("bytes", number=True), last])
    grid.add("a", "1,024", "word " * 1000)
    assert rule(grid) == 120
    assert ("word " * 1000).strip() in shown(grid, PIPED_WIDTH)


def test_a_note_of_any_length_makes_no_rule_of_that_length():
    grid = Grid([Column("name"), Column("bytes", number=True)])
    grid.add("a", "1,024", note="word " * 1000)
    assert rule(grid) == 120


def test_a_rule_goes_as_far_as_heads_and_numbers_do_and_no_further_than_a_line():
    numbers = Grid([Column("name"), *(Column(f"number {at}", number=True) for at in range(20)), Column("source")])
    numbers.add("a", *["1"] * 20, "x" * 500)
    assert rule(numbers) == len("name") + sum(2 + len(f"number {at}") for at in range(20)) + 2 + len("source")
    short = Grid([Column("name"), Column("meaning")])
    short.add("a", "in a word")
    assert rule(short) == len("name") + 2 + len("in a word")
