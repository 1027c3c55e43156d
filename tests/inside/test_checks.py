"""The self-check in full: holds for every composition, and sees each kind of fault that is put into the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from strategies import specs
from torch import Tensor

import archlab
from archlab.components.attention import module as attention
from archlab.components.ffn.module import FeedForward
from archlab.components.locality import Locality
from archlab.components.position.module import Table as PositionTable
from archlab.components.span import Span
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.inside import checks
from archlab.inside.checks import behaviour, document, fitting
from archlab.verify import Verified, check

SMALL = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=50", "model.attention.head_dim=8")
ROOM = 10**9


@pytest.fixture(scope="module")
def spec() -> DecoderSpec:
    return archlab.load("gqa", *SMALL)


@given(specs())
@settings(max_examples=15, deadline=None)
def test_any_composition_passes(spec: DecoderSpec) -> None:
    assert [check for check in behaviour(spec) if not check["ok"]] == []


def failed(spec: DecoderSpec) -> str:
    return "; ".join(check["name"] for check in behaviour(spec) if not check["ok"])


def test_a_future_that_is_seen(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention.attend
    monkeypatch.setattr(attention, "attend", lambda *given, **more: attend(*given, **{**more, "mask": None}))
    assert "a later token changes no earlier logit" in failed(spec)


def test_a_cache_that_forgets(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Span.write

    def forgets(self: Span, held: Tensor, new: Tensor, *more: Any) -> Tensor:
        return write(self, held, new * (self.start != 3), *more)

    monkeypatch.setattr(Span, "write", forgets)
    assert "cached one token at a time" in failed(spec)


def test_eval_that_draws(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Decoder.forward
    monkeypatch.setattr(
        Decoder, "forward", lambda self, *given, **more: forward(self, *given, **more) + 1e-14 * torch.rand(())
    )
    assert failed(spec) == "eval gives the same twice, bit for bit"


def test_a_branch_that_no_gradient_comes_through(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: forward(self, x).detach())
    assert failed(spec) == "tensors that the gradient reaches"


def test_backends_that_disagree(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention.attend
    monkeypatch.setattr(
        attention, "attend", lambda *given, **more: attend(*given, **more) * (1.01 if more["backend"] == "math" else 1)
    )
    assert failed(spec) == "fused attention = explicit softmax"


def test_flex_attention_that_differs(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [check["name"] for check in behaviour(spec.on_backend("flex")) if "softmax" in check["name"]] == [
        "fused attention = explicit softmax",
        "flex attention = explicit softmax",
    ]
    sees = Locality.sees
    monkeypatch.setattr(Locality, "sees", lambda self, query, key: sees(self, query, key) & (key > 0))
    assert "flex attention = explicit softmax" in failed(spec.on_backend("flex"))


def test_tables_that_lost_bits(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    made = PositionTable._fill

    def rounds(self: PositionTable, like: Tensor) -> None:
        made(self, like)
        if self.tables[0].dtype == torch.float32:
            self.tables = tuple(table.bfloat16().float() for table in self.tables)

    monkeypatch.setattr(PositionTable, "_fill", rounds)
    assert failed(spec).startswith("rotary cosines 0 in float32")


def test_a_model_beyond_the_room_is_tried_by_its_kinds_of_layers_or_on_paper_alone() -> None:
    spec = archlab.load("gemma-3-1b")
    first = fitting(spec, 32 * (archlab.parameters(spec).total - 1))
    assert first is not None
    assert first.n_layers == len(spec.layer_kinds) == 2
    assert fitting(spec, ROOM // 100) is None
    made = document(archlab.load("deepseek-v3"), ROOM)
    assert made.verdict == "all 2 checks hold"
    assert "too large" in made.assumptions["not tried"]


def test_the_first_difference_is_the_verdict(spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [check("one", 1, 1), check("two", 1, 2)]
    monkeypatch.setattr(checks, "verify", lambda spec: Verified(wrong, []))
    assert document(spec, 0).verdict == "two: 2, not 1"
