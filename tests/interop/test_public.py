"""Public config files as their makers wrote them, with all that stands beside the architecture in them."""

from __future__ import annotations

import pytest
from imported import PUBLIC, error_of, public, spec_of
from public_totals import total

from archlab.cost.params import parameters
from archlab.decoder.resolve import resolve
from archlab.interop.export import differences, export
from archlab.interop.hub import read_config

READ = [name for name in PUBLIC if "refused" not in public(name)]
REFUSED = [name for name in PUBLIC if "refused" in public(name)]


@pytest.mark.parametrize("name", READ)
def test_a_public_file_is_read_and_has_the_parameters_that_transformers_gives_it(name: str) -> None:
    known = public(name)
    assert parameters(spec_of(known["hf_config"])).total == known["params_total"]


@pytest.mark.parametrize("name", READ)
def test_a_public_file_is_exported_as_the_same_model_of_its_family(name: str) -> None:
    spec = spec_of(public(name)["hf_config"])
    again = export(spec)
    assert again["model_type"] == spec.family
    assert list(differences(spec, resolve(read_config(again)[1]).spec)) == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_archlab_does_not_model_is_refused_by_name(name: str) -> None:
    assert public(name)["refused"] in error_of(public(name)["hf_config"])


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_the_stored_parameters_are_those_of_transformers(name: str) -> None:
    assert public(name)["params_total"] == total(public(name)["hf_config"])


def test_most_are_read() -> None:
    assert len(READ) > 70
    assert len(REFUSED) == 6
