"""What a layer makes while it runs: archlab's own way against a serving engine's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONTEXT, specs

import archlab
from archlab import presets
from archlab.cost.memory import Inference
from archlab.cost.working import engine_elements, running


def check_no_more(spec, batch, length):
    work = Inference(batch, length, length)
    fused = 2 * batch * length * engine_elements(spec)
    assert fused <= running([layer for layer, _ in spec.layer_kinds], work), spec.name


@given(specs(), st.integers(1, 3), st.integers(1, CONTEXT))
def test_fused_kernels_hold_no_more_than_what_runs_one_by_one(spec, batch, length):
    check_no_more(spec, batch, length)


@pytest.mark.parametrize("preset", presets.names())
def test_fused_kernels_hold_no_more_of_a_preset(preset):
    check_no_more(archlab.load(preset), 1, 512)
