"""Multi-head latent attention against the attention classes of transformers, whole, chunked and token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DeepseekV2Config, DeepseekV3Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from archlab.components.attention.module import LatentAttention, Step
from archlab.components.locality import EVERYWHERE
from archlab.components.position.module import Rotation
from archlab.components.span import Span, causal_mask
from archlab.decoder.cache import LayerCache
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import LayerSpec
from archlab.errors import ConfigError

LENGTH = 11
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 10}
SIZES |= {"qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 5}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.7}
NAMES = {
    "q_proj": "q",
    "q_a_proj": "q_down",
    "q_a_layernorm": "q_norm",
    "q_b_proj": "q_up",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm",
    "kv_b_proj": "kv_up",
    "o_proj": "o",
}


def layer(d_model: int = 32, **attention: Any) -> LayerSpec:
    model = {
        "d_model": d_model,
        "n_layers": 1,
        "vocab_size": 5,
        "context": 16,
        "norm": {"choice": "rmsnorm", "eps": 1e-6},
        "position": {"choice": "none"},
        "attention": {"choice": "mla", "n_heads": 4, **attention},
        "ffn": {"choice": "gelu"},
        "dropout": {"choice": "none"},
        "head": {"choice": "tied"},
        "block": {"choice": "pre_norm"},
    }
    return resolve(model).spec.layers[0]


def angles() -> Tensor:
    return torch.outer(torch.arange(LENGTH).double(), 100.0 ** (-torch.arange(0, 8, 2).double() / 8))


def pair(version: int, q_rank: int | None, bias: bool, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """transformers' attention with random weights, and ours with the same."""
    config_class, made = {2: (DeepseekV2Config, DeepseekV2Attention), 3: (DeepseekV3Config, DeepseekV3Attention)}[
        version
    ]
    config = config_class(**SIZES, q_lora_rank=q_rank, attention_bias=bias, rope_parameters=YARN)
    config._attn_implementation = "sdpa"  # their eager softmax, and their norms, are float32 in a float64 model
    theirs = made(config, 0)
    for name in ("q_a_layernorm", "kv_a_layernorm"):
        if getattr(theirs, name) is not None:
            setattr(theirs, name, nn.RMSNorm(getattr(theirs, name).weight.shape, eps=1e-6))
    theirs = theirs.to(dtype).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    sizes = {"kv_rank": 10, "nope_dim": 6, "rope_dim": 8, "v_dim": 5, "bias": bias, "o_bias": bias}
    spec = layer(q_rank=q_rank, scale=theirs.scaling, **sizes, **options)
    ours = LatentAttention(spec.attention, spec.dropout).to(dtype).eval()
    found = {f"{NAMES[(p := name.split('.'))[0]]}.{p[1]}": t for name, t in theirs.state_dict().items()}
    ours.load_state_dict(found)
    return theirs, ours


def their_output(theirs: Any, version: int, x: Tensor) -> Tensor:
    mask = torch.zeros(LENGTH, LENGTH, dtype=x.dtype).masked_fill(~causal_mask(LENGTH, LENGTH, x.device), -torch.inf)
    turn = angles()
    if version == 2:
        places: Any = torch.polar(torch.ones_like(turn), turn).to(torch.complex64)[None]
    else:
        places = tuple(torch.cat((t, t), -1)[None].to(x.dtype) for t in (turn.cos(), turn.sin()))
    result: Tensor = theirs(x, position_embeddings=places, attention_mask=mask[None, None])[0]
    return result


def rotation(start: int, count: int, dtype: torch.dtype) -> Rotation:
    turn = angles()[start : start + count].to(dtype)
    return Rotation(turn.cos(), turn.sin(), interleaved=True)


def in_chunks(ours: LatentAttention, x: Tensor, chunks: list[int]) -> Tensor:
    tensors = {t.name: torch.zeros(2, t.heads, LENGTH, t.width, dtype=x.dtype) for t in ours.spec.cached()}
    rows, start = [], 0
    for part in x.split(chunks, 1):
        span = Span(start, part.shape[1])
        mask = span.mask(x.device, EVERYWHERE)
        held = LayerCache(tensors, span, EVERYWHERE, {})
        rows.append(ours(part, Step(rotation(start, span.count, x.dtype), mask, held)))
        start = span.end
    return torch.cat(rows, 1)


@pytest.mark.parametrize("backend", ["sdpa", "math"])
@pytest.mark.parametrize("cache", ["latent", "expanded"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("q_rank", [None, 7])
@pytest.mark.parametrize(("version", "dtype", "tolerance"), [(3, torch.float64, 1e-12), (2, torch.float32, 1e-5)])
@torch.no_grad()
def test_it_is_that_of_deepseek(
    version: int, dtype: torch.dtype, tolerance: float, q_rank: int | None, bias: bool, cache: str, backend: str
) -> None:
    """V2 is compared in float32, in which its rotation is computed whatever the dtype."""
    theirs, ours = pair(version, q_rank, bias, dtype, cache=cache, backend=backend)
    x = torch.randn(2, LENGTH, 32, dtype=dtype)
    wanted = their_output(theirs, version, x)
    assert (ours(x, Step(rotation(0, LENGTH, dtype))) - wanted).abs().max() <= tolerance
    for chunks in ([1] * LENGTH, [4, 1, 6], [LENGTH]):
        assert (in_chunks(ours, x, chunks) - wanted).abs().max() <= tolerance, chunks


def test_parameters_of_deepseek_v3() -> None:
    """61 layers of attention and its norms, tests/data/facts of deepseek-v3: 11,413,422,080 and its share of norms."""
    attention = layer(7168, n_heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128).attention
    tensors = attention.params()
    norms = tensors.pop("q_norm") + tensors.pop("kv_norm")
    assert 61 * sum(tensors.values()) == 11_413_422_080
    assert 61 * (norms + 2 * 7168) + 7168 == 1_006_592


@pytest.mark.parametrize(
    ("layers", "sizes", "latent", "expanded"),
    [
        (61, {"n_heads": 128, "q_rank": 1536}, 70_272, 4_997_120),
        (27, {"n_heads": 16}, 31_104, 276_480),
    ],
    ids=["b05-b08-deepseek-v3", "b08-deepseek-v2-lite"],
)
def test_b05_b08_the_latent_and_the_shared_key_are_kept(
    layers: int, sizes: dict[str, Any], latent: int, expanded: int
) -> None:
    sizes = sizes | {"kv_rank": 512, "nope_dim": 128, "rope_dim": 64, "v_dim": 128}
    for cache, wanted in (("latent", latent), ("expanded", expanded)):
        attention = layer(2048, cache=cache, **sizes).attention
        assert layers * 2 * sum(tensor.elements_per_token for tensor in attention.cached()) == wanted


def test_the_rules_are_those_of_the_paper() -> None:
    """DeepSeek-V2, section 3.1.2: heads of 128, a latent of 4 and a rotated key of half a head."""
    attention = layer(16384, n_heads=128).attention
    options = attention.options()
    assert [options[name] for name in ("kv_rank", "nope_dim", "rope_dim", "v_dim")] == [512, 128, 64, 128]
    assert options["scale"] == 192**-0.5
    with pytest.raises(ConfigError, match="set nope_dim"):
        layer(33)
