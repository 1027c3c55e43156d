"""What one timed run of each phase does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from archlab.bench import phases
from archlab.bench.fractions import work_of
from archlab.bench.phases import LEARNING_RATE, PHASES, FusedAdamW
from archlab.cost.kv import kv_cache
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import replace
from archlab.workload import Workload


@pytest.fixture
def decoder(spec: DecoderSpec) -> Decoder:
    return build(spec, dtype="fp32")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("found", [True, False])
def test_the_mode_is_restored_also_after_an_error(
    phase: str, found: bool, decoder: Decoder, workload: Workload
) -> None:
    decoder.train(found)
    decoder.layers[0].eval()
    before = [part.training for part in decoder.modules()]
    with PHASES[phase](decoder, workload, 0) as timed:
        assert all(part.training == (phase == "train") for part in decoder.modules())
        timed.call()
    assert [part.training for part in decoder.modules()] == before
    with pytest.raises(ZeroDivisionError), PHASES[phase](decoder, workload, 0):
        raise ZeroDivisionError
    assert [part.training for part in decoder.modules()] == before
    assert all(parameter.grad is None for parameter in decoder.parameters())


def test_prefill_gives_the_last_position_only(decoder: Decoder, workload: Workload) -> None:
    with PHASES["prefill"](decoder, workload, 0) as timed:
        logits = timed.call()
        assert logits.shape == (workload.batch, 1, decoder.spec.vocab_size)
        assert not logits.requires_grad
        assert timed.tokens == workload.batch * workload.prompt
        torch.testing.assert_close(timed.call(), logits)


def test_prefill_gives_all_positions_where_asked(decoder: Decoder, workload: Workload) -> None:
    every = replace(workload, logits="all")
    with PHASES["prefill"](decoder, every, 0) as timed:
        assert timed.call().shape == (workload.batch, workload.prompt, decoder.spec.vocab_size)
        assert "logits of all positions" in timed.counted
    head = 2 * decoder.spec.d_model * decoder.spec.vocab_size
    flops = [work_of("prefill", decoder.spec, asked).flops for asked in (every, workload)]
    assert flops[0] - flops[1] == workload.batch * (workload.prompt - 1) * head


def test_every_decode_run_starts_at_the_same_context(decoder: Decoder, workload: Workload) -> None:
    with PHASES["decode"](decoder, workload, 0) as timed:
        runs = [timed.call() for _ in range(3)]
        assert all(torch.equal(run, runs[0]) for run in runs)
        assert timed.tokens == workload.batch * workload.new
        assert timed.steps == workload.new


def test_decode_makes_the_tokens_that_generation_makes(decoder: Decoder, workload: Workload) -> None:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(decoder.spec.vocab_size, (workload.batch, workload.prompt), generator=generator)
    wanted = decoder.generate(ids, workload.new + 1)[:, -1:]  # the first of them is prefill's
    with PHASES["decode"](decoder, workload, 3) as timed:
        assert torch.equal(timed.call(), wanted)


def test_a_decode_step_stands_after_the_prompt_and_the_tokens_before_it(decoder: Decoder, workload: Workload) -> None:
    held: list[int] = []
    decoder.register_forward_pre_hook(lambda module, given: held.append(given[1].held))
    with PHASES["decode"](decoder, workload, 0) as timed:
        timed.call()
        timed.call()
    assert held == [*range(workload.prompt, workload.length)] * 2


class Unrecorded:
    """What a graph does, without one: the same token and the same output tensor each time."""

    def __init__(self, step: Callable[[Tensor], Tensor], cache: KVCache) -> None:
        assert cache.static
        assert cache.held == 0
        self.step, self.token = step, torch.zeros(cache.batch, 1, dtype=torch.int64)
        self.output = torch.zeros_like(self.token)

    def __call__(self, token: Tensor) -> Tensor:
        self.token.copy_(token)
        return self.output.copy_(self.step(self.token))


def test_decode_by_graphs_makes_the_same_tokens(
    decoder: Decoder, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "GraphedStep", Unrecorded)
    with PHASES["decode"](decoder, workload, 0) as plain, PHASES["decode"](decoder, workload, 0, graphs=True) as timed:
        for _ in range(2):
            assert torch.equal(timed.call(), plain.call())
        assert torch.equal(timed.step(), plain.step())
    assert "one CUDA graph" not in plain.counted
    assert ", each step one CUDA graph, the KV cache static" in timed.counted
    assert (timed.tokens, timed.steps, timed.cache_bytes) == (plain.tokens, plain.steps, plain.cache_bytes)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_cache_has_the_bytes_that_the_paper_says(phase: str, decoder: Decoder) -> None:
    workload = Workload(batch=3, prompt=7, new=2, dtype="fp32", kv_dtype="bf16")
    with PHASES[phase](decoder, workload, 0) as timed:
        assert timed.cache_bytes == kv_cache(decoder.spec, 3, 9, "bf16").bytes
        timed.call()


@pytest.mark.parametrize("head", ["tied", "untied", "classification", "regression"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64"])
def test_a_training_step_moves_every_weight(
    head: str, dtype: str, with_head: Callable[[str], DecoderSpec], workload: Workload
) -> None:
    decoder = build(with_head(head), dtype=dtype)
    before = [parameter.detach().clone() for parameter in decoder.parameters()]
    with PHASES["train"](decoder, workload, 0) as timed:
        timed.call()
        grads: dict[str, Any] = {name: parameter.grad for name, parameter in decoder.named_parameters()}
        assert all(grad is not None and grad.isfinite().all() for grad in grads.values())
    assert all(parameter.isfinite().all() for parameter in decoder.parameters())
    moved = [not torch.equal(*pair) for pair in zip(before, decoder.parameters(), strict=True)]
    assert all(moved) or decoder.embedding.weight.itemsize == 2  # in 16 bits a step may be lost in rounding a gain
    assert any(moved)
    assert timed.cache_bytes is None


def test_gradients_are_of_one_step_that_foretells_the_next_tokens(
    make: Callable[..., DecoderSpec], workload: Workload
) -> None:
    decoder = build(make(dropout={"choice": "none"}), dtype="fp64")
    ids = torch.randint(61, (workload.batch, workload.prompt + 1), generator=torch.Generator().manual_seed(0))
    with PHASES["train"](decoder, workload, 0) as timed:
        for _ in range(2):  # the second step's are not added to the first's
            chosen = decoder(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])
            wanted = torch.autograd.grad(-chosen.mean(), list(decoder.parameters()))
            timed.call()
            for gradient, parameter in zip(wanted, decoder.parameters(), strict=True):
                torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_the_optimizer_is_torchs_own(decoder: Decoder, workload: Workload) -> None:
    theirs = copy.deepcopy(decoder)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=LEARNING_RATE, fused=True)
    ours = FusedAdamW(list(decoder.parameters()))
    for step in range(3):
        torch.manual_seed(step)
        for mine, other in zip(decoder.parameters(), theirs.parameters(), strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        ours.step()
        optimizer.step()
    assert all(torch.equal(mine, other) for mine, other in zip(decoder.parameters(), theirs.parameters(), strict=True))
