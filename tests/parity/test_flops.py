"""Matmul FLOPs, the full convention, against torch's counter over transformers' own models, on the meta device.

Eager attention and batched experts: the counter misses the fused and the grouped products.
"""

import json

import pytest
import torch
from imported import DATA, REFERENCES, spec_of
from test_families import CASES as SMALL
from test_families import NAMED
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

import archlab

pytestmark = pytest.mark.slow  # live, beside transformers

TOKENS = 12
KERNELS = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}


def device_of(config):
    """meta, but the CPU where the rotation grows with the run: transformers reads the positions' values for it."""
    rope = getattr(config, "rope_parameters", None) or {}
    return "cpu" if rope.get("rope_type") == "dynamic" else "meta"


def counted(config):
    """What torch counts in one pass of TOKENS tokens.

    With a mask: without one, transformers looks for packed sequences in the positions' values, which meta has not.
    """
    with torch.device(device_of(config)):
        model = AutoModelForCausalLM.from_config(config, **KERNELS).eval()
        ids = torch.zeros(1, TOKENS, dtype=torch.int64)
        mask = torch.ones(1, TOKENS)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(ids, attention_mask=mask, use_cache=False)
    return counter.get_total_flops()


def check(config):
    spec = spec_of(json.loads(config.to_json_string()))
    assert archlab.flops(spec, batch=1, prompt=TOKENS, new=0).prefill == counted(config)


@pytest.mark.parametrize(("name", "index"), NAMED)
def test_full_flops_of_every_family_equal_the_counter(name, index):
    check(AutoConfig.for_model(name, **SMALL[name][index]))


@pytest.mark.parametrize("name", [name for name in REFERENCES if not name.startswith("minimind")])
def test_full_flops_of_a_reference_equal_the_counter(name):
    check(AutoConfig.from_pretrained(DATA / "references" / name))
