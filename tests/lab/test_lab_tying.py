"""lab tying: the vocabulary's share by hand, for the models of the study notes."""

from __future__ import annotations

import pytest
from asked import Lab, rows

OTHERS = 63_912_192 - 6400 * 768
"""MiniMind without its embedding."""


def test_minimind_at_three_vocabularies(lab: Lab) -> None:
    made = lab("tying")
    found = {(row["vocab"], row["head"]): row for row in rows(made, "tying")}
    assert list(found) == [(vocab, head) for vocab in (6400, 50257, 151936) for head in ("tied", "untied")]
    for (vocab, head), row in found.items():
        times = 1 if head == "tied" else 2
        table = vocab * 768
        assert (row["embedding"], row["lm_head"]) == (table, table if head == "untied" else 0)
        assert row["params"] == OTHERS + times * table
        assert row["share"] == pytest.approx(100 * times * table / (OTHERS + times * table))
        assert row["head_flops"] == 2 * table
        assert row["built"] == "yes"
    assert made["verdict"] == (
        "embedding and head at 6,400, 50,257, 151,936 tokens: tied 7.7 %, 39.5 %, 66.4 %; untied 14.3 %, 56.7 %, 79.8 %"
    )


def test_gpt2_shares_38597376(lab: Lab) -> None:
    tied, _ = rows(lab("tying", "model=gpt2", "vocabs=50257"), "tying")
    assert (tied["embedding"], tied["lm_head"]) == (38_597_376, 0)


def test_qwen3_8b_has_622329856_twice(lab: Lab) -> None:
    made = lab("tying", "model=qwen3-8b", "vocabs=151936")
    _, untied = rows(made, "tying")
    assert untied["embedding"] == untied["lm_head"] == 622_329_856
    assert made["verdict"].startswith("embedding and head at 151,936 tokens: tied 8.2 %; untied 15.2 %")
