"""lab extrapolation: pairs that go beyond the angles of training, counted by walking through the positions."""

from __future__ import annotations

import math

from asked import SMALL, Lab, rows

TURN = 2 * math.pi


def test_trained_at_340_run_at_2048_and_8192(lab: Lab) -> None:
    made = lab("extrapolation")
    found = {(row["position"], row["tokens"]): row for row in rows(made, "angles")}
    frequencies = [1e6 ** (-2 * i / 96) for i in range(48)]
    never_whole = [w for w in frequencies if 340 * w < TURN]
    for tokens in (2048, 8192):
        row = found["rope", tokens]
        assert row["pairs"] == 48
        assert row["whole_turns"] == 48 - len(never_whole) == 14
        assert row["beyond"] == sum(max(n * w for n in range(tokens)) > 340 * w for w in never_whole) == 34
        assert row["farthest"] == max(min((tokens - 1) * w, TURN) / (340 * w) for w in never_whole)
        assert [found[name, tokens]["beyond"] for name in ("linear", "yarn", "llama3", "longrope")] == [0, 0, 0, 0]
        grown = 1e6 * (tokens / 340) ** (96 / 94)  # dynamic NTK: the slowest pair is divided by the stretch
        ntk = [(tokens - 1) * grown ** (-2 * i / 96) for i in range(48)]
        assert found["ntk", tokens]["beyond"] == sum(
            min(angle, TURN) > 340 * w for angle, w in zip(ntk, frequencies, strict=True) if w in never_whole
        )
    assert "rope 34 and 34 (up to 24.09 times), linear 0 and 0, ntk " in made["verdict"]


def test_no_angle_is_new_within_the_length_of_training(lab: Lab) -> None:
    made = lab("extrapolation", *SMALL, "trained=4096", "lengths=4096")
    assert {row["beyond"] for row in rows(made, "angles")} == {0}
    assert "at 4,096: rope 0, linear 0, ntk 0, yarn 0, llama3 0, longrope 0" in made["verdict"]


def test_a_model_without_rotation_is_asked_about_plain_ones(lab: Lab) -> None:
    made = lab("extrapolation", "model=gpt2")
    assert made["assumptions"]["trained"] == "with plain rotation, base 10,000"
    assert {row["position"] for row in rows(made, "angles")} == {"rope", "linear", "ntk", "yarn", "llama3", "longrope"}
