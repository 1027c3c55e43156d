"""The pages of the axes hold every choice, with its options, papers and numbers."""

from __future__ import annotations

import re

import pytest
from pages import axes

from archlab.meaning import meaning
from archlab.registry import AXES, choices
from archlab.report.formats import md_escape

PAGES = axes.pages()


def section(axis: str, title: str) -> str:
    """What stands under one heading of an axis's page."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGES[f"axes/{axis}"], re.DOTALL | re.MULTILINE)
    assert found, f"{axis} has no {title}"
    return found[1]


def test_there_is_a_page_an_axis_and_one_of_all() -> None:
    assert set(PAGES) == {"axes/index", *(f"axes/{axis}" for axis in AXES)}
    for axis in AXES:
        assert f"[{axis}]({axis}.md)" in PAGES["axes/index"]


@pytest.mark.parametrize("axis", AXES)
def test_every_choice_has_its_formula_its_paper_and_its_options(axis: str) -> None:
    side_by_side, options = section(axis, "Choices"), section(axis, "Options")
    for name, chosen in choices(axis).items():
        assert f"| [`{name}`](#{name}) |" in side_by_side
        assert f"| `{chosen.formula}` |" in side_by_side
        own = section(axis, name)
        assert f"`model/{axis}={name}` chooses it." in own
        for paper in meaning(axis, name).sources:
            assert md_escape(f"{paper.authors} {paper.year}, {paper.title}") in own
            assert f"https://arxiv.org/abs/{paper.arxiv}" in own or paper.arxiv is None
        for option in chosen.options.values():
            [row] = [
                row for row in options.splitlines() if row.startswith(f"| `{option.name}` |") and f"`{name}`" in row
            ]
            assert md_escape(option.help) in row


WORKED = [
    ("norm", "rmsnorm", "512 + 2 x 8 x 512 = 8,704"),
    ("position", "rope", "4 x 4,096 x 64 = 1,048,576"),
    ("attention", "gqa", "2 x 8 x 2 x 64 x 2 = 4,096"),
    ("ffn", "swiglu", "3 x 8 x 512 x 1,408 = 17,301,504"),
    ("head", "tied", "32,000 x 512 = 16,384,000"),
    ("block", "pre_norm", "2 x 8 + 1 = 17"),
]


@pytest.mark.parametrize(("axis", "name", "worked"), WORKED)
def test_formulas_are_worked_with_the_numbers_of_the_preset(axis: str, name: str, worked: str) -> None:
    """8 layers of 512 features, 8 heads and 2 for keys and values of 64, an FFN of 1,408, 32,000 tokens, 4,096 long."""
    assert worked in section(axis, name)


def test_drawings_tables_and_curves_are_there() -> None:
    assert "└──┬──┘   └──┬──┘" in section("attention", "gqa")
    assert "| 1 | 0.7499 | 8.379 | 488.9 |" in section("position", "rope")  # 10,000^(-2 / 64) radians a token
    assert "●" in section("ffn", "silu")


def test_who_uses_a_choice_and_what_it_changes() -> None:
    assert "One preset uses it: `deepseek-v3`." in section("attention", "mla")
    assert "No preset uses it." in section("ffn", "relu2")
    assert "In `gqa`, in the place of gqa; n_heads 8" in section("attention", "mha")
    assert "KV cache at 2,048 4.00x larger" in section("attention", "mha")
