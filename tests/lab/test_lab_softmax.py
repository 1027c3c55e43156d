"""lab softmax: the probabilities of the study notes, overflow, and the size of scores."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows


def test_temperature_and_large_logits(lab: Lab) -> None:
    """Of softmax(z / T), z = [2, 1, 0], and of a softmax whose maximum is subtracted; rounded as printed there."""
    made = lab("softmax", *SMALL, "samples=64")
    told = {row["temperature"]: [round(row[z], 3) for z in "210"] for row in rows(made, "temperature")}
    assert told == {1.0: [0.665, 0.245, 0.090], 0.5: [0.867, 0.117, 0.016], 2.0: [0.506, 0.307, 0.186]}
    large = {(row["way"], row["dtype"]): [row[z] for z in ("1000", "1000.1", "1000.2")] for row in rows(made, "large")}
    assert [round(share, 3) for share in large["stable", "fp32"]] == [0.301, 0.332, 0.367]
    assert large["naive", "fp32"] == [None, None, None]
    assert "e^z overflows in fp32, bf16 and fp16" in made["verdict"]
    assert "bf16 and fp16 cannot tell the logits apart" in made["verdict"]


def test_small_logits_overflow_nowhere_and_the_sentence_says_so(lab: Lab) -> None:
    made = lab("softmax", *SMALL, "samples=64", "large=1,2", "temperatures=1")
    assert "e^z overflows in no dtype, with the maximum subtracted all are numbers" in made["verdict"]
    assert "cannot tell" not in made["verdict"]


def test_logits_that_overflow_half_precision_alone(lab: Lab) -> None:
    """The largest number of IEEE half precision is 65,504 = e^11.09; bfloat16 reaches as far as float32."""
    made = lab("softmax", *SMALL, "samples=64", "large=12,10")
    assert "e^z overflows in fp16," in made["verdict"]


@pytest.mark.parametrize(
    ("scale", "after"), [((), 1.0), (("model.attention.scale=0.5",), 11.31 / 2)], ids=["1/sqrt(hd)", "another scale"]
)
def test_scores_of_128_features_have_a_standard_deviation_of_its_root(
    lab: Lab, scale: tuple[str, ...], after: float
) -> None:
    made = lab("softmax", *SMALL, "model.attention.head_dim=128", *scale, "samples=2048")
    raw, scaled = rows(made, "scores")
    assert raw["std"] == pytest.approx(128**0.5, rel=0.01)  # of 4 M products of 4,096 vectors
    assert scaled["std"] == pytest.approx(after, rel=0.01)
    assert f"11.3, {after:.1f} once scaled" in made["verdict"]
    assert scaled["perplexity"] > raw["perplexity"]
