"""The self-check of a model with choices of others: their FLOPs are held against torch's counter too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import archlab
from archlab import verify as verifying
from archlab.cli.app import answer
from archlab.components.attention.base import Attention
from archlab.components.ffn.spec import FFN
from archlab.components.head.spec import Head
from archlab.components.placed import Placed
from archlab.components.tape import Activation, Tape
from archlab.cost.flops import flops
from archlab.decoder.resolve import resolve
from archlab.inside.contract import BASE
from archlab.verify import verify

pytestmark = pytest.mark.usefixtures("own_choices")

D, HEADS_OUT, BATCH, PROMPT = 12, 3, 2, 7
SMALL = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.context=32", "model.attention.n_heads=4",
         "model.attention.head_dim=8", "bench=none")  # fmt: skip


class Square(nn.Module):
    """One matrix, d to d."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.m = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        y: Tensor = self.m(x)
        return y


class SquareNorm(nn.Module):
    """A norm with a product, which no norm has on paper."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.m = nn.Linear(features, features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.m(x)
        return y


class ToOutputs(Square):
    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return super().forward(x)[..., :HEADS_OUT]


class SaysNothing:
    """None of its FLOPs."""

    def flops(self, *_: int) -> int:
        return 0

    def decode_flops(self, *_: int) -> int:
        return 0


def wrong(axis: str) -> tuple[Any, Any]:
    """A module of an axis, and a spec that leaves out its FLOPs."""
    module = {"norm": SquareNorm, "head": ToOutputs}.get(axis, Square)
    base = {"ffn": FFN, "attention": Attention, "head": Head, "mixer": Placed}.get(axis)
    return module, None if base is None else type("Says", (SaysNothing, base), {})


def bring(axis: str, module: Any, spec: Any = None, name: str = "mine") -> dict[str, Any]:
    """A model with a choice of others on an axis."""
    archlab.component(axis, name, summary="for a test", spec=spec)(module)
    unturned = {"position": {"choice": "none"}} if axis == "attention" else {}
    return BASE | unturned | {axis: {**BASE.get(axis, {}), "choice": name}}


@pytest.mark.parametrize(
    ("axis", "times"), [("norm", 5 + 2 * 2), ("attention", 2), ("ffn", 2), ("mixer", 2), ("head", 1)]
)
def test_flops_that_a_spec_leaves_out_are_told_on_every_axis(axis: str, times: int) -> None:
    if axis == "mixer":
        archlab.place("mixer", before="ffn")
    layers = [{"dropout": {"p": 0.1}}, {"dropout": {"p": 0.2}}]  # two kinds, so that both layers are counted
    spec = resolve({**bring(axis, *wrong(axis)), "layers": layers}).spec
    bad = [one for one in verify(spec).checks if not one["ok"]]
    # 2 FLOPs a multiply-add; norms: five of d x d, and of queries (4 heads) and keys (2) 6 x 6 for each head
    products = 5 * D * D + 2 * (4 + 2) * 6 * 6 if axis == "norm" else times * D * D
    lacking = [one["found"] - one["expected"] for one in bad]
    assert lacking == [2 * BATCH * PROMPT * products, 2 * BATCH * products]
    assert all(f"{axis}/mine" in one["name"] for one in bad)


def test_what_is_counted_or_said_right_holds() -> None:
    for axis, module in (("attention", Square), ("ffn", Square), ("head", ToOutputs)):
        found = verify(resolve(bring(axis, module)).spec)
        assert [one["ok"] for one in found.checks] == [True] * 4
        assert found.notes == []


def test_archlabs_own_choices_are_counted_by_the_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "verify_flops", lambda *_: pytest.fail("FLOPs were counted"))
    archlab.place("mixer", before="ffn")  # idle in this model
    assert len(verify(resolve(BASE).spec).checks) == 2


def test_one_layer_of_each_kind_is_counted() -> None:
    model = bring("ffn", Square)
    found = verify(resolve({**model, "n_layers": 200}).spec).checks[2]
    assert found["name"] == "FLOPs of 7 tokens (ffn/mine; a layer of each kind): closed form = torch's counter"
    assert found["found"] == flops(resolve({**model, "n_layers": 1}).spec, BATCH, PROMPT, 0).total


@pytest.mark.parametrize(("context", "checks"), [(1, 3), (3, 4)])
def test_no_more_tokens_than_positions_reach(context: int, checks: int) -> None:
    model = {**bring("ffn", Square), "context": context, "position": {"choice": "learned"}}
    found = verify(resolve(model).spec)
    assert [one["ok"] for one in found.checks] == [True] * checks


class Looks(Square):
    """It asks what its input is, which nothing on the meta device can tell."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return super().forward(x) if bool(x.abs().max() < 1e9) else x


class Says(FFN):
    """All that `Square` costs."""

    def params(self) -> dict[str, int]:
        return {"m.weight": self.d_model**2}

    def flops(self, tokens: int) -> int:
        return 2 * tokens * self.d_model**2

    def on_tape(self, tape: Tape, x: Activation, dropout: float) -> Activation:
        tape.keep("ffn", x)
        return tape.like(x)


def test_what_cannot_run_without_values_is_a_note() -> None:
    found = verify(resolve(bring("ffn", Looks, Says)).spec)
    assert [one["ok"] for one in found.checks] == [True] * 2
    (note,) = found.notes
    assert note.startswith("FLOPs with ffn/mine are not checked: no pass on the meta device: ")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def built(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = answer(["build", *SMALL, *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("here")
def test_build_is_not_ok_with_flops_that_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    bring("ffn", *wrong("ffn"))
    code, record = built(capsys, "model/ffn=mine")
    assert (code, record["status"]) == (1, "failed")
    assert "FLOPs of 7 tokens (ffn/mine; a layer of each kind)" in record["reason"]
    code, record = built(capsys, "model/ffn=mine", "verify=false")
    assert (code, record["status"], record["checks"]) == (0, "ok", [])


@pytest.mark.usefixtures("here")
def test_build_says_what_it_could_not_check(capsys: pytest.CaptureFixture[str]) -> None:
    bring("ffn", Looks, Says)
    code, record = built(capsys, "model/ffn=mine")
    assert (code, record["status"]) == (0, "ok")
    assert any(note.startswith("FLOPs with ffn/mine are not checked") for note in record["notes"])
    assert answer(["verify", "--component", "ffn/mine", "--json"]) == 1  # which asks for all of it
    assert "a pass through the module" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_the_child_that_times_tells_of_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import archlab\nfrom archlab.components.ffn.spec import FFN\nfrom torch import nn\n\n"
        "class Says(FFN):\n    def flops(self, tokens):\n        return 0\n\n"
        "@archlab.component('ffn', 'mine', summary='for a test', spec=Says)\n"
        "class Mine(nn.Module):\n    def __init__(self, d_model):\n        super().__init__()\n"
        "        self.m = nn.Linear(d_model, d_model)\n\n    def forward(self, x):\n        return self.m(x)\n"
    )
    timed = (
        "bench=quick",
        "bench.phases=[decode]",
        "bench.seconds=0.05",
        "bench.ceilings=false",
        "workload.prompt=8",
    )
    code, record = built(capsys, "--plugin", str(plugin), "model/ffn=mine", "workload.new=2", *timed)
    assert (code, record["status"]) == (1, "failed")
    assert "FLOPs of 7 tokens (ffn/mine" in record["reason"]
    assert record["figures"]["decode_tok_s"]["value"] > 0
