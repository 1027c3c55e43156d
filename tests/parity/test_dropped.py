"""What a file leaves out is what transformers puts in: each field of a small config left out in turn, live.

The parameters are those of the model that transformers builds, not of a config that archlab reads back.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from test_families import CASES
from transformers import AutoConfig, AutoModelForCausalLM

from archlab.cost.params import parameters
from archlab.decoder.resolve import resolve
from archlab.errors import ConfigError
from archlab.interop.hub import read_config

pytestmark = pytest.mark.slow  # live, beside transformers

IMPOSSIBLE = (
    *("does not divide", "of a head of", "must be <= 1", "is more than the", "is missing", "a layer slides"),
    "two experts or more",
)
"""Why a small config with a large default in it is no model, in transformers either, once it runs."""

STATED_TWICE = ("qk_head_dim", "word_embed_proj_dim", "num_key_value_heads", "head_dim", "rotary_dim")
"""Fields that must agree with the one left out, or fit it."""


def written(name: str) -> dict[str, Any]:
    config = AutoConfig.for_model(name, **copy.deepcopy(CASES[name][0]))
    whole: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return whole


def parameters_of(raw: dict[str, Any]) -> int | None:
    """None where transformers builds no model of it either."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**copy.deepcopy(raw)))
    except Exception:
        return None
    return sum(parameter.numel() for parameter in model.parameters())


def counted(raw: dict[str, Any]) -> int | None:
    """archlab's parameters; None for what is no model."""
    try:
        return parameters(resolve(read_config(raw)[1]).spec).total
    except ConfigError as error:
        if any(why in error.problem for why in IMPOSSIBLE) or error.key in STATED_TWICE:
            return None
        raise


@pytest.mark.parametrize("name", CASES)
def test_a_field_that_is_left_out_is_what_transformers_puts_in(name: str) -> None:
    whole, compared = written(name), 0
    for left_out in whole.keys() - {"model_type"}:
        raw = {key: value for key, value in whole.items() if key != left_out}
        theirs = parameters_of(raw)
        if theirs is None:
            continue
        ours = counted(raw)
        assert ours in (theirs, None), left_out
        compared += ours is not None
    assert compared > 20


def test_qwen3_moe_has_no_head_dim_of_its_own() -> None:
    """Its class has none, unlike that of Qwen3: hidden_size / num_attention_heads it is."""
    config = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4}
    assert parameters(resolve(read_config(config)[1]).spec).total == parameters_of(config)
