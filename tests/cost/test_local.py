"""What windows and chunks save on paper: KV bytes and FLOPs of the public cases, and of the module that runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from archlab.cost.figures import exact_figures
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.verify import verify
from archlab.workload import Workload


def spec(n_layers: int, attention: dict[str, Any], layers: list[dict[str, Any]] | None = None, **sizes: Any) -> Any:
    model = {
        "d_model": 64,
        "n_layers": n_layers,
        "vocab_size": 11,
        "context": 64,
        "norm": {"choice": "rmsnorm"},
        "position": {"choice": "rope"},
        "attention": {"choice": "gqa", "n_heads": 8, **attention},
        "ffn": {"choice": "swiglu", "d_ff": 20},
        "dropout": {"choice": "none"},
        "head": {"choice": "tied"},
        "block": {"choice": "pre_norm"},
        "layers": layers,
    }
    return resolve(model | sizes).spec


def test_mistral_stops_growing_at_its_window() -> None:
    model = spec(32, {"n_heads": 32, "n_kv_heads": 8, "head_dim": 128, "window": 4096})
    assert kv_cache(model, 1, 32_768).bytes == 536_870_912


def test_b28_the_window_counts_the_current_token_where_transformers_keeps_one_less() -> None:
    from transformers import DynamicCache, MistralConfig

    theirs = DynamicCache(config=MistralConfig(sliding_window=8, num_hidden_layers=1, attn_implementation="eager"))
    for _ in range(20):
        read, _ = theirs.update(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)
    assert (read.shape[2], theirs.layers[0].keys.shape[2]) == (8, 7)
    cost = kv_cache(spec(1, {"n_kv_heads": 2, "head_dim": 4, "window": 8}), 1, 20, "fp32")
    assert cost.by_layer[0].tokens == read.shape[2]
    assert cost.bytes == cost.allocated == 2 * read.nbytes
    figures = exact_figures(spec(1, {"window": 8}), Workload())
    said = [figure.how for name, figure in figures.items() if name.startswith("kv_bytes.")]
    assert said
    assert all("window or chunk at most, the current token included" in how for how in said)


def test_what_is_allocated_is_what_the_tensors_take() -> None:
    for attention in ({"window": 5}, {"chunk": 5}, {"choice": "mla"}, {"choice": "mla", "cache": "expanded"}):
        model = spec(3, attention, [{}, {"position": {"base": 50.0}}])
        for length in (1, 4, 5, 6, 64):
            assert KVCache(model, 2, length, "bf16", "meta").nbytes == kv_cache(model, 2, length).allocated
        assert all(check["ok"] for check in verify(model).checks)


def counted(model: DecoderSpec, prompt: int) -> tuple[int, int]:
    decoder = build(model, device="meta").eval()
    for layer in decoder.layers:
        layer.attention.backend = "math"
    cache = KVCache(model, 1, prompt + 1, device="meta")
    found = []
    for count in (prompt, 1):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            decoder(torch.zeros(1, count, dtype=torch.int64, device="meta"), cache)
        found.append(counter.get_total_flops())
    return found[0], found[1]


@pytest.mark.parametrize(
    ("attention", "first", "then"),
    [
        ({"window": 5}, 10 + 5 * 16, 5),  # 1, 2, 3, 4, then 5 each
        ({"chunk": 5}, 4 * 15, 1),
        ({}, 210, 21),
    ],
)
def test_pairs_in_sight(attention: dict[str, int], first: int, then: int) -> None:
    """20 tokens, then one. Full is what the counter counts; causal leaves out what no query sees; decoding agrees."""
    model = spec(2, attention)
    full, causal = flops(model, 1, 20, 1, "full"), flops(model, 1, 20, 1, "causal")
    assert (full.prefill, full.decode) == counted(model, 20)
    assert full.prefill - causal.prefill == 2 * 4 * 64 * (400 - first)
    assert full.decode == causal.decode
    assert full.decode - flops(spec(2, {"window": 1}), 1, 20, 1).decode == 2 * 4 * 64 * (then - 1)


def test_latent_attention_decodes_over_its_latents() -> None:
    sizes = {"kv_rank": 16, "nope_dim": 6, "rope_dim": 4, "v_dim": 5}
    latent, expanded = (spec(1, {"choice": "mla", "cache": kept, **sizes}) for kept in ("latent", "expanded"))
    for model in (latent, expanded):
        cost = flops(model, 1, 20, 1)
        assert (cost.prefill, cost.decode) == counted(model, 20)
    assert flops(latent, 1, 20, 0) == flops(expanded, 1, 20, 0)
    more = flops(latent, 1, 20, 1).decode - flops(expanded, 1, 20, 1).decode
    assert more == 2 * 8 * 21 * ((16 + 4 + 16) - (6 + 4 + 5))
