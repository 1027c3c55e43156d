"""Generation: greedy is the argmax, sampling is what was asked for, and the model is left as it was found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_decoder import decoder, ids, nothing_runs, spec

from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.generate import pick, probabilities
from archlab.errors import RequestError


@torch.no_grad()
def test_greedy_is_the_argmax_of_the_uncached_model() -> None:
    model = decoder()
    run = ids()
    for _ in range(6):
        run = torch.cat((run, model(run)[:, -1].argmax(-1, keepdim=True)), 1)
    assert torch.equal(model.generate(ids(), 6), run)
    assert torch.equal(model.generate(ids(), 6, temperature=1.0, top_k=1), run)
    assert torch.equal(model.generate(ids(), 6, temperature=1.0, top_p=1e-9), run)


@torch.no_grad()
def test_a_cache_can_be_continued() -> None:
    model, cache = decoder(), KVCache(spec(), 2, 20)
    whole = model.generate(ids(), 8)
    first = model.generate(ids(), 3, cache=cache)
    assert cache.held == 11  # the last token was not fed back
    assert torch.equal(model.generate(first[:, -1:], 5, cache=cache)[:, 1:], whole[:, 12:])


def test_sampling_is_set_by_its_seed_and_leaves_torchs_state_alone() -> None:
    model = decoder()
    state = torch.get_rng_state()
    one, same, other = (model.generate(ids(), 12, temperature=2.0, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)
    given = model.generate(ids(), 12, temperature=2.0, generator=torch.Generator().manual_seed(1))
    assert torch.equal(given, one)


@pytest.mark.parametrize(
    ("temperature", "wanted"),
    [(1.0, [0.665, 0.245, 0.090]), (0.5, [0.867, 0.117, 0.016]), (2.0, [0.506, 0.307, 0.186])],
)
def test_temperature(temperature: float, wanted: list[float]) -> None:
    assert probabilities(torch.tensor([2.0, 1.0, 0.0]), temperature).tolist() == pytest.approx(wanted, abs=5e-4)


def test_softmax_does_not_overflow() -> None:
    given = probabilities(torch.tensor([1000.0, 1000.1, 1000.2], dtype=torch.float64), 1.0)
    assert given.tolist() == pytest.approx([0.301, 0.332, 0.367], abs=5e-4)


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({"top_k": 2}, 2), ({"top_k": 9}, 4), ({"top_p": 0.5}, 1), ({"top_p": 0.7}, 2), ({"top_k": 3, "top_p": 0.99}, 3)],
)
def test_top_k_and_top_p_let_the_likeliest_through(limits: dict[str, Any], kept: int) -> None:
    wanted = torch.tensor([0.1, 0.6, 0.05, 0.25]).log()
    given = probabilities(wanted, 1.0, **limits)
    order = [1, 3, 0, 2]
    assert (given[order[:kept]] > 0).all()
    assert (given[order[kept:]] == 0).all()
    assert torch.allclose(given[order[:kept]], wanted.exp()[order[:kept]] / wanted.exp()[order[:kept]].sum())


def test_sampled_shares_are_the_probabilities() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]]).expand(20_000, 3)
    drawn = pick(logits, 1.0, generator=torch.Generator().manual_seed(0))
    shares = drawn.flatten().bincount(minlength=3) / 20_000
    assert shares.tolist() == pytest.approx([0.665, 0.245, 0.090], abs=0.01)


def test_f07_the_mode_is_restored_module_by_module() -> None:
    model = build(spec(dropout={"choice": "all", "p": 0.5}))
    model.layers[0].eval()
    found = [module.training for module in model.modules()]
    assert torch.equal(model.generate(ids(), 4), model.generate(ids(), 4))  # no dropout while it runs
    assert [module.training for module in model.modules()] == found
    nothing_runs(model)
    with pytest.raises(BaseException, match="something was launched"):
        model.generate(ids(), 4)
    assert [module.training for module in model.modules()] == found


def test_f07_no_graph_is_kept_and_training_goes_on() -> None:
    model = build(spec(context=8))
    tokens = model.generate(ids(), 20)
    assert torch.is_grad_enabled()
    model(tokens).sum().backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"new": -1}, "new = -1"),
        ({"temperature": -0.1}, "temperature = -0.1"),
        *(({"temperature": value}, f"temperature = {value}") for value in (1e-320, 1e-40, float("inf"), float("nan"))),
        ({"top_k": 0}, "top_k = 0"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        nothing_runs(decoder()).generate(ids(), **({"new": 3} | options))


def test_a_run_longer_than_its_cache_is_refused_before_it_starts() -> None:
    with pytest.raises(RequestError, match="room for 10 tokens"):
        nothing_runs(decoder()).generate(ids(), 5, cache=KVCache(spec(), 2, 10))


def test_a_task_head_does_not_generate() -> None:
    with pytest.raises(RequestError, match="regression gives no tokens"):
        decoder(head={"choice": "regression"}).generate(ids(), 2)


def test_nothing_new_is_the_prompt() -> None:
    assert torch.equal(decoder().generate(ids(), 0), ids())


def test_the_least_temperature_takes_the_likeliest() -> None:
    least = torch.finfo(torch.float32).tiny
    assert probabilities(torch.tensor([50.0, 60.0, -1e30]), least).tolist() == [0.0, 1.0, 0.0]
