"""Logits equal those of the original implementations, on tiny models with random weights, through the real loader.

`logits_f64` was made with every step in float64, rotary tables included.
"""

from __future__ import annotations

import pytest
import torch
from imported import DATA, REFERENCES
from safetensors.torch import load_file
from torch import Tensor

from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.interop.hub import load_config
from archlab.model import build

TOLERANCE = {torch.float64: ("logits_f64", 1e-9), torch.float32: ("logits_f32", 1e-4)}


def load(name: str, dtype: torch.dtype, config: str = "config.json") -> tuple[Decoder, Tensor, Tensor, float]:
    """The model in eval mode, its ids [2, 24], the logits it must give [2, 24, 128], and how closely."""
    folder = DATA / "references" / name
    spec = load_config(folder / config).spec
    decoder = build(spec, dtype=dtype, weights=folder)
    logits, tolerance = TOLERANCE[dtype]
    reference = load_file(folder / "ref.safetensors")
    return decoder.eval(), reference["input_ids"], reference[logits], tolerance


@pytest.mark.parametrize("config", ["config.json", "config_v5.json"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", REFERENCES)
@torch.no_grad()
def test_logits_without_a_cache(name: str, dtype: torch.dtype, config: str) -> None:
    decoder, ids, logits, tolerance = load(name, dtype, config)
    assert (decoder(ids) - logits).abs().max() <= tolerance


@pytest.mark.parametrize("static", [False, True], ids=["eager", "static"])
@pytest.mark.parametrize("chunks", [[1] * 24, [5, 1, 7, 11], [24]], ids=["one", "chunks", "whole"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", REFERENCES)
@torch.no_grad()
def test_logits_with_a_cache(name: str, dtype: torch.dtype, chunks: list[int], static: bool) -> None:
    decoder, ids, logits, tolerance = load(name, dtype)
    cache = KVCache(decoder.spec, *ids.shape, dtype, static=static)
    given = torch.cat([decoder(part, cache) for part in ids.split(chunks, 1)], 1)
    assert (given - logits).abs().max() <= tolerance
    assert cache.held == 24


@pytest.mark.parametrize("name", REFERENCES)
@torch.no_grad()
def test_logits_with_the_explicit_softmax(name: str) -> None:
    decoder, ids, logits, tolerance = load(name, torch.float64)
    for layer in decoder.layers:
        layer.attention.backend = "math"
    assert (decoder(ids) - logits).abs().max() <= tolerance
