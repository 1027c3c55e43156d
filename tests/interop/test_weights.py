"""Weights from safetensors: every layout both ways, and each way in which a file can be wrong."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from imported import DATA, REFERENCES
from safetensors.torch import load_file, save_file
from torch import Tensor

import archlab
from archlab.decoder.module import Decoder
from archlab.errors import RequestError
from archlab.interop.hub import load_config
from archlab.interop.weights import load_weights, save_weights
from archlab.model import build

LLAMA = DATA / "references" / "llama"
GPT2 = DATA / "references" / "gpt2"


def decoder_of(folder: Path, **options: Any) -> Decoder:
    return build(load_config(folder).spec, **options)


def tensors_of(decoder: Decoder) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in decoder.state_dict().items()}


def refusal(folder: Path, weights: Path) -> str:
    with pytest.raises(RequestError) as caught:
        decoder_of(folder, weights=weights)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", REFERENCES)
def test_what_is_saved_is_the_file_that_was_loaded(name: str, tmp_path: Path) -> None:
    folder = DATA / "references" / name
    decoder = decoder_of(folder, weights=folder)
    save_weights(decoder, tmp_path / "model.safetensors")
    given, saved = load_file(folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert saved.keys() == given.keys()
    assert all(torch.equal(saved[key], given[key]) for key in given)


@pytest.mark.parametrize("name", REFERENCES)
def test_archlabs_own_names_go_round(name: str, tmp_path: Path) -> None:
    folder = DATA / "references" / name
    decoder = decoder_of(folder, weights=folder)
    save_file({key: t.contiguous() for key, t in tensors_of(decoder).items()}, tmp_path / "own.safetensors")
    again = decoder_of(folder, weights=tmp_path / "own.safetensors")
    assert all(torch.equal(t, tensors_of(again)[key]) for key, t in tensors_of(decoder).items())


def test_a_model_of_no_family_goes_round(tmp_path: Path) -> None:
    spec = archlab.load("minimind", "model.n_layers=1", "model.d_model=64", "model/norm=layernorm")
    decoder = build(spec, seed=3)
    save_weights(decoder, tmp_path / "sub" / "model.safetensors")
    again = build(spec, weights=tmp_path / "sub", seed=4)
    assert all(torch.equal(t, tensors_of(again)[key]) for key, t in tensors_of(decoder).items())


def test_a_sharded_index_is_the_same_as_one_file(tmp_path: Path) -> None:
    given = load_file(LLAMA / "model.safetensors")
    names = sorted(given)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: given[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    one, many = decoder_of(LLAMA, weights=LLAMA), decoder_of(LLAMA, weights=tmp_path)
    assert all(torch.equal(t, tensors_of(many)[key]) for key, t in tensors_of(one).items())


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("../outside.safetensors", "is not the name of a safetensors file beside it"),
        ("/etc/passwd", "is not the name of a safetensors file beside it"),
        ("sub/model.safetensors", "is not the name of a safetensors file beside it"),
        ("model.bin", "is not the name of a safetensors file beside it"),
        (7, "is not the name of a safetensors file beside it"),
        ("absent.safetensors", "1 of its 1 files are not there: absent.safetensors"),
        ("model.safetensors", "lacks"),
    ],
)
def test_an_index_that_lies(listed: Any, message: str, tmp_path: Path) -> None:
    shutil.copy(GPT2 / "model.safetensors", tmp_path)
    index = {"weight_map": {"model.norm.weight": listed}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert message in refusal(LLAMA, tmp_path)


def test_all_files_that_an_index_lists_and_are_not_there_are_named(tmp_path: Path) -> None:
    shutil.copy(GPT2 / "model.safetensors", tmp_path)
    listed = {"a": "model.safetensors", "b": "two.safetensors", "c": "three.safetensors", "d": "two.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    assert "2 of its 3 files are not there: two.safetensors, three.safetensors" in refusal(LLAMA, tmp_path)


def test_a_shard_of_very_many_tensors_is_opened_soon(tmp_path: Path) -> None:
    names = [f"t{index}" for index in range(40_000)]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    (tmp_path / "model.safetensors").write_bytes(header(**dict.fromkeys(names, empty)))
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    start = time.process_time()
    assert "40000 not used: t* (40000)" in refusal(LLAMA, tmp_path)
    assert time.process_time() - start < 10


def test_names_without_the_trunks_prefix_are_read(tmp_path: Path) -> None:
    """openai-community/gpt2 has wte.weight and h.0.attn.bias, a mask; others have a copy of the tied head."""
    given = {name.removeprefix("transformer."): t for name, t in load_file(GPT2 / "model.safetensors").items()}
    given["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    given["lm_head.weight"] = given["wte.weight"].clone()
    save_file(given, tmp_path / "model.safetensors")
    assert torch.equal(decoder_of(GPT2, weights=tmp_path).embedding.weight, given["wte.weight"])
    save_file({**given, "lm_head.weight": given["wte.weight"] + 1}, tmp_path / "model.safetensors")
    assert "lm_head.weight differs from the embedding" in refusal(GPT2, tmp_path)


def test_every_tensor_that_does_not_fit_is_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    given = load_file(LLAMA / "model.safetensors")
    del given["model.norm.weight"], given["model.layers.1.mlp.up_proj.weight"]
    given["model.embed_tokens.weight"] = torch.zeros(127, 32)
    given["model.layers.0.mlp.extra.weight"] = torch.zeros(2)
    given["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    save_file(given, tmp_path / "model.safetensors")
    decoder = decoder_of(LLAMA, seed=1)
    before = tensors_of(decoder)
    with pytest.raises(RequestError) as caught:
        load_weights(decoder, tmp_path)
    message = str(caught.value)
    assert "2 missing: model.norm.weight, model.layers.1.mlp.up_proj.weight" in message
    assert "1 of another shape: model.embed_tokens.weight [127, 32], not [128, 32]" in message
    assert "1 not used: model.layers.0.mlp.extra.weight" in message
    assert "inv_freq" not in message
    assert all(torch.equal(t, before[key]) for key, t in decoder.state_dict().items())


def test_weights_of_another_family_are_refused_on_meta_too() -> None:
    with pytest.raises(RequestError, match="do not fit the model"):
        decoder_of(LLAMA, weights=GPT2, device="meta")
    assert decoder_of(LLAMA, weights=LLAMA, device="meta").embedding.weight.is_meta


def test_integers_are_no_weights(tmp_path: Path) -> None:
    given = load_file(LLAMA / "model.safetensors")
    given["lm_head.weight"] = given["lm_head.weight"].to(torch.int8)
    save_file(given, tmp_path / "model.safetensors")
    assert "1 of a dtype other than F64, F32, F16, BF16: lm_head.weight I8" in refusal(LLAMA, tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_dtypes_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    given = {name: tensor.to(dtype) for name, tensor in load_file(LLAMA / "model.safetensors").items()}
    save_file(given, tmp_path / "model.safetensors")
    decoder = decoder_of(LLAMA, weights=tmp_path)
    assert decoder.head.weight.dtype == torch.float32
    assert torch.equal(decoder.head.weight, given["lm_head.weight"].float())


def header(**tensors: Any) -> bytes:
    body = json.dumps(tensors).encode()
    return struct.pack("<Q", len(body)) + body


LYING = {
    "empty": b"",
    "short": b"\x08",
    "a header longer than the file": struct.pack("<Q", 10**6) + b"{}",
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"nope",
    "data beyond the end": header(a={"dtype": "F32", "shape": [10**6], "data_offsets": [0, 4 * 10**6]}) + b"\0" * 4,
    "a shape that is not the data's": header(a={"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}) + b"\0" * 4,
    "a negative size": header(a={"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}) + b"\0" * 4,
    "a size that overflows": header(a={"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}) + b"\0" * 4,
    "an unknown dtype": header(a={"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}) + b"\0" * 4,
    "overlapping data": header(
        a={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        b={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    )
    + b"\0" * 4,
}


@pytest.mark.parametrize("kind", LYING)
def test_a_header_that_lies(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(LYING[kind])
    assert "is not a safetensors file" in refusal(LLAMA, tmp_path)


class Harm:
    def __reduce__(self) -> Any:
        return (Path("harm").touch, ())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_a_pickle_is_never_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Harm()))
    assert "pickle" in refusal(LLAMA, tmp_path / name)
    assert "pickle" in refusal(LLAMA, tmp_path)
    assert not Path("harm").exists()


def test_a_path_with_nothing_to_load(tmp_path: Path) -> None:
    assert "no safetensors file in this folder" in refusal(LLAMA, tmp_path)
    assert "no such file" in refusal(LLAMA, tmp_path / "model.safetensors")
    for name in ("a.safetensors", "b.safetensors"):
        shutil.copy(LLAMA / "model.safetensors", tmp_path / name)
    assert "2 safetensors files and no model.safetensors.index.json" in refusal(LLAMA, tmp_path)


def test_of_many_tensors_of_another_shape_the_shapes_are_told(tmp_path: Path) -> None:
    small = ("model.d_model=32", "model.vocab_size=50", "model.attention.head_dim=8", "model.ffn.d_ff=24")
    made = archlab.build(archlab.load("gqa", *small))
    save_weights(made, tmp_path / "model.safetensors")
    wider = archlab.build(archlab.load("gqa", *small, "model.d_model=40"), device="meta")
    with pytest.raises(RequestError, match=r"layers\.\*\.\S+ \[\d+, 32\], not \[\d+, 40\] \(8\)"):
        load_weights(wider, tmp_path / "model.safetensors")
