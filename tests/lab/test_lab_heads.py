"""lab heads: every attention at one shape and at equal parameters, counted by hand, and timed."""

from __future__ import annotations

import pytest
from asked import SMALL, Lab, rows

import archlab
from archlab.bench.device import pick
from archlab.cli.app import answer
from archlab.lab import heads
from archlab.registry import choices
from archlab.units import dtype_bytes

QUICK = ("context=16", "batch=1")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "SECONDS", 0.05)


def test_every_attention_twice(lab: Lab) -> None:
    made = lab("heads", *SMALL, *QUICK)
    found = {(row["attention"], row["at"]): row for row in rows(made, "heads")}
    assert list(found) == [(name, at) for at in ("one shape", "equal parameters") for name in choices("attention")]
    width = dtype_bytes(pick().native_dtype)
    for name, kv in (("mha", 8), ("gqa", 2), ("mqa", 1)):
        shape, equal = found[name, "one shape"], found[name, "equal parameters"]
        assert shape["kv_heads"] == equal["kv_heads"] == kv
        assert shape["kv_bytes"] == equal["kv_bytes"] == 2 * 3 * kv * 8 * width
        attention, ffn = 64 * (8 + 2 * kv) * 8 + 64 * 64, 3 * 64 * 192
        assert shape["params"] == 97 * 64 + 3 * (attention + ffn + 2 * 64) + 64
        assert abs(equal["params"] - found["gqa", "one shape"]["params"]) <= 3 * 3 * 64 * 8 / 2  # half a step of d_ff
        assert equal["d_ff"] % 8 == 0
        assert 0 < shape["p10"] <= shape["step"] <= shape["p90"]
    assert made["verdict"].startswith("at one shape mqa caches 8.000 times less than mha")
    assert "; at equal parameters mqa caches" in made["verdict"]


def test_what_is_largest_hangs_on_the_model(lab: Lab) -> None:
    """One query head has one KV head, whatever the choice; then a latent of four heads' width is the dearest."""
    made = lab("heads", *SMALL, *QUICK, "model.attention.n_heads=1", "model.attention.n_kv_heads=1")
    assert "mla" in made["verdict"].split(" times less than ")[1]


def test_a_choice_that_cannot_be_is_a_note(lab: Lab) -> None:
    sizes = ("model.attention.n_heads=6", "model.attention.head_dim=8", "model.attention.n_kv_heads=2")
    made = lab("heads", *SMALL, *QUICK, *sizes)
    assert "mla" not in {row["attention"] for row in rows(made, "heads")}
    assert any("mla at one shape" in note and "6 does not divide d_model" in note for note in made["notes"])


def test_caches_beyond_memory_are_refused_with_both_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["lab", "heads", *SMALL, "context=10000000", "batch=100000"]) == 2
    said = capsys.readouterr().err
    assert "the caches of 8 models take" in said
    assert "may be taken" in said


def test_as_many_tokens_as_positions_reach(lab: Lab) -> None:
    """gpt2's default of 1,024 after the cached ones would be one too many; 32 learned positions leave 31."""
    made = lab("heads", *SMALL, "model.context=32", "model/position=learned", "batch=1")
    assert made["assumptions"]["cache"] == "31 tokens, random numbers"


def test_the_drawing_goes_as_far_as_the_positions() -> None:
    (learned, rope) = (
        [length for length, _ in heads._cache_by_length(archlab.load("gqa", f"model/position={name}"), "bf16")]
        for name in ("learned", "rope")
    )
    assert max(learned) == 4096 < max(rope)
