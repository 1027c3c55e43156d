"""Every choice is explained, by words that any terminal shows and papers that can be looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from archlab import papers, registry
from archlab.meaning import AXIS, Meaning, _meanings, explain, meaning
from archlab.options import Spec
from archlab.papers import Paper
from archlab.registry import AXES, choices, register
from archlab.subjects import FIGURES

CHOICES = [(axis, name) for axis in AXES for name in choices(axis)]
PAPERS = [paper for paper in vars(papers).values() if isinstance(paper, Paper)]


def lacking(said: Meaning) -> list[str]:
    """What an explanation does not say and should."""
    words = {"what": said.what, "why": said.why, "formula": said.formula, "sources": said.sources}
    return [name for name, value in words.items() if not value]


@pytest.mark.parametrize(("axis", "name"), CHOICES)
def test_every_choice_says_what_it_is_why_its_formula_and_where_it_is_from(axis: str, name: str) -> None:
    assert lacking(meaning(axis, name)) == []


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_says_what_it_is_for(axis: str) -> None:
    assert set(lacking(meaning(axis, AXIS))) <= {"formula"}


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_says_what_it_is(figure: str) -> None:
    assert "what" not in lacking(FIGURES[figure])


def every_meaning() -> Iterator[Meaning]:
    yield from (meaning(axis, name) for axis, name in [*CHOICES, *((axis, AXIS) for axis in AXES)])
    yield from FIGURES.values()


def test_words_are_plain_and_in_whole_sentences() -> None:
    for said in every_meaning():
        for text in filter(None, (said.what, said.why)):
            assert text.isascii(), text
            assert "  " not in text, text
            assert text[0].isupper(), text
            assert text.endswith("."), text
        assert not isinstance(said.formula, str) or said.formula.isascii()


def test_papers_are_cited_by_author_and_year_and_by_a_number_of_that_year() -> None:
    """An arXiv number begins with the year and month of the first version, which may be the January after."""
    cited = {(paper.authors, paper.title) for said in every_meaning() for paper in said.sources}
    assert cited == {(paper.authors, paper.title) for paper in PAPERS}  # none is idle, none is made elsewhere
    for paper in PAPERS:
        assert 1900 < paper.year < 2100
        if paper.arxiv is not None:
            month, _, number = paper.arxiv.partition(".")
            assert len(month) == 4
            assert 1 <= int(month[2:]) <= 12
            assert len(number) == (4 if int(month) < 1501 else 5)
            assert 2000 + int(month[:2]) - paper.year in (0, 1)
    numbers = [paper.arxiv for paper in PAPERS if paper.arxiv]
    assert len(numbers) == len(set(numbers))


def test_how_a_paper_reads() -> None:
    text = str(papers.ROPE.at("eq. 34"))
    assert text == (
        "Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864, eq. 34"
    )
    assert str(papers.GPT) == (
        "Radford et al. 2018, Improving Language Understanding by Generative Pre-Training"
    )  # of no arXiv


class OwnNorm(Spec):
    """A norm of somebody's own, said in
    two lines.

    What comes after the first paragraph is for who reads the code.
    """


@pytest.fixture
def own() -> Iterator[str]:
    register("norm", "own", OwnNorm, summary="somebody's own", formula="0")
    yield "own"
    del registry._choices["norm"]["own"]


def test_a_choice_that_nobody_explained_says_what_its_class_says(own: str) -> None:
    said = meaning("norm", own)
    assert said.what == "A norm of somebody's own, said in two lines."
    assert lacking(said) == ["why", "formula", "sources"]


def test_a_choice_without_words_says_its_summary(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnNorm, "__doc__", None)
    assert meaning("norm", own).what == "somebody's own"


def test_somebody_else_explains_a_choice(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archlab.meaning._meanings", dict(_meanings))
    explain("norm", own, what="It is mine.", why="I want it.", formula="y = x", sources=[Paper("Me", 2026, "Mine")])
    assert lacking(meaning("norm", own)) == []
    assert str(meaning("norm", own).sources[0]) == "Me 2026, Mine"
