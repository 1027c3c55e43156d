"""What the figures say of themselves, and what is checked on paper."""

from __future__ import annotations

import pytest

import archlab
from archlab.compose import request
from archlab.cost.figures import exact_figures
from archlab.errors import ConfigError
from archlab.workload import Workload


@pytest.mark.parametrize("head", ["classification", "regression"])
def test_a_head_that_makes_no_tokens_has_one_row_and_no_decoding(head: str) -> None:
    figures = exact_figures(archlab.load("gqa", f"model/head={head}"), Workload())
    assert "flops_decode_per_token" not in figures
    for convention in ("full", "causal"):
        assert "one row of outputs, of the last position" in figures[f"flops_prefill_per_token.{convention}"].how


def test_a_head_of_logits_says_all_positions() -> None:
    figures = exact_figures(archlab.load("gqa"), Workload())
    assert "logits of all positions" in figures["flops_prefill_per_token.full"].how
    assert "flops_decode_per_token" in figures


def test_a_short_model_is_costed_at_the_default_workload_but_not_run_at_it() -> None:
    asked = request("gpt2", ["model.context=128"])
    assert exact_figures(asked.spec, asked.workload)["kv_bytes.128"].value == 12 * 2 * 768 * 2 * 128
    with pytest.raises(ConfigError, match="learned positions end at 128"):
        asked.check_runs()
