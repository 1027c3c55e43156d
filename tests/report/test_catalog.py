"""Components and presets as they are listed: nothing left out, numbers whole, the same in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

import pytest
from rich.console import Console
from torch import nn

import archlab
from archlab.compose import preset, summary
from archlab.errors import ConfigError
from archlab.record import Record
from archlab.registry import AXES, choices
from archlab.report.catalog import components_data, show_components
from archlab.report.models import show_models

Make = Callable[..., Record]
Paper = Callable[..., Console]

USERS = {("attention", "mqa"): ["tiny", "odd[bold]name"]}


def components(axis: str | None, console: Console) -> str:
    show_components(axis, USERS, console)
    return console.file.getvalue()


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_shows_all_about_each_choice(paper: Paper, axis: str) -> None:
    text = components(axis, paper())
    for name, chosen in choices(axis).items():
        row = next(line for line in text.splitlines() if line.split()[:1] == [name])
        assert chosen.summary in row
        assert chosen.formula in row
        for opt in chosen.options.values():
            rows = [line for line in text.splitlines() if line.split()[:1] == [opt.name]]
            assert any(opt.help in line and (opt.auto or "") in line for line in rows)
            assert all(str(word) in text for word in opt.valid or ())


def test_who_uses_a_choice_and_what_it_fixes(paper: Paper) -> None:
    assert "fixes n_kv_heads 1; used by tiny, odd[bold]name" in components("attention", paper())


def test_an_option_of_which_nothing_is_said(paper: Paper, own_choices: None) -> None:
    class Theirs(nn.Module):
        def __init__(self, features: int, *, side: Literal["in", "out"] = "in") -> None:
            super().__init__()

    archlab.component("norm", "theirs", summary="for a test")(Theirs)
    (line,) = [line for line in components("norm", paper(120)).splitlines() if line.strip().startswith("side")]
    assert " ".join(line.split()) == "side in in, out; of theirs"


def test_without_an_axis_all_are_listed(paper: Paper) -> None:
    text = components(None, paper(80))
    assert not text.startswith("\n")
    assert all(f"\n{axis}\n" in f"\n{text}" for axis in AXES)
    assert all(f"  {name}" in text for axis in AXES for name in choices(axis))
    assert max(map(len, text.splitlines())) <= 80


def test_an_unknown_axis(paper: Paper) -> None:
    with pytest.raises(ConfigError, match="did you mean attention"):
        components("atention", paper())


def test_components_as_data() -> None:
    data = json.loads(json.dumps(components_data(None, USERS)))
    assert {axis: list(found) for axis, found in data["axes"].items()} == {axis: list(choices(axis)) for axis in AXES}
    mqa = data["axes"]["attention"]["mqa"]
    assert mqa["used_by"] == ["tiny", "odd[bold]name"]
    assert mqa["fixed"] == {"n_kv_heads": 1}
    assert mqa["options"]["qk_norm"]["valid"] == ["none", "head", "full", "per_head"]
    assert mqa["options"]["n_heads"] == {
        "help": "query heads",
        "values": "whole number >= 1",
        "required": True,
        "ge": 1,
    }
    assert list(components_data("norm", {})["axes"]) == ["norm"]


MINIMIND = {
    "name": "minimind",
    "params": 63_912_192,
    "params_non_embedding": 58_996_992,
    "kv_bytes_per_token": 12_288,
    "kv_dtype": "bf16",
    "context": 32_768,
    "choices": "gqa 8/4, rope, swiglu, rmsnorm, tied",
}


@pytest.mark.parametrize("width", [None, 60, 120, 200])
def test_models_show_whole_totals(paper: Paper, width: int | None) -> None:
    console = paper(width)
    show_models([{**MINIMIND, "about": "64 M"}, {**MINIMIND, "name": "[red]wide", "about": ""}], console)
    words = console.file.getvalue().split()
    assert {"63,912,192", "58,996,992", "12,288", "32,768", "63.91", "[red]wide"} <= set(words)
    assert "bf16" in words


def test_a_preset_in_one_row() -> None:
    row = summary("minimind")
    assert row == {**MINIMIND, "about": preset("minimind")["about"]}
    assert summary("gemma-2-2b")["choices"].endswith("2 kinds of layer")
