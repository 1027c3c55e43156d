"""What transformers caches, counted in its tensors, against what archlab says is required: every family.

On the meta device; where a rotation asks for the length that it gets (dynamic NTK), on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from imported import spec_of
from test_families import CASES, NAMED
from transformers import AutoConfig, AutoModelForCausalLM

from archlab.cost.kv import kv_cache

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.past_key_values:FutureWarning")]  # live

BATCH = 2
SHORT, LONG = 2, 20
"""Tokens below the window of every case, but for one of 1, and above it, but for gpt-oss's default of 128."""


def cached(name: str, given: dict[str, Any], tokens: int) -> list[tuple[int, int, int | None]]:
    """Bytes, tokens and window of each layer's cache after a prefill and one step, `tokens` in all."""
    dynamic = (given.get("rope_parameters") or {}).get("rope_type") == "dynamic"
    with torch.device("cpu" if dynamic else "meta"), torch.no_grad():
        config = AutoConfig.for_model(name, **given)
        config._experts_implementation = "batched_mm"  # grouped products want aligned widths
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        cache = model(torch.zeros(BATCH, tokens - 1, dtype=torch.int64), use_cache=True).past_key_values
        model(torch.zeros(BATCH, 1, dtype=torch.int64), past_key_values=cache, use_cache=True)
    return [
        (layer.keys.nbytes + layer.values.nbytes, layer.keys.shape[-2], getattr(layer, "sliding_window", None))
        for layer in cache.layers
    ]


@pytest.mark.parametrize("tokens", [SHORT, LONG])
@pytest.mark.parametrize(("name", "index"), NAMED)
def test_required_is_what_transformers_caches_and_one_token_more_in_a_full_window(
    name: str, index: int, tokens: int
) -> None:
    """It holds W - 1 tokens between steps, and all of them where W is 1, whose slice [-0:] cuts nothing.

    Falcon's new decoder repeats its keys for each query head before it caches them: so many times what is required.
    """
    given = CASES[name][index]
    spec = spec_of({**AutoConfig.for_model(name, **given).to_dict(), "model_type": name})
    theirs = cached(name, given, tokens)
    repeats = given["num_attention_heads"] // given["num_kv_heads"] if given.get("new_decoder_architecture") else 1
    required = 0
    for (size, held, window), layer in zip(theirs, spec.layers, strict=True):
        assert layer.attention.locality.limit == window
        assert held == (tokens if window in (None, 1) else min(tokens, window - 1))
        required += size // held * min(tokens, window or tokens) // repeats
    assert kv_cache(spec, BATCH, tokens).required == required


def test_every_window_is_passed_and_not_reached() -> None:
    windows = {window for cases in CASES.values() for given in cases if (window := given.get("sliding_window"))}
    assert min(windows - {1}) > SHORT
    assert max(windows) < LONG
