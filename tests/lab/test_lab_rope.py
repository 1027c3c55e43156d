"""lab rope: frequencies, angles and scores against the numbers of the study notes and against plain arithmetic."""

from __future__ import annotations

import math

import pytest
from asked import SMALL, Lab, rows

from archlab.cli.app import answer


def test_minimind_and_base_10000(lab: Lab) -> None:
    """hd 96 at base 10^6: 1, 0.7499, 0.5623, .. 1.334e-6; at 10^4 the slowest pair turns once in 51,862 tokens."""
    made = lab("rope")
    pairs = {(row["rotation"], row["pair"]): row for row in rows(made, "pairs")}
    own = {pair: row["frequency"] for (name, pair), row in pairs.items() if name == "rope, base 1,000,000"}
    assert own[0] == 1
    assert [round(own[pair], 4) for pair in (1, 2)] == [0.7499, 0.5623]
    assert own[47] == pytest.approx(1.334e-6, rel=1e-3)
    assert pairs["rope, base 10,000", 47]["wavelength"] == pytest.approx(2 * math.pi * 10_000 ** (94 / 96))
    turned = {(row["rotation"], row["context"]): row["wrapped"] for row in rows(made, "contexts")}
    assert turned["rope, base 10,000", 131_072] == 48
    for (name, context), wrapped in turned.items():
        base = float(name.rpartition(" ")[2].replace(",", ""))
        assert wrapped == sum(context * base ** (-2 * i / 96) >= 2 * math.pi for i in range(48))
    assert "all 48 from 51,862 on (the slowest: 0.632 of a turn)" in made["verdict"]
    assert "all 48 from 4,711,725 on" in made["verdict"]
    assert "12.00 MiB for 32,768 positions in float32, one angle a pair; 24.00 MiB" in made["assumptions"]["tables"]


def test_128_features_at_base_10000(lab: Lab) -> None:
    made = lab("rope", *SMALL, "model.attention.head_dim=128", "bases=1e4")
    assert [round(row["frequency"], 3) for row in rows(made, "pairs")[:3]] == [1, 0.866, 0.750]


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_two_pairs_at_distances_1_and_7(lab: Lab, layout: str) -> None:
    """q = k = (1, 0, 1, 0), w = (1, 0.1): cos 1 + cos 0.1 = 1.5353 and cos 7 + cos 0.7 = 1.5187."""
    sizes = ("model.attention.head_dim=4", "model.position.base=100", f"model.position.layout={layout}")
    made = lab("rope", *SMALL, *sizes, "bases=100", "distances=1,7", "positions=7")
    assert [round(row["score"], 4) for row in rows(made, "scores")] == [1.5353, 1.5187]
    fast = rows(made, "turned")[0]
    assert (fast["position"], fast["angle"], round(fast["rest"], 3)) == (7, 7, 0.717)
    assert round(fast["cos"], 3) == 0.754
    assert fast["sin"] == pytest.approx(math.sin(7), abs=1e-6)


def test_scores_are_sums_of_cosines(lab: Lab) -> None:
    made = lab("rope", *SMALL, "distances=3,50,1000")
    for row in rows(made, "scores"):
        base = float(row["rotation"].rpartition(" ")[2].replace(",", ""))
        wanted = sum(math.cos(row["distance"] * base ** (-2 * i / 8)) for i in range(4))
        assert row["score"] == pytest.approx(wanted, abs=1e-4)  # angles of 1,000 rad in float32


def test_a_context_in_which_all_pairs_wrap_is_said_to_be_one(lab: Lab) -> None:
    made = lab("rope", *SMALL, "model.context=65536", "bases=1e4")
    assert made["verdict"] == "rope, base 10,000: 4 pairs have wrapped at 65,536 tokens, all 4 from 6,284 on"


def test_kinds_of_layers_each_have_their_rotation(lab: Lab) -> None:
    names = {row["rotation"] for row in rows(lab("rope", "model=gemma-3-1b", "distances=1", "positions=0"), "pairs")}
    assert {"rope, base 10,000", "rope, base 1,000,000"} <= names


def test_a_model_that_turns_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["lab", "rope", "model=gpt2"]) == 2
    assert "gpt2 turns nothing: its positions are learned" in capsys.readouterr().err
