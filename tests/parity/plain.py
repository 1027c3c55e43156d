"""DeepSeek-MoE 16B and MiniMind, which transformers lacks, written out in plain float64; nothing of archlab is used.

A model is its config.json and its tensors under the hub's names. From Dai et al. 2024 (DeepSeekMoE), sections 2 and
3, and from the settings that both projects publish: LLaMA's layers, MiniMind with an RMSNorm over each head of queries
and keys. What is a loop here (heads, experts) is meant to be slow and easy to check by eye.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Config = Mapping[str, Any]
Weights = Mapping[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}


def head_dim(c: Config) -> int:
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def routed(c: Config, layer: int) -> bool:
    """Whether a layer has experts. DeepSeek: those past the first dense ones whose number the step divides."""
    if c["model_type"] == "minimind":
        return c["use_moe"]
    return layer >= c["first_k_dense_replace"] and layer % c["moe_layer_freq"] == 0


def n_experts(c: Config) -> int:
    return c["num_experts"] if c["model_type"] == "minimind" else c["n_routed_experts"]


def shapes(c: Config) -> Shapes:
    """Every tensor of the model, [out, in]."""
    d, vocab = c["hidden_size"], c["vocab_size"]
    found: Shapes = {"model.embed_tokens.weight": (vocab, d), "model.norm.weight": (d,)}
    if not c["tie_word_embeddings"]:
        found["lm_head.weight"] = (vocab, d)
    for layer in range(c["num_hidden_layers"]):
        inside = attention_shapes(c) | (mixture_shapes(c) if routed(c, layer) else gated_shapes(c, "mlp", d_ff(c)))
        inside |= {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in inside.items()}
    return found


def attention_shapes(c: Config) -> Shapes:
    d, width = c["hidden_size"], head_dim(c)
    q, kv = c["num_attention_heads"] * width, c["num_key_value_heads"] * width
    weights = {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q)}
    found: Shapes = {f"self_attn.{name}.weight": shape for name, shape in weights.items()}
    if c.get("attention_bias"):
        found |= {f"self_attn.{name}.bias": shape[:1] for name, shape in weights.items()}
    if c["model_type"] == "minimind":
        found |= {f"self_attn.{name}_norm.weight": (width,) for name in "qk"}
    return found


def d_ff(c: Config) -> int:
    """MiniMind's own width is pi times the model's, up to a multiple of 64."""
    return c.get("intermediate_size") or 64 * math.ceil(math.pi * c["hidden_size"] / 64)


def gated_shapes(c: Config, where: str, width: int) -> Shapes:
    d = c["hidden_size"]
    weights = {"gate_proj": (width, d), "up_proj": (width, d), "down_proj": (d, width)}
    return {f"{where}.{name}.weight": shape for name, shape in weights.items()}


def mixture_shapes(c: Config) -> Shapes:
    width = c.get("moe_intermediate_size") or d_ff(c)
    found: Shapes = {"mlp.gate.weight": (n_experts(c), c["hidden_size"])}
    for expert in range(n_experts(c)):
        found |= gated_shapes(c, f"mlp.experts.{expert}", width)
    shared = c.get("n_shared_experts")
    return found | (gated_shapes(c, "mlp.shared_experts", shared * width) if shared else {})


def logits(c: Config, w: Weights, ids: Tensor) -> Tensor:
    """ids [B, n] -> [B, n, vocab_size]."""
    x = w["model.embed_tokens.weight"][ids]
    angles = torch.outer(torch.arange(ids.shape[1], dtype=torch.float64), frequencies(c, ids.shape[1]))
    for layer in range(c["num_hidden_layers"]):
        own = {name.split(".", 3)[3]: t for name, t in w.items() if name.startswith(f"model.layers.{layer}.")}
        x = x + attention(c, own, rms_norm(x, own["input_layernorm.weight"], c), angles)
        x = x + ffn(c, own, rms_norm(x, own["post_attention_layernorm.weight"], c), routed(c, layer))
    head = w["model.embed_tokens.weight"] if c["tie_word_embeddings"] else w["lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], c) @ head.T


def rms_norm(x: Tensor, weight: Tensor, c: Config) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt()


def frequencies(c: Config, length: int) -> Tensor:
    """Radians a token of each pair: theta^(-2i/d), [head_dim / 2]. Su et al. 2021; as either project scales it."""
    d, theta, limit = head_dim(c), c["rope_theta"], c["max_position_embeddings"]
    scaling = c.get("rope_scaling") or {}
    if scaling.get("type") == "dynamic" and length > limit:  # the base grows with the run
        theta *= (scaling["factor"] * length / limit - (scaling["factor"] - 1)) ** (d / (d - 2))
    plain = torch.tensor([theta ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    if c.get("inference_rope_scaling") and limit > 2048:
        return yarn(plain, d, theta)
    return plain / scaling["factor"] if scaling.get("type") == "linear" else plain


def yarn(plain: Tensor, d: int, theta: float) -> Tensor:
    """16 times the 2,048 tokens of before: pairs of more than 32 turns are kept, those of less than one slowed."""

    def pair(turns: float) -> float:
        return d * math.log(2048 / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), d // 2 - 1)
    slowed = ((torch.arange(d // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain * (1 - slowed) + plain / 16 * slowed


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """x [B, n, d], its pairs (i, i + d/2) as complex numbers times e^(i angle)."""
    a, b = x.chunk(2, -1)
    z = torch.complex(a, b) * torch.exp(1j * angles)
    return torch.cat((z.real, z.imag), -1)


def attention(c: Config, w: Weights, x: Tensor, angles: Tensor) -> Tensor:
    """x [B, n, hidden_size] to the same, head by head; several query heads in a row share a KV head."""
    width, group = head_dim(c), c["num_attention_heads"] // c["num_key_value_heads"]
    q, k, v = (linear(w, f"self_attn.{name}_proj", x).split(width, -1) for name in "qkv")
    if c["model_type"] == "minimind":
        q, k = ([rms_norm(one, w[f"self_attn.{name}_norm.weight"], c) for one in h] for name, h in (("q", q), ("k", k)))
    seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    heads = []
    for index, query in enumerate(q):
        scores = turned(query, angles) @ turned(k[index // group], angles).mT / math.sqrt(width)
        heads.append(scores.masked_fill(~seen, -math.inf).softmax(-1) @ v[index // group])
    return linear(w, "self_attn.o_proj", torch.cat(heads, -1))


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def gated(c: Config, w: Weights, where: str, x: Tensor) -> Tensor:
    act = ACTIVATION[c["hidden_act"]]
    return linear(w, f"{where}.down_proj", act(linear(w, f"{where}.gate_proj", x)) * linear(w, f"{where}.up_proj", x))


def ffn(c: Config, w: Weights, x: Tensor, mixed: bool) -> Tensor:
    """Of a mixture: the chosen experts by the weight of their score, plus what the shared ones give."""
    if not mixed:
        return gated(c, w, "mlp", x)
    scores = linear(w, "mlp.gate", x).softmax(-1)
    best, chosen = scores.sort(-1, descending=True)
    k = c["num_experts_per_tok"]
    best, chosen = best[..., :k], chosen[..., :k]
    if c["norm_topk_prob"] and (k > 1 or c["model_type"] == "minimind"):  # DeepSeek leaves a single one as it is
        best = best / best.sum(-1, keepdim=True)
    y = gated(c, w, "mlp.shared_experts", x) if c.get("n_shared_experts") else torch.zeros_like(x)
    for expert in range(n_experts(c)):
        weight = (best * (chosen == expert)).sum(-1, keepdim=True)
        y = y + weight * gated(c, w, f"mlp.experts.{expert}", x)
    return y
