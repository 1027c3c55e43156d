"""Rotary tables of every family against those of transformers' own module of that family, under every scaling.

Tables and not only logits: a wrong table that both sides are given goes unseen. Each side makes its own from the same
config; transformers in float64, as in `test_families.py`.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from imported import spec_of
from test_families import CASES, GROUPED, SMALL, UNSIZED, doubled
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from archlab.components.span import Span
from archlab.model import build

pytestmark = pytest.mark.slow  # live, beside transformers

BEFORE = 16
LENGTHS = (12, 40, 100)
"""Within the context before the stretch, within the whole of 48, and past it."""

PAIRS = dict.fromkeys(("phi", "stablelm", "gpt_neox", "glm", "glm4"), 2)
"""Rotated pairs of a head of 8 features where only some are rotated; else 4."""

EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4}
RANKS = {"kv_lora_rank": 12, "qk_nope_head_dim": 4, "qk_rope_head_dim": 8, "v_head_dim": 6, "q_lora_rank": None}
LATENT = {**SMALL, **RANKS, **EXPERTS}
HEADS = {**GROUPED, "head_dim": 8}
SIZES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gemma", "gemma2", "qwen3", "qwen3_moe", "glm", "glm4", "gpt_oss", "mixtral"), HEADS),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), LATENT),
    "falcon": UNSIZED,
    "phi": {**GROUPED, "partial_rotary_factor": 0.5},
    "stablelm": {**GROUPED, "partial_rotary_factor": 0.5},
    "gpt_neox": {**SMALL, "rotary_pct": 0.5},
    "phi3": {**GROUPED, "original_max_position_embeddings": BEFORE},
}
"""GROUPED, unless the family wants something else."""

SCALED = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "phi", "phi3"),
    *("gpt_neox", "falcon", "starcoder2", "olmo", "olmo2", "olmoe", "stablelm", "glm", "glm4", "granite", "cohere"),
    *("deepseek_v2", "deepseek_v3", "gpt_oss", "smollm3"),
)
"""Families whose rotation can be scaled, all layers alike."""

ROTATED = (*SCALED, "gemma3_text", "gptj")
INTERLEAVED = ("gptj", "cohere", "glm", "glm4", "deepseek_v2", "deepseek_v3")
"""Families whose pairs are neighbours; the others' are half a head apart."""

ORIGINAL = {"original_max_position_embeddings": BEFORE}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 2.5},
    "dynamic": {"factor": 3.0},
    "yarn": {"factor": 3.0, "beta_fast": 2.0, "beta_slow": 0.5, **ORIGINAL},
    "yarn-mscale": {"factor": 3.0, "mscale": 0.8, "mscale_all_dim": 0.6, "truncate": False, **ORIGINAL},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "longrope": {**ORIGINAL},
}
CONFIGS = [(name, config) for name in ROTATED for config in CASES[name] if not config.get("alibi")]
SCALED_CASES = [(name, kind) for name in SCALED for kind in SCALINGS if name != "phi3" or kind == "longrope"]
"""Phi-3 knows one scaling."""


def scaled(name: str, kind: str) -> dict[str, Any]:
    """A small config of the family with that scaling."""
    parameters = {"rope_type": kind.split("-")[0], "rope_theta": 300.0, **SCALINGS[kind]}
    pairs = PAIRS.get(name, 4)
    if kind == "longrope":
        parameters |= {"short_factor": [1.0, 1.1, 1.3, 1.6][:pairs], "long_factor": [1.0, 2.0, 3.5, 5.0][:pairs]}
    return {**SIZES.get(name, GROUPED), "rope_parameters": parameters}


def by_pair(name: str, table: Tensor) -> Tensor:
    """[n, pairs] of a table that may hold each pair's column twice: side by side in Cohere, else half by half."""
    if name in ("gptj", "gpt_oss", "deepseek_v2"):  # one column a pair
        return table
    first, second = (table[:, 0::2], table[:, 1::2]) if name == "cohere" else table.chunk(2, -1)
    assert torch.equal(first, second)
    return first


def their_table(name: str, module: nn.Module, length: int, *layer_type: str) -> tuple[Tensor, Tensor]:
    """cos and sin [length, pairs] of a family's rotary module; GPT-J gives sin first, DeepSeek-V2 complex numbers."""
    with doubled():
        table = module(torch.zeros(1, dtype=torch.float64), torch.arange(length)[None], *layer_type)
    cos, sin = (table.real, table.imag) if torch.is_tensor(table) else table[::-1] if name == "gptj" else table
    return by_pair(name, cos[0]), by_pair(name, sin[0])


def compare(name: str, given: dict[str, Any], lengths: Sequence[int] = LENGTHS) -> None:
    """Every layer's table, over the positions of runs of these lengths, the shortest first."""
    config = AutoConfig.for_model(name, **given)
    with doubled():
        module = AutoModel.from_config(config).rotary_emb
    typed = "layer_type" in inspect.signature(module.forward).parameters
    decoder = build(spec_of(json.loads(config.to_json_string())), dtype=torch.float64)
    for length, (layer, kind) in itertools.product(lengths, enumerate(decoder.position_of)):
        position = decoder.positions[kind]
        position.reach(length)
        ours = position.rotation(Span(0, length))
        if name == "smollm3" and not config.no_rope_layers[layer]:
            assert ours is None
            continue
        assert ours.interleaved == (name in INTERLEAVED and getattr(config, "rope_interleave", True))
        theirs = their_table(name, module, length, *([config.layer_types[layer]] if typed else []))
        torch.testing.assert_close((ours.cos, ours.sin), theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("name", "kind"), SCALED_CASES)
def test_a_scaled_table_is_that_of_the_familys_own_module(name: str, kind: str) -> None:
    compare(name, scaled(name, kind))


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_a_familys_table_is_that_of_its_own_module(name: str, config: dict[str, Any]) -> None:
    compare(name, config, LENGTHS if name != "gptj" else LENGTHS[:2])  # GPT-J's table ends with the context


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_both_bases_of_gemma_3_are_those_of_its_own_module(kind: str) -> None:
    whole = {"rope_type": kind, "rope_theta": 500.0, **SCALINGS[kind]}
    local = {"rope_type": "default", "rope_theta": 50.0}
    bases = {"full_attention": whole, "sliding_attention": local}
    compare("gemma3_text", {**HEADS, "sliding_window_pattern": 2, "rope_parameters": bases})


def test_every_family_that_rotates_is_here() -> None:
    assert set(ROTATED) == set(CASES) - {"gpt2", "opt", "bloom", "mpt"}
