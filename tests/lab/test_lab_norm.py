"""lab norm: sizes against depth, for every norm in every placement, and where float32 ends."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

from archlab import registry
from archlab.frozen import replace
from archlab.registry import choices


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


def test_a_norm_that_somebody_registered_is_tried_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(choices("norm")["rmsnorm"], name="mine")
    monkeypatch.setitem(registry._choices["norm"], "mine", own)
    made = table(lab("norm", *SMALL, "layers=2"))
    assert made["mine", "pre_norm"]["layer 2"] == pytest.approx(made["rmsnorm", "pre_norm"]["layer 2"])
