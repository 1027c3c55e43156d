"""Past the end of learned positions there is no cache and no pass: refused alike from Python and the command line."""

import pytest

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
