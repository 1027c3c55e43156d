"""DeepSeek-MoE 16B and MiniMind against the plain modules of `plain.py`, over random small configs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import plain
import pytest
import torch
from safetensors.torch import save_file

from archlab.cost.params import parameters
from archlab.decoder.cache import KVCache
from archlab.interop.export import export
from archlab.interop.hub import load_config
from archlab.model import build

SEEDS = range(12)
TOKENS = 20
DYNAMIC, LINEAR = {"type": "dynamic", "factor": 3.0}, {"type": "linear", "factor": 2.5}


def common(draw: random.Random) -> dict[str, Any]:
    heads, width = draw.choice([2, 4, 6]), draw.choice([4, 8, 16])
    return {
        "hidden_size": heads * width,
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([n for n in (1, 2, heads) if heads % n == 0]),
        "num_hidden_layers": draw.randint(2, 5),
        "vocab_size": 61,
        "moe_intermediate_size": draw.choice([5, 12]),
        "num_experts_per_tok": draw.randint(1, 3),
        "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "rope_theta": draw.choice([300.0, 1000.0, 10000.0, 1e6]),
        "hidden_act": draw.choice(["silu", "silu", "gelu"]),
    }


def deepseek(seed: int) -> dict[str, Any]:
    """The seed's bits switch biases, renormalising and the tie; the rest is drawn."""
    draw = random.Random(f"deepseek-{seed}")
    return {
        "model_type": "deepseek",
        **common(draw),
        "intermediate_size": draw.choice([24, 30]),
        "max_position_embeddings": draw.choice([16, 64]),
        "n_routed_experts": draw.randint(3, 6),
        "n_shared_experts": draw.choice([None, 1, 2]),
        "first_k_dense_replace": draw.randint(0, 2),
        "moe_layer_freq": draw.randint(1, 3),
        "norm_topk_prob": bool(seed & 1),
        "attention_bias": bool(seed & 2),
        "tie_word_embeddings": bool(seed & 4),
        "scoring_func": "softmax",
        "rope_scaling": draw.choice([None, LINEAR, DYNAMIC]),
    }


def minimind(seed: int) -> dict[str, Any]:
    """The seed's bits switch the experts, YaRN and renormalising; the rest is drawn."""
    draw = random.Random(f"minimind-{seed}")
    return {
        "model_type": "minimind",
        **common(draw),
        "head_dim": draw.choice([8, 16]),
        **draw.choice([{}, {"intermediate_size": 40}]),
        "max_position_embeddings": draw.choice([64, 4096, 32768]),
        "num_experts": draw.randint(3, 5),
        "use_moe": bool(seed & 1),
        "inference_rope_scaling": bool(seed & 2),
        "norm_topk_prob": bool(seed & 4),
        "tie_word_embeddings": draw.choice([True, False]),
        "rope_scaling": None,
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", [deepseek, minimind])
@torch.no_grad()
def test_logits_equal_those_of_the_plain_module(family: Any, seed: int, tmp_path: Path) -> None:
    config = family(seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in plain.shapes(config).items()
    }
    ids = torch.randint(config["vocab_size"], (2, TOKENS), generator=generator)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(weights, tmp_path / "model.safetensors")

    spec = load_config(tmp_path).spec
    assert parameters(spec).total == sum(tensor.numel() for tensor in weights.values())
    decoder = build(spec, dtype=torch.float64, weights=tmp_path).eval()
    expected = plain.logits(config, weights, ids)
    assert (decoder(ids) - expected).abs().max() <= 1e-9

    assert export(spec)["model_type"] == config["model_type"]  # it is read back before it is handed out

    cache = KVCache(spec, *ids.shape, torch.float64)
    given = torch.cat([decoder(part, cache) for part in ids.split([7, 1, 1, 9, 2], 1)], 1)
    assert (given - expected).abs().max() <= 1e-9


def test_the_draws_switch_every_option() -> None:
    for family, switches in ((deepseek, ("norm_topk_prob", "attention_bias")), (minimind, ("use_moe",))):
        drawn = [family(seed) for seed in SEEDS]
        names = ("num_experts_per_tok", "rope_theta", "tie_word_embeddings", "max_position_embeddings", *switches)
        assert all(len({config[name] for config in drawn}) > 1 for name in names)
    assert {1, 2, 3} == {deepseek(seed)["moe_layer_freq"] for seed in SEEDS}
    assert {None, "linear", "dynamic"} == {(deepseek(s)["rope_scaling"] or {}).get("type") for s in SEEDS}
