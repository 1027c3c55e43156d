"""Logits equal those of the original implementations, on tiny models with random weights.

`logits_f64` was made with every step in float64, rotary tables included. The configs' fields are mapped by hand here,
so that what is compared is the module and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve

REFERENCES = Path(__file__).parents[1] / "data" / "references"
NAMES = sorted(folder.name for folder in REFERENCES.iterdir())
QK_NORM = {"qwen3": "head", "qwen3_moe": "head", "minimind": "head", "olmoe": "full"}
TOLERANCE = {torch.float64: ("logits_f64", 1e-9), torch.float32: ("logits_f32", 1e-4)}


def gpt2_model(config: dict[str, Any]) -> dict[str, Any]:
    biases = {f"{name}_bias": True for name in "qkvo"}
    return {
        "d_model": config["n_embd"],
        "n_layers": config["n_layer"],
        "vocab_size": config["vocab_size"],
        "context": config["n_positions"],
        "norm": {"choice": "layernorm", "eps": config["layer_norm_epsilon"]},
        "position": {"choice": "learned"},
        "attention": {"choice": "mha", "n_heads": config["n_head"], **biases},
        "ffn": {"choice": "gelu_tanh", "bias": True},
        "dropout": {"choice": "classic"},
        "head": {"choice": "tied"},
        "block": {"choice": "pre_norm"},
    }


def llama_model(config: dict[str, Any]) -> dict[str, Any]:
    attention = {
        "choice": "gqa",
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config.get("head_dim"),
        "qk_norm": QK_NORM.get(config["model_type"], "none"),
    }
    return {
        "d_model": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "vocab_size": config["vocab_size"],
        "context": config["max_position_embeddings"],
        "norm": {"choice": "rmsnorm", "eps": config["rms_norm_eps"]},
        "position": {"base": config["rope_theta"], **rope(config)},
        "attention": attention,
        "ffn": ffn(config),
        "dropout": {"choice": "none"},
        "head": {"choice": "tied" if config["tie_word_embeddings"] else "untied"},
        "block": {"choice": "pre_norm"},
    }


def ffn(config: dict[str, Any]) -> dict[str, Any]:
    experts = config.get("num_local_experts", config.get("num_experts"))
    if experts is None or not config.get("use_moe", True):  # a dense minimind names its experts too
        return {"choice": "swiglu", "d_ff": config["intermediate_size"]}
    return {
        "choice": "moe",
        "n_experts": experts,
        "experts_per_token": config["num_experts_per_tok"],
        "expert": {"choice": "swiglu", "d_ff": config.get("moe_intermediate_size", config["intermediate_size"])},
        "normalise": config.get("norm_topk_prob", True),
    }


def rope(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("inference_rope_scaling"):
        return {"choice": "yarn", "factor": 16, "original_context": 2048, "attention_factor": 1}
    scaling = dict(config.get("rope_scaling") or {})
    kind = scaling.pop("rope_type", None) or scaling.pop("type", "rope")
    original = scaling.pop("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    if original is not None:
        scaling["original_context"] = original
    return {"choice": {"dynamic": "ntk"}.get(kind, kind), **scaling}


def gpt2_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {
        "transformer.wte.": "embedding.",
        "transformer.wpe.": "positions.0.",
        "transformer.ln_f.": "final_norm.",
        "transformer.h.": "layers.",
        ".attn.c_attn.": ".attention.qkv.",
        ".attn.c_proj.": ".attention.o.",
        ".mlp.c_fc.": ".ffn.up.",
        ".mlp.c_proj.": ".ffn.down.",
        ".ln_1.": ".attention_norm.",
        ".ln_2.": ".ffn_norm.",
    }
    conv1d = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # [in, out], unlike Linear
    return {rename(name, names): t.T if name.endswith(conv1d) else t for name, t in weights.items()}


def llama_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {
        "model.embed_tokens.": "embedding.",
        "model.norm.": "final_norm.",
        "lm_head.": "head.",
        "model.layers.": "layers.",
        ".self_attn.qkv_proj.": ".attention.qkv.",
        ".self_attn.o_proj.": ".attention.o.",
        ".self_attn.": ".attention.",
        ".block_sparse_moe.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
        ".mlp.gate.": ".ffn.router.",
        ".mlp.gate_up_proj.": ".ffn.gate_up.",
        ".mlp.down_proj.": ".ffn.down.",
        ".mlp.": ".ffn.",
        ".input_layernorm.": ".attention_norm.",
        ".post_attention_layernorm.": ".ffn_norm.",
    }
    ours = {rename(name, names): tensor for name, tensor in weights.items()}
    fuse(ours, "attention.q_proj.", ("q_proj", "k_proj", "v_proj"), "qkv")
    fuse(ours, "gate_proj.", ("gate_proj", "up_proj"), "gate_up")
    stack_experts(ours)
    return ours


def rename(name: str, names: dict[str, str]) -> str:
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def fuse(weights: dict[str, Tensor], first: str, parts: tuple[str, ...], fused: str) -> None:
    """Join the rows of `parts` under `fused`, in place, wherever the first of them is."""
    for name in [name for name in weights if first in name]:
        rows = [weights.pop(name.replace(parts[0], part)) for part in parts]
        weights[name.replace(parts[0], fused)] = torch.cat(rows)


def stack_experts(weights: dict[str, Tensor]) -> None:
    """Join each layer's experts under one name, in place: `ffn.experts.3.down_proj.weight` is row 3 of `down`."""
    stacks: dict[str, list[Tensor]] = {}
    for name in sorted((name for name in weights if ".experts." in name), key=lambda name: int(name.split(".")[4])):
        layer, projection = name.split(".experts.")[0], name.split(".")[5].removesuffix("_proj")
        stacks.setdefault(f"{layer}.experts.{projection}", []).append(weights.pop(name))
    weights.update({name: torch.stack(parts) for name, parts in stacks.items()})


def load(name: str, dtype: torch.dtype) -> tuple[Decoder, Tensor, Tensor, float]:
    """The model in eval mode, its ids [2, 24], the logits it must give [2, 24, 128], and how closely."""
    config = json.loads((REFERENCES / name / "config.json").read_text())
    weights = load_file(REFERENCES / name / "model.safetensors")
    gpt2 = config["model_type"] == "gpt2"
    spec = resolve(gpt2_model(config) if gpt2 else llama_model(config)).spec
    decoder = build(spec, dtype=dtype)
    decoder.load_state_dict(gpt2_weights(weights) if gpt2 else llama_weights(weights))
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
