"""Import, export and import again: the same model, which transformers builds too. Random configs of every family."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn import OPTIONS, draw
from imported import spec_of
from test_families import CASES, check, doubled, original
from transformers import AutoConfig, AutoModelForCausalLM

from archlab.cost.params import parameters
from archlab.interop.export import export

pytestmark = pytest.mark.slow  # live, beside transformers

SEEDS = range(12)


def counted(config: Any) -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_exported_is_the_model_that_was_imported(name: str, seed: int) -> None:
    given = draw(name, seed)
    spec = spec_of(given)
    config = export(spec)
    assert config["model_type"] == name
    assert spec_of(config) == spec
    theirs = AutoConfig.for_model(**copy.deepcopy(config))
    assert spec_of(json.loads(theirs.to_json_string(use_diff=False))) == spec
    assert counted(theirs) == parameters(spec).total == counted(AutoConfig.for_model(**copy.deepcopy(given)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OPTIONS)
@torch.no_grad()
def test_logits_of_random_configs_equal_those_of_transformers(name: str, seed: int, tmp_path: Path) -> None:
    given = {key: value for key, value in draw(name, seed).items() if key != "model_type"}
    with doubled():
        model, ids, logits = original(name, given, tmp_path)
    check(model, ids, logits, tmp_path)


def test_sliding_layers_that_are_scaled_go_round_too() -> None:
    """Only transformers 5's block has words for them."""
    local = {"rope_type": "linear", "factor": 2.0, "rope_theta": 30.0}
    bases = {"full_attention": {"rope_type": "default", "rope_theta": 300.0}, "sliding_attention": local}
    spec = spec_of({**draw("gemma3_text", 0), "layer_types": None, "rope_scaling": None, "rope_parameters": bases})
    config = export(spec)
    assert spec_of(config) == spec
    theirs = AutoConfig.for_model(**copy.deepcopy(config))
    assert spec_of(json.loads(theirs.to_json_string(use_diff=False))) == spec


def test_every_family_is_drawn_with_each_of_its_options_both_ways() -> None:
    assert set(OPTIONS) == set(CASES)
    for name, options in OPTIONS.items():
        configs = [draw(name, seed) for seed in SEEDS]
        for key in options:
            assert len({repr(config.get(key, "left out")) for config in configs}) > 1, (name, key)
