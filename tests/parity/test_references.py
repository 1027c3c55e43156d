"""Logits equal those of the original implementations, on tiny models with random weights.

`logits_f64` was made with every step in float64, rotary tables included.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from families import MODELS, our_weights
from safetensors.torch import load_file
from torch import Tensor

from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve

REFERENCES = Path(__file__).parents[1] / "data" / "references"
CONFIGS = {folder.name: json.loads((folder / "config.json").read_text()) for folder in REFERENCES.iterdir()}
NAMES = sorted(name for name, config in CONFIGS.items() if config["model_type"] in MODELS and not config.get("use_moe"))
TOLERANCE = {torch.float64: ("logits_f64", 1e-9), torch.float32: ("logits_f32", 1e-4)}


def load(name: str, dtype: torch.dtype) -> tuple[Decoder, Tensor, Tensor, float]:
    """The model in eval mode, its ids [2, 24], the logits it must give [2, 24, 128], and how closely."""
    config = CONFIGS[name]
    weights = load_file(REFERENCES / name / "model.safetensors")
    spec = resolve(MODELS[config["model_type"]](config)).spec
    decoder = build(spec, dtype=dtype)
    decoder.load_state_dict(our_weights(config, weights))
    logits, tolerance = TOLERANCE[dtype]
    reference = load_file(REFERENCES / name / "ref.safetensors")
    return decoder.eval(), reference["input_ids"], reference[logits], tolerance


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_without_a_cache(name: str, dtype: torch.dtype) -> None:
    decoder, ids, logits, tolerance = load(name, dtype)
    assert (decoder(ids) - logits).abs().max() <= tolerance


@pytest.mark.parametrize("static", [False, True], ids=["eager", "static"])
@pytest.mark.parametrize("chunks", [[1] * 24, [5, 1, 7, 11], [24]], ids=["one", "chunks", "whole"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_with_a_cache(name: str, dtype: torch.dtype, chunks: list[int], static: bool) -> None:
    decoder, ids, logits, tolerance = load(name, dtype)
    cache = KVCache(decoder.spec, *ids.shape, dtype, static=static)
    given = torch.cat([decoder(part, cache) for part in ids.split(chunks, 1)], 1)
    assert (given - logits).abs().max() <= tolerance
    assert cache.held == 24


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_with_the_explicit_softmax(name: str) -> None:
    decoder, ids, logits, tolerance = load(name, torch.float64)
    for layer in decoder.layers:
        layer.attention.backend = "math"
    assert (decoder(ids) - logits).abs().max() <= tolerance
