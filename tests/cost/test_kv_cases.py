"""Public questions about KV memory, each with its right answer, by the presets and what they would be edited to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import archlab
from archlab.components.attention.base import CachedTensor
from archlab.components.attention.spec import GroupedAttention
from archlab.components.locality import Locality
from archlab.cost.kv import Engine, check_tp, kv_cache, valid_tp
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.frozen import replace, values_of
from archlab.interop.hub import read_config

KIB, MIB, GIB = 2**10, 2**20, 2**30
QWEN3_4B = ("qwen3-0.6b", "model.n_layers=36", "model.d_model=2560", "model.attention.n_heads=32")
QWEN3_17B = ("qwen3-0.6b", "model.d_model=2048", "model.ffn.d_ff=6144")
V2_LITE = ("deepseek-v3", "model.n_layers=27", "model.d_model=2048", "model.attention.n_heads=16")
QWEN25_3B = (
    "qwen2.5-7b",
    "model.n_layers=36",
    *(f"model.attention.{h}" for h in ("n_heads=16", "n_kv_heads=2", "head_dim=128")),
)
GPT_OSS_120B = ("gpt-oss-20b", "model.n_layers=36", "model.ffn.n_experts=128")


def per_token(*source: str, dtype: str = "bf16", **kept: Any) -> int:
    return kv_cache(archlab.load(*source), 1, 1, dtype, **kept).bytes_per_token


def test_b01_bytes_of_kv_heads_not_bits_of_the_width() -> None:
    cost = kv_cache(archlab.load("qwen2.5-7b"), 1, 3072, "fp16")
    assert (cost.bytes_per_token, cost.required) == (57_344, 176_160_768)
    assert cost.required == 168 * MIB
    assert 28 * cost.bytes_per_token == 2 * 28 * 3584 * 8  # 1.53 MB: 8 bits for 2 bytes, 3584 for 4 x 128


def test_b03_head_dim_is_read_not_derived() -> None:
    assert per_token(*QWEN3_4B) == 147_456 != 92_160
    assert kv_cache(archlab.load(*QWEN3_4B), 1, 32_768).required == 4.5 * GIB


def test_b05_one_latent_and_the_shared_key() -> None:
    cost = kv_cache(archlab.load("deepseek-v3"), 1, 131_072)
    assert cost.bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    assert round(cost.required / GIB, 2) == 8.58


@pytest.mark.parametrize(
    ("source", "latent", "expanded"), [(("deepseek-v3",), 70_272, 4_997_120), (V2_LITE, 31_104, 276_480)]
)
def test_b08_latent_or_expanded(source: tuple[str, ...], latent: int, expanded: int) -> None:
    assert per_token(*source) == latent
    assert per_token(*source, "model.attention.cache=expanded") == expanded


def test_b09_window_layers_are_counted() -> None:
    spec = archlab.load(*GPT_OSS_120B)
    assert kv_cache(spec, 1, 100).required == 100 * 73_728
    assert kv_cache(spec, 1, 5000).required - kv_cache(spec, 1, 4000).required == 1000 * 36_864
    assert 5.375 * GIB < 78_384 * 73_728 < 5.385 * GIB  # the log's 5.38 GiB and 78,384 tokens


def test_b11_five_local_layers_to_one() -> None:
    spec = archlab.load("gemma-3-1b")
    assert kv_cache(spec, 1, 32_768).required == 139 * MIB
    assert kv_cache(spec, 1, 32_768).bytes_per_token * 32_768 == 832 * MIB


class Recurrent(GroupedAttention):
    """Keeps nothing of a token, as a layer of linear attention."""

    def cached(self) -> tuple[CachedTensor, ...]:
        return ()


@pytest.mark.parametrize(
    ("n_layers", "caching", "heads", "block_bytes"), [(64, 16, 4, 4 * MIB), (40, 10, 2, 1.25 * MIB)]
)
def test_b14_layers_that_keep_nothing_have_no_blocks(
    n_layers: int, caching: int, heads: int, block_bytes: float
) -> None:
    shape = (f"model.attention.n_kv_heads={heads}", "model.attention.head_dim=256", "model.attention.n_heads=8")
    spec = archlab.load("gqa", f"model.n_layers={n_layers}", *shape)
    full = spec.layers[0]
    silent = replace(full, attention=Recurrent(**values_of(full.attention)))
    mixed = replace(spec, layers=(silent, silent, silent, full) * caching)
    assert mixed.n_layers == n_layers
    assert kv_cache(mixed, 1, 64, engine=Engine(block=64)).engine == block_bytes
    assert kv_cache(spec, 1, 64, engine=Engine(block=64)).engine == 4 * block_bytes


def test_b15_blocks_of_a_pool() -> None:
    """A pool of 1,952 blocks holds 1.56 sequences of 20,000 tokens; one of 1,478 blocks none of 29,000."""
    spec = archlab.load("llama-3.1-8b")
    assert kv_cache(spec, 1, 31_232).bytes_per_token == 131_072
    assert kv_cache(spec, 1, 31_232).engine == 3.8125 * GIB == 1952 * 2 * MIB
    assert kv_cache(spec, 1, 31_217).engine == 1952 * 2 * MIB > kv_cache(spec, 1, 31_216).engine
    assert round(3.8125 * GIB / kv_cache(spec, 1, 20_000).engine, 2) == 1.56
    assert 1478 * 2 * MIB == kv_cache(spec, 1, 23_648).engine < kv_cache(spec, 1, 29_000).engine


@pytest.mark.parametrize(
    ("source", "tp", "device", "logical"),
    [
        (("llama-3.1-70b",), 32, 40_960, 327_680),
        (QWEN25_3B, 8, 18_432, 36_864),
    ],
)
def test_b17_heads_are_copied_where_devices_exceed_them(
    source: tuple[str, ...], tp: int, device: int, logical: int
) -> None:
    assert per_token(*source) == logical
    assert per_token(*source, tp=tp) == device
    assert tp * device == 4 * logical


def test_b20_beams_are_sequences() -> None:
    spec = archlab.load("llama-2-7b")
    assert kv_cache(spec, 4, 2176, "fp16", beams=4).required == 524_288 * 16 * 2176 == 17 * GIB
    assert kv_cache(spec, 4, 2176, "fp16").required == 4.25 * GIB


def test_b21_fp8_with_a_scale_a_tensor_halves_it() -> None:
    assert (per_token(*QWEN3_17B), per_token(*QWEN3_17B, dtype="fp8")) == (114_688, 57_344)
    assert round(2.90 * GIB / 114_688, -1) == 27_150
    assert round(2.90 * GIB / 57_344, -2) == 54_300


@pytest.mark.parametrize(
    ("source", "token", "whole"),
    [
        (("llama-2-7b",), 524_288, 16),
        (("llama-3.1-70b",), 327_680, 10),
        (("llama-3.1-70b", "model/attention=mha"), 2_621_440, 80),
    ],
)
def test_b23_a_lesson_off_by_the_heads(source: tuple[str, ...], token: int, whole: int) -> None:
    cost = kv_cache(archlab.load(*source), 1, 32_768, "fp16")
    assert (cost.bytes_per_token, cost.required) == (token, whole * GIB)


@pytest.mark.parametrize(("name", "right"), [("llama-2-7b", 2.0), ("llama-2-70b", 1.25)])
def test_b27_keys_and_values_of_the_kv_heads(name: str, right: float) -> None:
    assert kv_cache(archlab.load(name), 1, 4096, "fp16").required == right * GIB


def test_b28_llama_cpp_keeps_the_window_and_a_micro_batch() -> None:
    """A buffer of 160 MiB at full size: 40 KiB a token, here of 80 layers of 512 B."""
    spec = archlab.load("gqa", "model.n_layers=80", "model.attention.window=512")
    cells = Engine("llama_cpp", micro_batch=1024)
    assert kv_cache(spec, 1, 4096, "fp16", engine=Engine("full_pages")).engine == 160 * MIB
    assert kv_cache(spec, 1, 4096, "fp16", engine=cells).engine == 60 * MIB == 1536 * 40 * KIB
    assert kv_cache(spec, 1, 4096, "fp16").required == 512 * 40 * KIB


@pytest.mark.parametrize(("n_kv_heads", "saving"), [(4, 8), (8, 4)])
def test_b30_kv_heads_are_heads_not_a_groups_size(n_kv_heads: int, saving: int) -> None:
    heads = ("model.attention.n_heads=32", "model.attention.head_dim=16")
    shared = per_token("gqa", *heads, f"model.attention.n_kv_heads={n_kv_heads}")
    assert per_token("gqa", *heads, "model.attention.n_kv_heads=32") == saving * shared


def test_b33_static_or_growing() -> None:
    spec = archlab.load("llama-3.1-8b")
    assert kv_cache(spec, 1, 32_768).allocated == 4 * GIB
    assert round(kv_cache(spec, 1, 2050).required / GIB, 2) == 0.25


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def imported(config: dict[str, Any]) -> DecoderSpec:
    return resolve(read_config(config)[1]).spec


@pytest.mark.parametrize("heads", [{}, {"num_key_value_heads": None}, {"num_key_value_heads": 4}])
def test_b36_no_kv_heads_means_one_for_each_query_head(heads: dict[str, Any]) -> None:
    assert kv_cache(imported(LLAMA | heads), 1, 1).bytes_per_token == 3 * 2 * 64 * 2


def test_b36_old_names_are_read() -> None:
    old = {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 32, "n_positions": 64}
    assert kv_cache(imported(old), 1, 1).bytes_per_token == 3 * 2 * 64 * 2


@pytest.mark.parametrize("heads", [{"num_key_value_heads": 0}, {"num_attention_heads": 0}])
def test_b36_no_heads_at_all_is_one_clear_error(heads: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"heads: .*0"):
        imported(LLAMA | heads)


def test_d04_w_keys_the_querys_own_among_them() -> None:
    seen = Locality(window=128).visible(torch.tensor([500]), torch.arange(501))[0]
    assert seen.nonzero().flatten().tolist() == list(range(373, 501))
    spec = archlab.load("gpt-oss-20b")
    local = kv_cache(spec, 1, 501).by_layer[0]
    assert spec.layers[0].attention.locality == Locality(window=128)
    assert local.tokens == len(range(373, 501)) == 128


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "problem", "valid"),
    [
        (8, 2, 3, "3 does not divide n_heads = 8", [1, 2, 4, 8]),
        (12, 6, 4, "4 devices can neither share nor copy 6 KV heads evenly", [1, 2, 3, 6, 12]),
        (8, 2, 16, "16 does not divide n_heads = 8", [1, 2, 4, 8]),
    ],
)
def test_i10_devices_that_cannot_share_heads(
    heads: int, kv_heads: int, tp: int, problem: str, valid: list[int]
) -> None:
    shape = (f"model.attention.n_heads={heads}", f"model.attention.n_kv_heads={kv_heads}", "model.attention.head_dim=8")
    spec = archlab.load("gqa", *shape)
    assert valid_tp(spec) == valid
    with pytest.raises(ConfigError) as caught:
        check_tp(spec, tp)
    assert (caught.value.problem, caught.value.value, caught.value.valid) == (problem, tp, valid)


def test_i10_two_kv_heads_on_four_devices_are_copied_twice() -> None:
    assert per_token("gqa", "model.attention.n_kv_heads=2", tp=4) == per_token("gqa", "model.attention.n_kv_heads=1")
