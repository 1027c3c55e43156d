"""lab attention: a head's weights against the softmax worked out by hand; masks and sinks as they must be."""

from __future__ import annotations

import pytest
import torch
from asked import SMALL, Lab, rows

import archlab
from archlab.cli.app import answer
from archlab.decoder.build import build

PLAIN = ("model/position=none", "model.attention.qk_norm=none")


def test_weights_of_a_head(lab: Lab) -> None:
    """Head 5 of 8 with 2 KV heads reads KV head 1; softmax(q k / sqrt(8)) of the normed embeddings, keys before it."""
    made = lab("attention", *SMALL, *PLAIN, "head=5", "ids=3,1,4,1,5")
    decoder = build(archlab.load("gqa", *SMALL[1:], *PLAIN)).double()
    with torch.no_grad():
        x = decoder.layers[0].attention_norm(decoder.embedding(torch.tensor([3, 1, 4, 1, 5])))
        q, k, _ = (x @ decoder.layers[0].attention.qkv.weight.T).split([64, 16, 16], -1)
        scores = q[:, 40:48] @ k[:, 8:16].T / 8**0.5
    for query, row in enumerate(made["heatmaps"]["weights"]["rows"]):
        wanted = [float(share) for share in scores[query, : query + 1].softmax(-1)]
        assert row[: query + 1] == pytest.approx(wanted, abs=1e-6)
        assert row[query + 1 :] == [None] * (4 - query)
    assert [row["token"] for row in rows(made, "rows")] == [3, 1, 4, 1, 5]
    assert [row["keys"] for row in rows(made, "rows")] == [1, 2, 3, 4, 5]
    assert "all 5 rows sum to 1; 15 of 25 pairs are visible, no weight lies on the others" in made["verdict"]


def test_a_window_hides_what_is_further_back(lab: Lab) -> None:
    made = lab("attention", *SMALL, "model.attention.window=3", "tokens=6")
    assert [row["keys"] for row in rows(made, "rows")] == [1, 2, 3, 3, 3, 3]
    assert "15 of 36 pairs are visible" in made["verdict"]
    last = made["heatmaps"]["weights"]["rows"][-1]
    assert last[:3] == [None] * 3
    assert sum(last[3:]) == pytest.approx(1)


def test_what_a_sink_takes_is_missing_from_the_sum(lab: Lab) -> None:
    """Its logit is 0 before training, as near as nothing to the scores': about 1 of n + 1."""
    made = lab("attention", *SMALL, "model.attention.sinks=true", "tokens=4")
    for row in rows(made, "rows"):
        assert row["sum"] == pytest.approx(row["keys"] / (row["keys"] + 1), rel=0.02)
    assert "the rest falls to the sink" in made["verdict"]


def test_a_deeper_layer(lab: Lab) -> None:
    made = lab("attention", *SMALL, "layer=2", "tokens=5", "seed=3")
    assert made["assumptions"]["seed"] == 3
    assert "all 5 rows sum to 1" in made["verdict"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("layer=3",), "layer: 3 is not there; there are 3, 0 to 2"),
        (("head=8",), "head: 8 is not there; there are 8, 0 to 7"),
        (("ids=5,97",), "ids: 97 is not there; there are 97, 0 to 96"),
        (("tokens=65",), "tokens: 65 must be < 65"),
        (("weights=nowhere",), "nowhere"),
    ],
)
def test_what_is_not_there_is_one_message(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["lab", "attention", *SMALL, *words]) == 2
    assert said in capsys.readouterr().err
