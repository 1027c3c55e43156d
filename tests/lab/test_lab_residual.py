"""lab residual: the skip path by arithmetic, and gradients where only the skip path is left."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows


def by_scale(document: dict) -> dict[float, list[dict]]:
    found: dict[float, list[dict]] = {}
    for row in rows(document, "residual"):
        found.setdefault(row["scale"], []).append(row)
    return found


@pytest.mark.parametrize(("block", "sums"), [("pre_norm", 2), ("sandwich", 2), ("parallel", 1)])
def test_the_skip_path_is_scaled_at_each_sum(lab: Lab, block: str, sums: int) -> None:
    """Two residual sums a layer, one where attention and FFN stand side by side: scale^(2 L), scale^L."""
    made = by_scale(lab("residual", *SMALL, f"model/block={block}", "layers=8", "scales=1,0.1,0", "tokens=16"))
    for scale, found in made.items():
        assert [row["layer"] for row in found] == list(range(9))
        assert [row["skip"] for row in found] == pytest.approx([scale ** (sums * row["layer"]) for row in found])


def test_with_branches_that_add_nothing_the_gradient_is_scaled_on_its_way_back_too(lab: Lab) -> None:
    made = lab("residual", *SMALL, "model.block.branch_scale=0", "scales=1,0.5", "layers=4", "tokens=16")
    for scale, found in by_scale(made).items():
        assert [row["cosine"] for row in found] == pytest.approx([1.0] * 5)
        assert [row["gradient"] for row in found] == pytest.approx([scale ** (2 * (4 - k)) for k in range(5)], rel=1e-4)
    assert made["verdict"] == (
        "scale 1: skip paths alone bring 1.000 of the input to layer 4 (cosine 1.000), layer 1 gets 1.000 times "
        "the gradient of layer 4; scale 0.5: skip paths alone bring 0.003906 of the input to layer 4 (cosine 1.000), "
        "layer 1 gets 0.01562 times the gradient of layer 4"
    )


def test_a_scale_of_a_tenth_loses_the_input_and_one_keeps_more_of_it(lab: Lab) -> None:
    made = lab("residual", *SMALL, "layers=8")
    kept, lost, gone = (abs(found[-1]["cosine"]) for found in by_scale(made).values())
    assert kept > 5 * max(lost, gone)
    assert "scale 0.1: skip paths alone bring 1e-16 of the input to layer 8" in made["verdict"]


def test_no_gradient_at_all_is_said(lab: Lab) -> None:
    """Neither a skip path nor branches: the last stream is nothing, whatever went in."""
    made = lab("residual", *SMALL, "model.block.branch_scale=0", "scales=0", "tokens=8")
    assert "layer 1 gets none of the gradient of layer 3" in made["verdict"]
