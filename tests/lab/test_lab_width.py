"""lab width: what a width costs by hand; the words for what the clock tells and what it does not."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

from archlab import host
from archlab.lab.width import _time


def test_2413_against_2432(lab: Lab) -> None:
    """pi x 768 = 2,412.7: 2,413, and up to a multiple of 64 2,432."""
    made = lab("width", "tokens=4", "seconds=0.02")
    found = rows(made, "width")
    assert [(row["work"], row["d_ff"]) for row in found] == [
        (work, width) for work in ("decode", "prefill", "train") for width in (2413, 2432)
    ]
    assert [row["params"] for row in found[:2]] == [3 * 768 * 2413, 5_603_328]
    assert [row["flops"] for row in found[:4]] == [2 * n * 3 * 768 * f for n in (1, 4) for f in (2413, 2432)]
    assert [row["even"] for row in found[:2]] == [1, 128]
    assert made["verdict"].startswith("2,432 has +0.79 % FLOPs and parameters of 2,413, and takes ")
    assert all(row["time"] > 0 and row["p10"] <= row["time"] <= row["p90"] for row in found)


@pytest.mark.parametrize(
    ("rule", "widths"),
    [(("model.ffn.rule=8/3",), [170, 192]), (("model.ffn.d_ff=100",), [99, 100]), (("widths=8,16,24",), [8, 16, 24])],
)
def test_which_widths(lab: Lab, rule: tuple[str, ...], widths: list[int]) -> None:
    """8/3 x 64 = 170.7."""
    made = rows(lab("width", *SMALL, *rule, "tokens=2", "seconds=0.01"), "width")
    assert [row["d_ff"] for row in made if row["work"] == "train"] == widths


@pytest.mark.slow
def test_four_times_the_width_takes_longer_and_the_sentence_says_so(lab: Lab) -> None:
    for _ in range(4):  # others on the machine may widen an interval beyond the factor; wrong it stays each time
        made = lab("width", "widths=1024,4096", "tokens=64", "seconds=1")
        assert "+300.00 %" in made["verdict"]
        told = [row["times"] - 1 > row["interval"] / 100 * row["times"] for row in rows(made, "width")[1::2]]
        assert made["verdict"].count(" x to ") == sum(told)
        if all(told):
            break
    assert all(told)


def test_a_machine_that_works_for_others_is_said_to(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.Busy, "elsewhere", lambda busy: 0.9 * busy.cpus)
    assert any("the machine was loaded" in note for note in lab("width", *SMALL, "tokens=2", "seconds=0.01")["notes"])
    assert not any("loaded" in note for note in lab("tying", *SMALL, "vocabs=10")["notes"])


@pytest.mark.parametrize(
    ("times", "interval", "said"),
    [
        (1.05, 2.0, "1.050 x to train"),
        (0.9, 2.0, "0.9 x to train"),
        (1.01, 2.0, "as long to train as the clock can tell"),
        (1.5, None, "as long to train as the clock can tell"),
    ],
)
def test_words_for_a_ratio(times: float, interval: float | None, said: str) -> None:
    assert _time({"work": "train", "times": times, "interval": interval}) == said
