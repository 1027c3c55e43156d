"""lab order: without a mask and without positions the output is only permuted; each other way shows the order."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

from archlab.registry import choices


def permuted(document: dict, mask: str) -> list[str]:
    return [row["position"] for row in rows(document, "order") if (row["mask"], row["only_permuted"]) == (mask, "yes")]


def test_every_position_choice_with_and_without_a_mask(lab: Lab) -> None:
    made = lab("order", *SMALL)
    assert [row["position"] for row in rows(made, "order")][::2] == list(choices("position"))
    assert permuted(made, "none") == ["none"]
    assert permuted(made, "the model's") == []
    others = len(choices("position")) - 1
    assert made["verdict"] == (
        f"without a mask the output is only permuted with position none; with the {others} others order shows; "
        f"with the model's mask order shows with each of the {others + 1} position choices"
    )


def test_a_window_of_one_token_hides_the_order_from_all_that_tell_distances(lab: Lab) -> None:
    """A query that sees itself alone is at distance 0; what is added to the embedding still shows."""
    made = lab("order", *SMALL, "model.attention.window=1")
    assert set(choices("position")) - set(permuted(made, "the model's")) == {"learned", "sinusoidal"}
    assert "with the 2 others order shows" in made["verdict"].split("with the model's mask")[1]


def test_positions_that_do_not_reach_are_a_note(lab: Lab) -> None:
    made = lab("order", *SMALL, "model.context=8", "tokens=12")
    assert "learned" not in [row["position"] for row in rows(made, "order")]
    assert any(note.startswith("position learned cannot be had: positions end at 8") for note in made["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["mha", "mqa", "mla"])
def test_other_attentions(lab: Lab, attention: str) -> None:
    assert permuted(lab("order", *SMALL, f"model/attention={attention}"), "none") == ["none"]


def test_a_choice_is_made_in_layers_that_name_another_too(lab: Lab) -> None:
    """As in Gemma 3, whose windows have a rotation of their own: without positions there has to be none at all."""
    made = lab("order", *SMALL, "model.layers=[{position: {choice: rope, base: 100}}, {}]")
    assert made["verdict"].startswith("without a mask the output is only permuted with position none; ")
    gaps = {row["position"]: row["gap"] for row in rows(made, "order") if row["mask"] == "none"}
    assert gaps["none"] < 1e-12 < gaps["rope"]
