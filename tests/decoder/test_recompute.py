"""Working activations out again changes what is kept, and nothing else: same loss, same gradients, same dropout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs, spread_weights
from torch import Tensor

from archlab.bench.phases import loss_of
from archlab.compose import load
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError


def gradients(decoder: Decoder, recompute: str) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss of a training step and the gradient of each parameter."""
    ids = torch.randint(decoder.spec.vocab_size, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    decoder.recompute = recompute
    decoder.zero_grad()
    torch.manual_seed(2)  # of the dropout
    loss = loss_of(decoder(ids[:, :-1]), ids[:, 1:], decoder)
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in decoder.named_parameters()}


@given(specs(), st.sampled_from(["selective", "full"]))
@settings(max_examples=60)
def test_gradients_are_the_same(spec: DecoderSpec, recompute: str) -> None:
    decoder = spread_weights(build(spec, dtype="fp64")).train()
    kept, again = gradients(decoder, "none"), gradients(decoder, recompute)
    torch.testing.assert_close(again, kept, rtol=1e-11, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize(("recompute", "times"), [("none", 1), ("selective", 2), ("full", 2)])
def test_attention_runs_again_in_training_only(recompute: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    attend = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *q, **given: runs.append(q) or attend(*q, **given))
    decoder = build(small())
    decoder.recompute = recompute
    ids = torch.zeros(1, 4, dtype=torch.int64)
    with torch.no_grad():
        decoder(ids)
    decoder(ids, KVCache(decoder.spec, 1, 8))
    assert len(runs) == 2 * decoder.spec.n_layers
    runs.clear()
    decoder(ids).sum().backward()
    assert len(runs) == times * decoder.spec.n_layers


def test_what_may_be_worked_out_again_is_named() -> None:
    with pytest.raises(ConfigError, match="valid: none, selective, full"):
        build(small()).recompute = "some"


def small() -> DecoderSpec:
    return load("gqa", "model.n_layers=2", "model.d_model=16", "model.vocab_size=31", "model.attention.head_dim=8")
