"""The streams of a pass and their gradients: against the layers run by hand, and against finite differences."""

from __future__ import annotations

import pytest
import torch

import archlab
from archlab.bench.phases import loss_of
from archlab.decoder.build import build
from archlab.lab.setup import variant
from archlab.lab.streams import streams, trained

SMALL = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=50", "model.attention.head_dim=8")


def test_streams_and_gradients() -> None:
    decoder = build(archlab.load("gqa", *SMALL), dtype="fp64")
    ids = torch.randint(50, (1, 9), generator=torch.Generator().manual_seed(1))
    found, passed = streams(decoder, ids[:, :-1]), trained(decoder, ids)
    assert torch.equal(found[0], decoder.embedding(ids[:, :-1]))
    assert len(found) == 3
    last = decoder.head(decoder.final_norm(found[-1]), decoder.embedding.weight)
    assert torch.equal(last, decoder(ids[:, :-1]))
    inside = found[-1].detach().requires_grad_()
    loss_of(decoder.head(decoder.final_norm(inside), decoder.embedding.weight), ids[:, 1:], decoder).backward()
    assert inside.grad is not None
    assert passed.gradients[-1] == pytest.approx(float(inside.grad.norm()))
    step = 1e-6
    along = inside.grad / inside.grad.norm()
    with torch.no_grad():
        ends = [decoder.final_norm(inside + sign * step * along) for sign in (1, -1)]
        risen = [float(loss_of(decoder.head(x, decoder.embedding.weight), ids[:, 1:], decoder)) for x in ends]
    assert passed.gradients[-1] == pytest.approx((risen[0] - risen[1]) / (2 * step), rel=1e-5)
    loss_of(decoder(ids[:, :-1]), ids[:, 1:], decoder).backward()
    for layer, norm in zip(decoder.layers, passed.weights, strict=True):
        assert norm == pytest.approx(sum(float(p.grad.square().sum()) for p in layer.parameters()) ** 0.5)


def test_a_variant_has_the_same_weights_and_draws_the_others() -> None:
    decoder = build(archlab.load("gqa", *SMALL), seed=3)
    other = variant(decoder, archlab.load("gqa", *SMALL, "model/position=learned", "model/norm=layernorm"), seed=5)
    held = decoder.state_dict()
    assert all(torch.equal(held[name], tensor) for name, tensor in other.state_dict().items() if name in held)
    drawn = other.positions[0].weight
    assert 0.015 < float(drawn.detach().std()) < 0.025
    assert float(other.final_norm.bias.detach().abs().max()) == 0
    assert other.embedding.weight.data_ptr() == decoder.embedding.weight.data_ptr()
