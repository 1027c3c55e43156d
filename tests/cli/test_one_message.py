"""What torch or a module of others raises is one message, of what was asked for; `--debug` shows where it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import Tensor, nn

import archlab
from archlab.cli.app import answer
from archlab.components.ffn.spec import FeedForward
from archlab.errors import in_short

pytestmark = pytest.mark.usefixtures("own_choices")

BEYOND = "9" * 20
"""More than torch can count."""
LARGEST = ("model.vocab_size=2147483647", "model.d_model=2147483632")
"""An embedding with more bytes than that, of numbers that each may be."""
SMALL = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.context=32", "model.ffn.d_ff=16")
RAISES = ("model/ffn=raises", *SMALL)


@pytest.fixture(autouse=True)
def _raises(own_choices: None) -> None:
    """A choice that says all that it costs, and fails when it is run."""

    class Raises(nn.Module):
        def __init__(self, spec: Any) -> None:
            super().__init__()
            self.up = nn.Linear(spec.d_model, spec.d_ff, bias=spec.bias)
            self.down = nn.Linear(spec.d_ff, spec.d_model, bias=spec.bias)

        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("on purpose")

    fixed = {"activation": "relu", "gated": False}
    archlab.component("ffn", "raises", summary="for a test", spec=FeedForward, fixed=fixed)(Raises)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("shapes", "gqa", "--batch", BEYOND),
            2,
            "a pass of 99,999,999,999,999,999,999 x 128 tokens on the meta device",
        ),
        (("shapes", "gqa", "--context", "99999999999"), 2, "a pass of 2 x 99,999,999,999 tokens on the meta device"),
        (("shapes", "gqa", *LARGEST), 2, "a pass of 2 x 128 tokens on the meta device fails: "),
        (("shapes", "gqa", *RAISES), 2, "on the meta device fails: KeyError: 'on purpose'"),
        (("verify", "gqa", *LARGEST), 2, "gqa cannot be built on the meta device: "),
        (("lab", "residual", "model=gqa", *RAISES), 1, "KeyError: 'on purpose'; --debug shows where"),
    ],
)
def test_it_is_one_message(words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer([*words]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert answer([*words, "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err
    assert answer([*words, "--json"]) == code
    assert said.partition(";")[0] in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("words", [("gqa", *RAISES), ("--component", "ffn/raises")])
def test_a_pass_that_fails_is_a_check_that_does_not_hold(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["verify", *words, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["tables"]["checks"]["rows"]
    assert {row["check"]: row["found"] for row in rows if row["ok"] == "no"}["a pass through the module"] == (
        "KeyError: 'on purpose'"
    )


def test_of_torchs_message_its_own_stack_is_left_out() -> None:
    assert (
        in_short(RuntimeError("too large\nException raised from a at b.cpp:1\nframe #0: c"))
        == "RuntimeError: too large"
    )
