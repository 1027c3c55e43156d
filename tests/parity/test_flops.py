"""Matmul FLOPs, the full convention, against torch's counter over transformers' own models.

Eager attention and batched experts: the counter misses the fused and the grouped products. On the CPU, because their
masks read values, which the meta device has not; the count is of shapes and is the same.
"""

import json

import pytest
import torch
from imported import DATA, REFERENCES
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

import archlab
from archlab.interop.hub import load_config

pytestmark = pytest.mark.slow  # live, beside transformers

TOKENS = 12
CONFIGS = {name: json.loads((DATA / "references" / name / "config.json").read_text()) for name in REFERENCES}
THEIRS = [name for name, config in CONFIGS.items() if not config["model_type"].startswith("minimind")]


@pytest.mark.parametrize("name", THEIRS)
def test_full_flops_equal_the_counter(name: str) -> None:
    config = AutoConfig.from_pretrained(DATA / "references" / name)
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.zeros(1, TOKENS, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids, use_cache=False)
    spec = load_config(DATA / "references" / name).spec
    assert archlab.flops(spec, batch=1, prompt=TOKENS, new=0).prefill == counter.get_total_flops()
