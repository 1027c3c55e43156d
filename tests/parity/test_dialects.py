"""Which of two dialects in one file counts: rotary tables of every combination, against transformers' own, live.

transformers takes `rope_scaling` where it says anything, else `rope_parameters`, never a mixture; what stands beside
the block fills in what it lacks. archlab reads the file as it is, not what transformers makes of it.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from imported import spec_of
from test_families import GROUPED, SMALL, doubled
from test_tables import HEADS, their_table
from torch import nn
from transformers import AutoConfig, AutoModel

from archlab.components.span import Span
from archlab.errors import ConfigError
from archlab.interop.hub import read_config
from archlab.model import build

pytestmark = pytest.mark.slow  # live, beside transformers

Config = dict[str, Any]
LENGTH = 60
YARN = {"factor": 3.0, "original_max_position_embeddings": 12}
PAIRS = {"short_factor": [1.0, 1.1, 1.3, 1.6], "long_factor": [1.0, 2.0, 3.5, 5.0]}
ABSENT: Any = object()
HUB = (
    ABSENT,
    None,
    {},
    {"type": "linear", "factor": 2.0},
    {"rope_type": "yarn", **YARN},
    {"type": "yarn", **YARN, "rope_theta": 70.0},
    {"rope_type": "dynamic", "type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
)
NEW = (
    ABSENT,
    None,
    {},
    {"rope_type": "default", "rope_theta": 200.0},
    {"rope_type": "linear", "factor": 3.0},
    {"type": "yarn", **YARN, "rope_theta": 150.0},
)
THETA, BEFORE = (ABSENT, 300.0), (ABSENT, 24)
NESTED = (
    ABSENT,
    {"full_attention": {"rope_type": "linear", "factor": 3.0}, "sliding_attention": {"rope_type": "default"}},
    {"full_attention": {"type": "linear", "factor": 3.0, "rope_theta": 90.0}, "sliding_attention": None},
    {
        "full_attention": {"rope_type": "default", "type": "linear", "factor": 3.0},
        "sliding_attention": {"type": "yarn", **YARN},
    },
)
FAMILIES: dict[str, Config] = {
    "llama": GROUPED,
    "smollm3": {**GROUPED, "no_rope_layers": [1]},
    "gpt_oss": {**HEADS, "num_local_experts": 2, "num_experts_per_tok": 1},
    "phi": {**GROUPED, "partial_rotary_factor": 1.0},
    "gpt_neox": {**SMALL, "rotary_pct": 1.0},
}


def files(base: Config, **choices: tuple[Any, ...]) -> Iterator[Config]:
    """The base with every combination of the choices."""
    for values in itertools.product(*choices.values()):
        given = {name: value for name, value in zip(choices, values, strict=True) if value is not ABSENT}
        yield {**base, **copy.deepcopy(given)}


def theirs(name: str, raw: Config) -> tuple[Any, nn.Module] | None:
    """transformers' config and rotary module; None for what it cannot read."""
    try:
        config = AutoConfig.for_model(name, **copy.deepcopy(raw))
        with doubled():
            return config, AutoModel.from_config(config).rotary_emb
    except Exception:
        return None


def check(name: str, raw: Config, config: Any, module: nn.Module) -> None:
    """Both kinds of layer, one run; and the file that transformers writes says the same as this one."""
    given = {"model_type": name, **raw}
    assert read_config(json.loads(config.to_json_string(use_diff=False))) == read_config(given), raw
    decoder = build(spec_of(given), dtype=torch.float64)
    for layer, kind in enumerate(decoder.position_of):
        position = decoder.positions[kind]
        position.reach(LENGTH)
        ours = position.rotation(Span(0, LENGTH))
        typed = [config.layer_types[layer]] if name == "gemma3_text" else []
        torch.testing.assert_close((ours.cos, ours.sin), their_table(name, module, LENGTH, *typed), rtol=0, atol=1e-11)


def compared(name: str, given: Iterator[Config]) -> tuple[int, int]:
    """How many files were compared, and how many archlab refused that transformers reads."""
    same = refused = 0
    for raw in given:
        found = theirs(name, raw)
        if found is None:
            continue
        try:
            read_config({"model_type": name, **raw})
        except ConfigError:
            refused += 1
            continue
        check(name, raw, *found)
        same += 1
    return same, refused


@pytest.mark.parametrize("name", FAMILIES)
def test_one_block_counts(name: str) -> None:
    base = {**FAMILIES[name], "num_hidden_layers": 1}
    theta = {"rotary_emb_base" if name == "gpt_neox" else "rope_theta": THETA}
    beside = {"original_max_position_embeddings": BEFORE} if name == "llama" else {}
    same, refused = compared(name, files(base, rope_scaling=HUB, rope_parameters=NEW, **theta, **beside))
    assert same > 60
    assert refused <= len(NEW) * 2  # a dynamic scaling that says another context than the model's


def test_the_two_blocks_of_gemma_3() -> None:
    base = {
        **HEADS,
        "num_hidden_layers": 2,
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    local = (ABSENT, 40.0)
    given = files(base, rope_scaling=HUB, rope_parameters=NESTED, rope_theta=THETA, rope_local_base_freq=local)
    same, refused = compared("gemma3_text", given)
    assert same > 60
    assert refused <= 4  # keys of one scaling in a block of another


def test_phi_3_knows_one_scaling() -> None:
    base = {**GROUPED, "num_hidden_layers": 1}
    blocks = [{spelled: kind, **PAIRS} for spelled in ("type", "rope_type") for kind in ("longrope", "yarn")]
    given = files(base, rope_scaling=(*HUB, *blocks), rope_parameters=(*NEW, *blocks), rope_theta=THETA)
    same, refused = compared("phi3", given)
    assert same > 30
    assert refused == 0
    for kind in ("linear", "dynamic", "llama3"):
        with pytest.raises(ConfigError, match=kind):
            read_config({"model_type": "phi3", **base, "rope_scaling": {"type": kind, "factor": 2.0}})


@pytest.mark.parametrize(
    "more", [{"rope_theta": 500.0}, {"partial_rotary_factor": 0.5}, {"rope_theta": 500.0, "rotary_emb_base": 300}]
)
def test_what_gpt_neox_does_not_read_must_not_say_otherwise(more: Config) -> None:
    """Its class reads rotary_emb_base and rotary_pct, and lets the usual names be."""
    given = {"model_type": "gpt_neox", **SMALL}
    config = AutoConfig.for_model(**given, **more)
    assert config.rope_parameters["rope_theta"] == more.get("rotary_emb_base", 10000.0)
    assert config.rope_parameters["partial_rotary_factor"] == 0.25
    with pytest.raises(ConfigError, match=next(iter(more))):
        read_config({**given, **more})
    same = {**given, "rotary_emb_base": 500, "rope_theta": 500.0, "rotary_pct": 0.5, "partial_rotary_factor": 0.5}
    assert read_config(same) == read_config({**given, "rotary_emb_base": 500, "rotary_pct": 0.5})
