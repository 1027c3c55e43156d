"""lab order: without a mask and without positions the output is only permuted; each other way shows the order."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

import archlab
from archlab import host
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError
from archlab.lab import order
from archlab.lab.setup import variant
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


def test_no_more_is_held_than_the_tried_weights(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a long context are not made for 16 tokens, learned or fixed: of DeepSeek-V3's they took 20 GB."""
    made: dict[str, int] = {}

    def noted(decoder: Decoder, spec: DecoderSpec, seed: int) -> Decoder:
        other = variant(decoder, spec, seed)
        tables = (table for position in other.positions for table in getattr(position, "tables", ()))
        made[spec.position.choice] = sum(tensor.numel() for tensor in (*other.parameters(), *tables))
        return other

    monkeypatch.setattr(order, "variant", noted)
    words = [word for word in SMALL if not word.startswith("model.context")]
    lab("order", *words, "model.context=100000")
    assert set(made) == set(choices("position"))
    d_model = archlab.load("gqa", *words).d_model
    assert max(made.values()) <= made["none"] + 16 * d_model


def test_a_machine_that_holds_the_weights_once_is_enough(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for gradients; half of what is free may be taken, and float64 has 8 bytes a number."""
    one_layer = archlab.parameters(archlab.load("gqa", *SMALL, "model.n_layers=1")).total
    monkeypatch.setattr(host, "available_memory", lambda: 2 * 8 * one_layer)
    assert lab("order", *SMALL, "layers=1")["assumptions"]["tried"].endswith("float64")
    monkeypatch.setattr(host, "available_memory", lambda: 2 * 8 * one_layer // 2)
    with pytest.raises(RequestError, match=r"one layer of gqa .* takes 428,032 B, and 214,016 B may be taken here"):
        lab("order", *SMALL)
