"""The contract: archlab's own choices keep it, and each way to break it is told with both numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archlab
from archlab.cli.app import answer
from archlab.components.norm.spec import Norm
from archlab.components.tape import Activation, Tape
from archlab.decoder.resolve import resolve
from archlab.errors import ArchlabError, ConfigError
from archlab.inside.contract import base_of, contract, document, of_module

pytestmark = pytest.mark.usefixtures("own_choices")

OWN = [("ffn", "moe"), ("attention", "mla"), ("position", "t5"), ("head", "classification"), ("block", "parallel")]


@pytest.mark.parametrize(("axis", "name"), [pytest.param(*one, marks=pytest.mark.slow) for one in OWN[1:]] + OWN[:1])
def test_archlabs_own_choices_keep_it(axis: str, name: str) -> None:
    found = list(contract(axis, name))
    assert [check for check in found if not check["ok"]] == []
    assert len(found) >= 10
    archlab.check_component(axis, name)


class Weighted(nn.Module):
    def __init__(self, spec: Any, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(x)


class Says(Norm):
    """What `Weighted` costs."""

    def params(self, width: int) -> dict[str, int]:
        return {"weight": width}

    def on_tape(self, tape: Tape, x: Activation, heads: int | None = None) -> Activation:
        y = tape.like(x)
        tape.keep("norms", y)
        return tape.like(y)


class TooMany(Says):
    def params(self, width: int) -> dict[str, int]:
        return {"weight": width, "bias": width}


class TooLittle(Says):
    def on_tape(self, tape: Tape, x: Activation, heads: int | None = None) -> Activation:
        return tape.like(x)


def bring(axis: str, module: Any, **more: Any) -> None:
    archlab.component(axis, "mine", summary="for a test", **more)(module)


def broken(axis: str) -> dict[str, Any]:
    return {check["name"]: check for check in contract(axis, "mine") if not check["ok"]}


def test_a_spec_that_is_right_is_right() -> None:
    bring("norm", Weighted, spec=Says)
    assert broken("norm") == {}


def test_more_parameters_than_there_are() -> None:
    bring("norm", Weighted, spec=TooMany)
    found = broken("norm")
    (name,) = [name for name in found if name.startswith("parameters, norms, with ")]
    # two layers with two norms of 12 and two of 6 features for queries and keys, and a last one: 84 weights
    norms = 2 * (2 * 12 + 2 * 6) + 12
    assert (found[name]["expected"], found[name]["found"]) == (2 * norms, norms)
    with pytest.raises(ArchlabError, match=r"norm/mine: parameters, norms, with position none: 84, not 168"):
        archlab.check_component("norm", "mine")


def test_less_kept_than_autograd_keeps() -> None:
    bring("norm", Weighted, spec=TooLittle)
    (check,) = broken("norm").values()
    assert check["name"] == "bytes that training keeps, spec = autograd's"
    assert check["expected"] < check["found"]


class Attends(archlab.Attending):
    """One head over the input itself."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.o = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        x = x.unsqueeze(1)
        (seen,) = step.with_earlier(key=x)
        return self.finish(self.attend(x, seen, seen, step, 1.0))


class Forgets(Attends):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        x = x.unsqueeze(1)
        step.with_earlier(key=x)
        return self.finish(self.attend(x, x, x, archlab.Step(), 1.0))


class LooksAhead(Attends):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        x = x.unsqueeze(1)
        (seen,) = step.with_earlier(key=x)
        return self.finish(F.scaled_dot_product_attention(x, seen, seen))


class Draws(Attends):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        return super().forward(F.dropout(x, 0.5), step)


class Idle(Attends):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.unused = nn.Parameter(torch.zeros(3))


class Crashes(Attends):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        if x.dtype == torch.float64 and x.shape[1] == 1:
            raise IndexError("one token is too few")
        return super().forward(x, step)


@pytest.mark.parametrize(
    ("module", "part"),
    [
        (Attends, ""),
        (Forgets, "cached one token at a time = uncached"),
        (LooksAhead, "a later token changes no earlier logit"),
        (Draws, "eval gives the same twice, bit for bit"),
        (Idle, "tensors that the gradient reaches"),
        (Crashes, "a pass through the module"),
    ],
)
def test_what_a_module_must_not_do(module: Any, part: str) -> None:
    bring("attention", module)
    checks = of_module(resolve(base_of("attention", "mine")).spec)
    found = {check["name"]: check for check in checks if not check["ok"]}
    assert part in found if part else found == {}
    if part == "a pass through the module":
        assert found[part]["found"] == "IndexError: one token is too few"


def test_the_answer_has_a_line_a_part_and_the_first_difference() -> None:
    bring("attention", Forgets)
    answer = document("attention", "mine")
    assert answer.verdict.startswith("cached one token at a time = uncached: ")
    assert answer.assumptions["counted on the module"] == "parameters, FLOPs, KV cache, what training keeps"
    assert {row["ok"] for row in answer.tables[0].rows} == {"yes", "no"}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    bring("norm", Weighted, spec=Says)
    archlab.component("norm", "wrong", summary="for a test", spec=TooLittle)(Weighted)
    assert answer(["verify", "--component", "norm/mine"]) == 0
    assert "norm/mine  all 13 checks hold" in capsys.readouterr().out
    assert answer(["verify", "--component", "norm/wrong", "--json"]) == 1
    assert "bytes that training keeps" in json.loads(capsys.readouterr().out)["verdict"]
    for words, said in (
        (["--component", "norm/rmsnrm"], "no choice 'rmsnrm'; did you mean model/norm=rmsnorm?"),
        (["--component", "nrom/mine"], "no axis 'nrom'; did you mean norm?"),
        (["gqa", "--component", "norm/mine"], "leave out gqa"),
        ([], "name a model, or a choice by --component AXIS/CHOICE"),
    ):
        assert answer(["verify", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_module_that_cannot_be_tried_at_all() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat((x, x), -1)

    bring("norm", Wide)
    with pytest.raises(ConfigError, match=r"mine: its forward gives \[2, 8, 24\], not \[2, 8, 12\]"):
        list(contract("norm", "mine"))


def test_what_is_wrong_with_another_choice_of_others_is_not_told_of_this_one() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("of no business here")

    bring("norm", Weighted, spec=Says)
    archlab.component("ffn", "broken", summary="for a test")(Broken)
    assert broken("norm") == {}
