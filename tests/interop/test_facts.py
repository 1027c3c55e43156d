"""Public models, read from their config.json: every figure equals the published one, to the unit."""

from __future__ import annotations

import pytest
from imported import FACTS, REFERENCES, fact, reference_config, spec_of

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.interop.families import HOME
from archlab.interop.hub import read_config

DIALECTS = ("hf_config", "hf_config_v5")
CASES = [(name, dialect) for name in FACTS for dialect in DIALECTS if dialect in fact(name)]


@pytest.mark.parametrize(("name", "dialect"), CASES)
def test_a_public_config_gives_the_published_numbers(name: str, dialect: str) -> None:
    known = fact(name)
    spec = spec_of(known[dialect])
    counts = parameters(spec)
    assert counts.total == known["params_total"]
    assert counts.by_part == known["params_by_part"]
    assert counts.active == known["params_active"]
    assert counts.non_embedding == known["params_non_embedding"]
    assert counts.tied == known["tied"]
    assert kv_cache(spec, 1, 1, "bf16").bytes_per_token == known["kv_bytes_per_token_bf16"]
    windows = [getattr(layer.attention, "window", None) for layer in spec.layers]
    assert [index for index, window in enumerate(windows) if window] == known["kv_sliding_layers"]
    assert {window for window in windows if window} == ({known["kv_window"]} - {None})


@pytest.mark.parametrize("name", FACTS)
def test_both_dialects_of_a_public_config_say_one_thing(name: str) -> None:
    known = fact(name)
    if "hf_config_v5" not in known:
        pytest.skip("transformers does not have this family")
    assert read_config(known["hf_config"]) == read_config(known["hf_config_v5"])


@pytest.mark.parametrize("name", REFERENCES)
def test_both_dialects_of_a_reference_say_one_thing(name: str) -> None:
    hub, v5 = reference_config(name), reference_config(name, "config_v5.json")
    assert hub != v5
    assert read_config(hub) == read_config(v5)
    assert spec_of(hub) == spec_of(v5)


def test_every_family_of_the_data_is_there() -> None:
    read = {fact(name)["hf_config"]["model_type"] for name in FACTS}
    read |= {reference_config(name)["model_type"] for name in REFERENCES}
    assert len(FACTS) == 45
    assert len(REFERENCES) == 34
    assert read <= set(HOME)
