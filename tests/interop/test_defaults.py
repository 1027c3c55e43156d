"""What a config.json leaves out is what the family's own class puts in."""

from __future__ import annotations

import json

import pytest
from transformers import AutoConfig

from archlab.interop.families import HOME
from archlab.interop.hub import read_config

OURS_ALONE = {"minimind", "deepseek"}
NEEDS = {"deepseek_v2": {"num_experts_per_tok": 6}}
"""deepseek_v2's class has null here, of which no model can be made."""


@pytest.mark.parametrize("model_type", sorted(set(HOME) - OURS_ALONE))
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    given = NEEDS.get(model_type, {})
    config = AutoConfig.for_model(model_type, **given)
    bare = read_config({"model_type": model_type, **given})
    assert bare == read_config(json.loads(json.dumps(config.to_dict())))
    assert bare == read_config(json.loads(config.to_json_string()))


@pytest.mark.parametrize("model_type", sorted(OURS_ALONE))
def test_families_that_transformers_lacks_have_defaults_too(model_type: str) -> None:
    assert read_config({"model_type": model_type})[0] == model_type
