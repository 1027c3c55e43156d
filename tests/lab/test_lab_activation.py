"""lab activation: values, slopes and gates by hand; units that die by the kind of curve."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from asked import SMALL, Lab, rows

from archlab.lab.words import others
from archlab.registry import choices


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


CURVES: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(0.0, x),
    "relu2": lambda x: max(0.0, x) ** 2,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": tanh_gelu,
}
POINTS = ("-2", "-1", "1", "2")


def test_curves_and_slopes(lab: Lab) -> None:
    """SiLU of -2, -1, 1, 2: -0.2384, -0.2689, 0.7311, 1.7616; GELU and its tanh form are at most 4.7e-4 apart."""
    made = lab("activation", *SMALL)
    values = {name: row for row in rows(made, "values") for name in row["ffn"].split(", ")}
    slopes = {name: row for row in rows(made, "slopes") for name in row["ffn"].split(", ")}
    assert [round(values["silu"][x], 4) for x in POINTS] == [-0.2384, -0.2689, 0.7311, 1.7616]
    for name, curve in CURVES.items():
        assert [values[name][x] for x in POINTS] == pytest.approx([curve(float(x)) for x in POINTS])
        rise = [(curve(float(x) + 1e-6) - curve(float(x) - 1e-6)) / 2e-6 for x in POINTS]
        assert [slopes[name][x] for x in POINTS] == pytest.approx(rise, abs=1e-6)
    assert values["silu"] is values["swiglu"]  # one curve under both names
    assert round(values["gelu"]["gap"], 5) == 0.00047
    assert values["gelu"]["gap"] == pytest.approx(
        max(abs(CURVES["gelu"](x / 1000) - tanh_gelu(x / 1000)) for x in range(-6000, 6001)), rel=1e-3
    )
    assert "gelu, geglu and gelu_bloom lie within 4.7e-04" in made["verdict"]


def test_gates(lab: Lab) -> None:
    """SiLU(2) x 3 = 5.285 and SiLU(-2) x 3 = -0.715."""
    told = {(row["ffn"], row["gate"]): row["output"] for row in rows(lab("activation", *SMALL), "gated")}
    assert [round(told["swiglu", gate], 3) for gate in (2, -2)] == [5.285, -0.715]
    assert told["reglu", 2] == 6
    assert told["geglu", 2] == pytest.approx(3 * CURVES["gelu"](2))


def test_units_die_where_a_curve_is_flat(lab: Lab) -> None:
    made = lab("activation", "model=gqa", "model.d_model=256")
    dead = {row["ffn"]: row for row in rows(made, "dead")}
    assert set(dead) == set(choices("ffn")) - {"moe"}
    for name in ("relu", "relu2", "reglu"):
        assert dead[name]["after"] > dead[name]["before"] > 1
        assert f"{name} {dead[name]['after']:.1f} %" in made["verdict"]
    for name in ("gelu", "silu", "swiglu"):
        assert (dead[name]["before"], dead[name]["after"]) == (0, 0)
    assert made["notes"] == ["moe: has no single curve between two projections"]


def test_a_small_rate_kills_no_more_and_one_too_large_diverges(lab: Lab) -> None:
    still = rows(lab("activation", *SMALL, "steps=0"), "dead")
    assert all(row["before"] == row["after"] and row["loss"] is None for row in still)
    assert "diverged)" in lab("activation", *SMALL, "rate=1e6")["verdict"]


def test_one_that_is_left_is_no_others() -> None:
    assert [others(count) for count in (1, 2)] == ["the other one", "the 2 others"]
