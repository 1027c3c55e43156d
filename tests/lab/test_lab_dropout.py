"""lab dropout: shares, means and squares at each place within what chance leaves; eval as if there were none."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

GPT2 = ("model=gpt2", "model.d_model=96", "model.n_layers=2", "model.vocab_size=97")
PLACES = ("embedding", "attention", "residual", "ffn", "output")


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_each_place(lab: Lab, p: float) -> None:
    """Zero with p, the rest times 1 / (1 - p): the mean stays, the mean square is 1 / (1 - p) times as large.

    64 draws of 64 tokens; attention weights, few of which are large, are known least: to some per cent.
    """
    made = lab("dropout", *SMALL, f"p={p}")
    found = {row["place"]: row for row in rows(made, "dropout")}
    assert tuple(found) == PLACES
    for row in found.values():
        assert (row["model"], row["rate"]) == (0, p)
        assert row["zeros"] == pytest.approx(100 * p, abs=0.5)
        assert row["mean"] == pytest.approx(1, abs=0.05)
        assert row["square"] == pytest.approx(1 / (1 - p), rel=0.05)
        assert (row["training"], row["eval"]) == ("differ", "equal")
    assert "two training passes differ, two eval passes are equal; the model itself drops nowhere" in made["verdict"]


def test_the_first_four_places_are_gpt2s_own(lab: Lab) -> None:
    made = lab("dropout", *GPT2, "model.dropout.ffn=0.3")
    assert [row["model"] for row in rows(made, "dropout")] == [0.1, 0.1, 0.1, 0.3, 0]
    assert [row["rate"] for row in rows(made, "dropout")] == [0.1, 0.1, 0.1, 0.3, 0.1]
    assert [round(row["zeros"]) for row in rows(made, "dropout")] == [10, 10, 10, 30, 10]
    assert made["verdict"].endswith("the model drops at embedding, attention, residual and ffn")


def test_nothing_is_dropped_at_a_rate_of_0(lab: Lab) -> None:
    made = lab("dropout", *SMALL, "p=0")
    for row in rows(made, "dropout"):
        assert (row["zeros"], row["training"], row["eval"]) == (0, "equal", "equal")
        assert row["mean"] == row["square"] == pytest.approx(1)
    assert "two training passes are equal" in made["verdict"]
