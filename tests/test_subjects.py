"""What may be explained, by its name: one thing, or an error that says which there are."""

from __future__ import annotations

import pytest

from archlab import presets
from archlab.compose import load, request
from archlab.cost.figures import exact_figures
from archlab.errors import ConfigError
from archlab.record import SHORT
from archlab.registry import AXES, choices
from archlab.subjects import AXIS, CHOICE, FIGURE, Subject, meant, names, subject
from archlab.workload import Workload


def test_axes_choices_and_figures() -> None:
    assert subject("attention") == Subject(AXIS, "attention")
    assert subject("rope") == Subject(CHOICE, "position", "rope")
    assert subject("model/ffn/gelu") == subject("ffn/gelu") == Subject(CHOICE, "ffn", "gelu")
    assert subject("kv") == subject("kv_bytes_per_token") == Subject(FIGURE, name="kv_bytes_per_token")
    assert subject("norm/none").axis == "norm"


def test_everything_that_is_listed_is_one_thing() -> None:
    listed = list(names())
    assert len(listed) == len(set(listed))
    for name in listed:
        subject(name)
    assert {f"{axis}/{name}" for axis in AXES for name in choices(axis)} <= {
        f"{found.axis}/{found.name}" for found in map(subject, listed) if found.kind == CHOICE
    }
    assert set(SHORT) <= set(listed)


def test_a_name_that_several_have() -> None:
    with pytest.raises(ConfigError, match="3 axes; valid: norm/none, position/none, dropout/none"):
        subject("none")


@pytest.mark.parametrize(
    ("name", "near"),
    [("ropee", "rope"), ("atention", "attention"), ("ffn/gele", "model/ffn=gelu"), ("flop", "flops"), ("mfuu", "mfu")],
)
def test_a_name_that_nothing_has(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean {near}\?"):
        subject(name)


def test_an_axis_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="did you mean attention"):
        subject("atention/gqa")


@pytest.mark.parametrize("preset", presets.names())
def test_every_exact_figure_of_every_preset_is_explained(preset: str) -> None:
    for figure in exact_figures(load(preset), Workload()):
        assert meant(figure) is not None, figure


def test_figures_of_a_budget_of_a_compiled_run_and_of_cuda_are() -> None:
    asked = request("gqa", budget={"params": "39M", "solve": "d_ff"})
    assert "budget_params" in asked.figures()
    more = ("decode_compile_seconds", "train_recompiles", "prefill_peak_reserved_bytes", "train_mbu_datasheet")
    for figure in (*asked.figures(), *more):
        assert meant(figure) is not None, figure


def test_a_figure_is_explained_under_its_own_name_before_that_of_its_kin() -> None:
    found = {name: meant(name) for name in ("params", "params.ffn", "params.ffn.router", "params.layers.0-7")}
    assert found == {
        "params": "params",
        "params.ffn": "params.ffn",
        "params.ffn.router": "params.ffn.",
        "params.layers.0-7": "params.layers.",
    }
    assert meant("decode_mfu_datasheet") == "mfu_datasheet"
    assert meant("ceiling_read.decode") == meant("ceiling_read") == "ceiling_read."
    assert meant("budget_residual") == "budget_"
    assert meant("params.nothing") is None
