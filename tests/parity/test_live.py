"""Logits equal those of transformers, built here: options that no reference has, random weights, float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import MODELS, our_weights
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

from archlab.components.attention.module import SelfAttention, Step
from archlab.components.position.module import Rotation
from archlab.components.span import Span
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache, LayerCache
from archlab.decoder.resolve import resolve

pytestmark = pytest.mark.slow  # live, beside transformers

LENGTH = 24
LLAMA = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "vocab_size": 64,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-6,
}
GEMMA2 = {
    "head_dim": 16,
    "query_pre_attn_scalar": 10,
    "sliding_window": 6,
    "hidden_activation": "gelu_pytorch_tanh",
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
STABLELM = {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "tie_word_embeddings": False}
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
FALCON |= {"layer_norm_epsilon": 1e-5, "new_decoder_architecture": False}
MPT = {"n_layers": 2, "vocab_size": 64, "max_seq_len": 32, "expansion_ratio": 4}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("gemma2", LLAMA | GEMMA2),
    "gemma2, logits free": ("gemma2", LLAMA | GEMMA2 | {"final_logit_softcapping": None}),
    "cohere, norms a head": ("cohere", LLAMA | {"use_qk_norm": True, "logit_scale": 0.3, "layer_norm_eps": 1e-5}),
    "stablelm": (
        "stablelm",
        LLAMA | STABLELM | {"use_qkv_bias": True, "qk_layernorm": False, "use_parallel_residual": False},
    ),
    "stablelm, norms a head": (
        "stablelm",
        LLAMA | STABLELM | {"use_qkv_bias": False, "qk_layernorm": True, "use_parallel_residual": True},
    ),
    "olmo, clipped": ("olmo", LLAMA | {"clip_qkv": 0.4, "tie_word_embeddings": False}),
    "mistral, window 1": ("mistral", LLAMA | {"sliding_window": 1, "tie_word_embeddings": False}),
    "mistral, window 23": ("mistral", LLAMA | {"sliding_window": 23, "tie_word_embeddings": False}),
    "bloom, 6 heads": (
        "bloom",
        {"hidden_size": 48, "n_layer": 2, "n_head": 6, "num_attention_heads": 6, "vocab_size": 64},
    ),
    "mpt, 6 heads, clipped": (
        "mpt",
        MPT | {"d_model": 48, "n_heads": 6, "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": 0.5}},
    ),
    "falcon, alibi": (
        "falcon",
        FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "falcon, one key head": (
        "falcon",
        FALCON | {"alibi": False, "multi_query": True, "parallel_attn": True, "bias": True},
    ),
}


@torch.no_grad()
def spread(module: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3 * noise + 0.5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_logits_are_those_of_transformers(case: str, seed: int) -> None:
    kind, config = CASES[case]
    # transformers 5.24 adds Falcon's ALiBi twice in eager attention, in the mask and beside it; once in sdpa
    implementation = "sdpa" if config.get("alibi") else "eager"
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config), attn_implementation=implementation)
    theirs.eval()
    spread(theirs, seed)
    weights = dict(theirs.state_dict())
    model = MODELS[kind](config | {"model_type": kind})
    if model["head"]["choice"] == "tied":
        weights.pop("lm_head.weight")
    ours = build(resolve(model).spec).eval()
    ours.load_state_dict(our_weights(config | {"model_type": kind}, weights))
    ids = torch.randint(0, 64, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    wanted = theirs(ids, use_cache=False).logits
    assert wanted.std() > 0.1
    assert (ours(ids) - wanted).abs().max() <= 1e-4
    for chunks in ([1] * LENGTH, [7, 1, 9, 7]):
        cache = KVCache(ours.spec, 2, LENGTH)
        assert (torch.cat([ours(part, cache) for part in ids.split(chunks, 1)], 1) - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("backend", ["sdpa", "math"])
@pytest.mark.parametrize("window", [None, 5])
@torch.no_grad()
def test_attention_is_that_of_gpt_oss(window: int | None, backend: str) -> None:
    """Sinks and a window, in float64."""
    config = GptOssConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=5)
    config.layer_types = ["full_attention" if window is None else "sliding_attention"]
    config._attn_implementation = "eager"
    theirs = GptOssAttention(config, 0)
    spread(theirs, 1)
    theirs.double().eval()
    attention = {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, "head_dim": 8, "window": window, "sinks": True}
    attention |= {f"{name}_bias": True for name in "qkvo"} | {"backend": backend}
    axes = {"position": {"choice": "none"}, "attention": attention, "head": {"choice": "tied"}}
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 5, "max_position_embeddings": 64}
    model = MODELS["llama"]({**LLAMA, **sizes}) | axes
    layer = resolve(model).spec.layers[0]
    ours = SelfAttention(layer.attention, layer.dropout).double().eval()
    state = {f"layers.0.self_attn.{name}": tensor for name, tensor in theirs.state_dict().items()}
    found = our_weights({"model_type": "llama"}, state | {"model.embed_tokens.weight": torch.empty(0)})
    prefix = "layers.0.attention."
    ours.load_state_dict({name.removeprefix(prefix): t for name, t in found.items() if name.startswith(prefix)})
    assert ours.backend_used == backend
    x, places = torch.randn(2, LENGTH, 32).double(), torch.arange(LENGTH)
    seen = layer.attention.locality.visible(places, places)
    turn = torch.outer(places.double(), 100.0 ** (-torch.arange(0, 8, 2).double() / 8))
    mask = torch.zeros(seen.shape).double().masked_fill(~seen, torch.finfo(torch.float64).min)[None, None]
    wanted = theirs(x, position_embeddings=(turn.cos()[None], turn.sin()[None]), attention_mask=mask)[0]
    tensors = {kept.name: torch.zeros(2, 2, window or LENGTH, 8).double() for kept in layer.attention.cached()}
    given: list[Tensor] = []
    for start in range(LENGTH):
        span = Span(start, 1)
        rotation = Rotation(turn[start : start + 1].cos(), turn[start : start + 1].sin(), interleaved=False)
        memory = LayerCache(tensors, span, layer.attention.locality)
        given.append(ours(x[:, start : start + 1], Step(rotation, None, memory)))
    whole = ours(x, Step(Rotation(turn.cos(), turn.sin(), interleaved=False), seen))
    assert (whole - wanted).abs().max() <= 1e-12
    assert (torch.cat(given, 1) - wanted).abs().max() <= 1e-12
