"""Every pair of registered choices: on paper = built, so that no choice can be added half-costed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from archlab.decoder.resolve import resolve
from archlab.inside.contract import BASE, as_built
from archlab.registry import AXES, choices
from archlab.verify import verify_flops

PAIRS = list(itertools.combinations(AXES, 2))


def model(first: str, one: str, second: str, other: str) -> dict[str, Any]:
    return BASE | {first: BASE[first] | {"choice": one}, second: BASE[second] | {"choice": other}}


@pytest.mark.parametrize(("first", "second"), PAIRS, ids="-".join)
def test_every_pair_of_choices_is_costed_as_it_is_built(first: str, second: str) -> None:
    for one, other in itertools.product(choices(first), choices(second)):
        found = list(as_built(resolve(model(first, one, second, other)).spec))
        assert len(found) >= 8
        assert [check for check in found if not check["ok"]] == [], (one, other)


@pytest.mark.parametrize("axis", AXES)
def test_every_choice_is_counted_as_torch_counts_it(axis: str) -> None:
    for name in choices(axis):
        found = verify_flops(resolve(BASE | {axis: BASE[axis] | {"choice": name}}).spec)
        assert all(check["expected"] > 0 for check in found)
        assert [check for check in found if not check["ok"]] == [], name
