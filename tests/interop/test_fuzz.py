"""Configs of real models, mutated: an import answers with a model or with one line, soon."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imported import DATA, FACTS, REFERENCES, fact, reference_config

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.errors import ArchlabError
from archlab.interop.families import HOME, family
from archlab.interop.hub import read_config, spec_of
from archlab.interop.reader import Fields
from archlab.interop.yaml_text import to_yaml

CONFIGS = [fact(name)[dialect] for name in FACTS for dialect in ("hf_config", "hf_config_v5") if dialect in fact(name)]
CONFIGS += [reference_config(name, file) for name in REFERENCES for file in ("config.json", "config_v5.json")]
NAMES = sorted({key for config in CONFIGS for key in config})
ODD_NUMBERS = st.sampled_from(
    [0, -1, 1, 2, 3, 7, 10_000, 10_001, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.5, 1e-320, 1e308]
)
WORDS = st.sampled_from(
    ["silu", "gelu", "yarn", "linear", "dynamic", "longrope", "full_attention", "sliding_attention"]
)
NUMBERS = ODD_NUMBERS | st.integers(-10, 200) | st.floats(allow_nan=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | WORDS
KEYS = st.sampled_from(NAMES) | st.text(max_size=4)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    config = copy.deepcopy(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 4))):
        target = config
        nested = [key for key, value in config.items() if isinstance(value, dict) and value]
        if nested and draw(st.booleans()):
            target = config[draw(st.sampled_from(nested))]
        key = draw(st.sampled_from(sorted(target)) | st.sampled_from(NAMES)) if target else draw(st.sampled_from(NAMES))
        if draw(st.integers(0, 3)) == 0:
            target.pop(key, None)
        elif key != "num_hidden_layers" or draw(st.booleans()):
            target[key] = draw(VALUES)
    if draw(st.integers(0, 9)) == 0:
        config["model_type"] = draw(st.sampled_from(sorted(HOME)))
    return config


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated())
def test_an_import_gives_a_model_or_one_line(config: dict[str, Any]) -> None:
    start = time.process_time()
    message = refusal(lambda: cost(config))
    assert message.count("\n") == 0
    assert not message.startswith("model.")  # the file has fields, not archlab's options
    assert time.process_time() - start < 5


def cost(config: dict[str, Any]) -> None:
    model = read_config(config)[1]
    to_yaml(model, "fuzz")
    spec = spec_of(config, model)
    parameters(spec)
    kv_cache(spec, 1, 1, "bf16")


def refusal(call: Callable[[], None]) -> str:
    """The message by which a call was refused, empty where it was not. Any other exception is a fault."""
    try:
        call()
    except ArchlabError as error:
        return str(error)[:4000]
    return ""


@settings(max_examples=100)
@given(st.sampled_from(sorted(HOME)), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12))
def test_any_fields_at_all(model_type: str, fields: dict[str, Any]) -> None:
    def read() -> None:
        known = family(model_type)
        reader = Fields({**fields, "model_type": model_type})
        known.read(reader)
        reader.finish(known.harmless)

    assert "\n" not in refusal(read)


def test_the_fuzz_starts_from_configs_that_are_read() -> None:
    assert len(CONFIGS) > 150
    for config in CONFIGS:
        json.dumps(read_config(config)[1])
    assert (DATA / "references").is_dir()
