"""Past the end of learned positions there is no cache and no pass: refused alike from Python and the command line."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import archlab
from archlab.cli.app import answer
from archlab.errors import RequestError

ENDS = 1024
"""Positions of GPT-2 (Radford et al. 2019, section 2.3)."""


@pytest.fixture(scope="module")
def gpt2():
    return archlab.load("gpt2")


def test_a_cache_up_to_the_end_and_past_it(gpt2):
    assert archlab.kv_cache(gpt2, 1, ENDS).bytes == 12 * 2 * 768 * ENDS * 2  # layers, keys and values, width, bf16
    with pytest.raises(RequestError, match="positions end at 1024 tokens; 1025 were asked for"):
        archlab.kv_cache(gpt2, 1, ENDS + 1)


@pytest.mark.parametrize(("prompt", "new"), [(ENDS + 1, 0), (ENDS, 1), (1, ENDS)])
def test_a_run_up_to_the_end_and_past_it(gpt2, prompt, new):
    within = archlab.flops(gpt2, 1, min(prompt, ENDS - new) or 1, min(new, ENDS - 1))
    assert within.prompt + within.new == ENDS
    with pytest.raises(RequestError, match="positions end at 1024 tokens; 1025 were asked for"):
        archlab.flops(gpt2, 1, prompt, new)


@pytest.mark.parametrize("new", [0, 1, 64])
def test_the_longest_prompt_leaves_room_for_what_is_decoded(gpt2, new):
    assert archlab.flops(gpt2, new=new).prompt == ENDS - new
    assert archlab.flops(archlab.load("gqa"), new=new).prompt == 4096  # rotary positions have no end


@pytest.mark.parametrize("command", ["kv", "flops", "memory", "shapes"])
def test_the_command_line_says_the_same(command, capsys):
    assert answer([command, "gpt2", "--context", str(ENDS + 1)]) == 2
    assert "positions end at 1024 tokens; 1025 were asked for" in capsys.readouterr().err


def test_so_does_a_table_of_contexts(capsys):
    assert answer(["compare", "gpt2", f"workload.contexts=[{ENDS + 1}]"]) == 2
    assert "positions end at 1024 tokens; 1025 were asked for" in capsys.readouterr().err


def test_a_model_that_ends_before_the_usual_prompt_is_costed_all_the_same(capsys):
    assert answer(["compare", "gpt2", "model.context=64", "--format", "csv"]) == 0
    assert capsys.readouterr().out


@pytest.mark.usefixtures("own_choices")
def test_positions_that_end_before_the_context_are_costed_as_far_as_they_go():
    class Short(archlab.NoPosition):
        def __init__(self, d_model: int) -> None:
            super().__init__()
            self.max_length = 8
            self.weight = nn.Parameter(torch.zeros(8, d_model))

        def embed(self, x: Tensor, span: Any) -> Tensor:
            return x + self.weight[: x.shape[1]]

    archlab.component("position", "short", summary="for a test")(Short)
    spec = archlab.load("gqa", "model/position=short")
    assert archlab.kv_cache(spec).context == 8
    assert archlab.flops(spec, new=3).prompt == 5
    assert answer(["compare", "gqa", "model/position=short"]) == 0
    assert answer(["verify", "gqa", "model/position=short", "model.d_model=64", "model.n_layers=1"]) == 0
