"""lab flash: bytes of the scores, outputs that agree, memory as the allocator counts it, and the online softmax."""

from __future__ import annotations

import math

import pytest
from asked import SMALL, Lab, rows

from archlab.cli.app import answer
from archlab.lab import flash

LONG = ("lengths=64,256",)
QUICK = ("lengths=16", "keys=96", "block=16")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "SECONDS", 0.02)


def test_the_scores_of_a_head(lab: Lab) -> None:
    """2,048^2 in fp16 are 8 MiB a head, 4,096^2 are 32 MiB."""
    made = lab("flash", *SMALL, *QUICK)
    counted = {row["context"]: row for row in rows(made, "scores")}
    assert [counted[n]["a_head"] for n in (2048, 4096)] == [8 * 2**20, 32 * 2**20]
    assert counted[2048]["a_layer"] == 8 * 8 * 2**20
    assert counted[2048]["all_layers"] == 3 * 8 * 8 * 2**20


@pytest.mark.slow
def test_fused_attention_does_without_the_matrix(lab: Lab) -> None:
    made = lab("flash", *SMALL, *LONG)
    short, long = rows(made, "flash")
    assert max(short["gap"], long["gap"]) < 0.05  # of unit normal values, in bf16 where the CPU has it
    assert long["explicit_peak"] >= 8 * 256**2 * 4  # the scores themselves, in float32
    assert long["fused_peak"] < long["explicit_peak"] / 4
    assert long["explicit_peak"] > 8 * short["explicit_peak"]  # n^2 of four times the tokens, and what grows with n
    assert "4.000 times the tokens take explicit" in made["verdict"]
    assert "at 256 tokens fused (flash) takes 1/" in made["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model.attention.logit_cap=20", "model/position=alibi"])
def test_where_fused_attention_holds_it_too_the_sentence_says_so(lab: Lab, kind: str) -> None:
    """torch's fused attention caps no scores, so that the explicit softmax runs; what ALiBi adds is a matrix too."""
    made = lab("flash", *SMALL, *LONG, kind)
    long = rows(made, "flash")[-1]
    assert long["fused_peak"] >= 8 * 256**2 * 4
    assert ("(math)" in made["verdict"]) == (kind != "model/position=alibi")
    grown = [float(part.rsplit(" ", 1)[1]) for part in made["verdict"].split(" times")[1:3]]
    assert all(factor > 8 for factor in grown)


def test_the_running_maximum_and_sum(lab: Lab) -> None:
    blocks = rows(lab("flash", *SMALL, *QUICK), "online")
    assert [row["keys"] for row in blocks] == [f"{16 * i} to {16 * i + 15}" for i in range(6)]
    most = -math.inf
    for row in blocks:
        before, most = most, max(most, row["block_max"])
        assert row["max"] == most
        assert row["rescale"] == pytest.approx(math.exp(before - most))
        assert row["sum"] >= 1
    assert blocks[0]["gap"] > 0.01
    assert blocks[-1]["gap"] < 1e-12


def test_a_window_and_a_sink_are_watched_too(lab: Lab) -> None:
    """Of 96 keys the last query sees 16, in the last block; a sink of logit 0 is in the sum from the start."""
    made = lab("flash", *SMALL, *QUICK, "model.attention.window=16", "model.attention.sinks=true")
    *hidden, last = rows(made, "online")
    assert all((row["block_max"], row["max"], row["sum"]) == (None, 0, 1) for row in hidden)
    assert last["gap"] < 1e-12
    assert "the running maximum rose 1 times after the first of 6 blocks" in made["verdict"]


def test_a_matrix_beyond_memory_is_refused_with_both_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["lab", "flash", *SMALL, "lengths=1000000"]) == 2
    said = capsys.readouterr().err
    assert "the explicit softmax of 1,000,000 tokens takes about 145.52 TiB" in said
    assert "lengths= takes shorter ones" in said


def test_as_many_tokens_as_positions_reach(lab: Lab) -> None:
    made = lab("flash", *SMALL, "model.context=300", "model/position=learned", "keys=64")
    assert [row["tokens"] for row in rows(made, "flash")] == [256, 300]
