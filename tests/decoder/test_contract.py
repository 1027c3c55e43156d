"""Every pair of registered choices: on paper = built, so that no choice can be added half-costed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.build import build, parameters_by_part
from archlab.decoder.cache import KVCache
from archlab.decoder.resolve import resolve
from archlab.registry import AXES, choices

BASE: dict[str, Any] = {
    "d_model": 12,
    "n_layers": 2,
    "vocab_size": 11,
    "context": 8,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "rope_dim": 6, "qk_norm": "head"},
    "ffn": {"choice": "swiglu", "d_ff": 20},
    "dropout": {"choice": "classic"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
PAIRS = list(itertools.combinations(AXES, 2))


def model(first: str, one: str, second: str, other: str) -> dict[str, Any]:
    return BASE | {first: BASE[first] | {"choice": one}, second: BASE[second] | {"choice": other}}


@pytest.mark.parametrize(("first", "second"), PAIRS, ids="-".join)
def test_every_pair_of_choices_is_costed_as_it_is_built(first: str, second: str) -> None:
    for one, other in itertools.product(choices(first), choices(second)):
        spec = resolve(model(first, one, second, other)).spec
        decoder = build(spec, device="meta")
        cache = KVCache(spec, 2, 8, "bf16", "meta")
        assert parameters_by_part(decoder) == parameters(spec).by_part, (one, other)
        assert cache.nbytes == kv_cache(spec, 2, 8, "bf16").bytes, (one, other)


@pytest.mark.parametrize("axis", AXES)
def test_every_choice_is_counted_as_torch_counts_it(axis: str) -> None:
    for name in choices(axis):
        spec = resolve(BASE | {axis: BASE[axis] | {"choice": name}}).spec
        decoder = build(spec, device="meta").eval()
        for layer in decoder.layers:
            layer.attention.backend = "math"
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            decoder(torch.zeros(2, 7, dtype=torch.int64, device="meta"))
        assert counter.get_total_flops() == flops(spec, 2, 7, 0).prefill, name
