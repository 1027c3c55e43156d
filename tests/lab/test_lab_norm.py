"""lab norm: sizes against depth, for every norm in every placement, and where float32 ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from asked import SMALL, Lab, rows

from archlab import registry
from archlab.frozen import replace
from archlab.registry import choices

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def table(document: dict) -> dict[tuple[str, str], dict]:
    return {(row["norm"], row["block"]): row for row in rows(document, "norm")}


def test_every_norm_in_every_placement(lab: Lab) -> None:
    made = lab("norm", *SMALL)
    found = table(made)
    assert list(found) == [(norm, block) for norm in choices("norm") for block in choices("block")]
    for norm in ("layernorm", "rmsnorm"):
        post, pre = found[norm, "post_norm"], found[norm, "pre_norm"]
        assert [post[f"layer {layer}"] for layer in (1, 2, 4, 8)] == pytest.approx([1.0] * 4, abs=1e-3)
        sizes = [pre[f"layer {layer}"] for layer in (1, 2, 4, 8)]
        assert 1 < sizes[0] < sizes[1] < sizes[2] < sizes[3] < 10  # a sum of terms of about the same size
        assert pre["finite"] is None
    bare = found["none", "pre_norm"]
    assert bare["layer 4"] > 10 * bare["layer 1"]
    assert (bare["layer 8"], bare["gradient"]) == (None, None)
    assert f"none overflows after layer {bare['finite']}" in made["verdict"]
    assert made["verdict"].startswith("RMS over 8 layers of pre_norm: layernorm ")


def test_small_weights_overflow_nowhere_without_a_norm_and_the_sentence_says_so(lab: Lab) -> None:
    made = lab("norm", *SMALL, "gain=0.1", "layers=4")
    assert table(made)["none", "pre_norm"]["finite"] is None
    assert "overflow" not in made["verdict"]


@pytest.mark.slow
def test_a_norm_of_a_plugin_is_tried_too_and_keeps_what_its_constructor_gave_it() -> None:
    """tanh(x / 2) is below 1 and not 0; the weights beside it are the same, whichever norm is the model's own."""
    found = []
    for own in ("rmsnorm", "dyt"):
        words = ("norm", "--plugin", str(EXAMPLES / "dyt.py"), *SMALL, f"model/norm={own}", "layers=2", "--json")
        done = subprocess.run(
            [sys.executable, "-m", "archlab", "lab", *words], capture_output=True, text=True, check=True
        )
        found.append(table(json.loads(done.stdout)))
    for block in choices("block"):
        first, second = (made["dyt", block] for made in found)
        assert first["layer 2"] == pytest.approx(second["layer 2"])
    assert first["layer 2"] > 0
    assert 0 < found[0]["dyt", "post_norm"]["layer 2"] < found[0]["dyt", "post_norm"]["layer 1"] < 1


def test_a_norm_that_somebody_registered_is_tried_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(choices("norm")["rmsnorm"], name="mine")
    monkeypatch.setitem(registry._choices["norm"], "mine", own)
    made = table(lab("norm", *SMALL, "layers=2"))
    assert made["mine", "pre_norm"]["layer 2"] == pytest.approx(made["rmsnorm", "pre_norm"]["layer 2"])
