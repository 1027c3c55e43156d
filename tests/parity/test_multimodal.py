"""The language model inside one that sees: its config and its weights from the checkpoint of the whole, live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_families import doubled

from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.errors import RequestError
from archlab.interop.hub import load_config
from archlab.interop.weights import beside, load_weights
from archlab.point import run_point

pytestmark = pytest.mark.slow  # live, beside transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
TEXT = {**SIZES, "vocab_size": 80, "intermediate_size": 40, "max_position_embeddings": 64}
SIGHT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
SIGHT |= {"image_size": 16, "patch_size": 8}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Llava": ({"model_type": "llama"}, {"model_type": "clip_vision_model"}, {}),
    "Gemma3": ({"head_dim": 8, "sliding_window": 5}, {"model_type": "siglip_vision_model"}, {"mm_tokens_per_image": 4}),
    "Mistral3": ({"model_type": "mistral"}, {"model_type": "pixtral", "head_dim": 8}, {"tie_word_embeddings": False}),
}


def whole(name: str, folder: Path) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A model of several parts with random weights, saved in `folder`; tokens without an image and their logits."""
    text, sight, more = MODELS[name]
    torch.manual_seed(0)
    make = getattr(transformers, f"{name}Config")
    config = make(text_config={**TEXT, **text}, vision_config={**SIGHT, **sight}, image_token_index=79, **more)
    model = getattr(transformers, f"{name}ForConditionalGeneration")._from_config(
        config, dtype=torch.float64, attn_implementation="eager"
    )
    for tensor in model.parameters():
        tensor.data.normal_(0.3 if tensor.dim() == 1 else 0.0, 0.3)
    model.eval().save_pretrained(folder)
    ids = torch.randint(0, 70, (2, 12))
    return model, ids, model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_language_model_is_read_and_loaded_and_the_rest_is_told(name: str, tmp_path: Path) -> None:
    with doubled():
        model, ids, logits = whole(name, tmp_path)
    spec = load_config(tmp_path).spec
    language = model.get_decoder()
    head = 0 if spec.head.tied else model.get_output_embeddings().weight.numel()
    assert parameters(spec).total == sum(p.numel() for p in language.parameters()) + head
    decoder = build(spec, dtype=torch.float64, seed=None).eval()
    others = load_weights(decoder, tmp_path)
    assert (decoder(ids) - logits).abs().max() <= 1e-9 * max(1.0, logits.abs().max().item())
    every = load_file(tmp_path / "model.safetensors")
    assert set(others) == {key for key in every if key.startswith(("vision_tower", "multi_modal_projector"))}
    assert beside(others).startswith(f"{len(others)} tensors of ")


def test_the_record_of_a_run_says_what_of_the_file_is_not_loaded(tmp_path: Path) -> None:
    with doubled():
        whole("Llava", tmp_path)
    config = {"model": load_config(tmp_path).model, "weights": str(tmp_path), "bench": {"phases": []}}
    notes = " ".join(run_point(config, [], []).notes)
    assert "vision_tower (" in notes
    assert "multi_modal_projector (4)" in notes


def test_what_the_language_model_itself_does_not_use_is_refused_as_ever(tmp_path: Path) -> None:
    with doubled():
        whole("Llava", tmp_path)
    given = load_file(tmp_path / "model.safetensors")
    given["language_model.model.layers.7.mlp.up_proj.weight"] = torch.zeros(2)
    save_file(given, tmp_path / "model.safetensors")
    decoder = build(load_config(tmp_path).spec, device="meta")
    with pytest.raises(RequestError, match=r"1 not used: language_model\.model\.layers\.7\.mlp"):
        load_weights(decoder, tmp_path)


def test_a_tower_beside_a_model_that_is_not_nested_is_refused(tmp_path: Path) -> None:
    with doubled():
        whole("Llava", tmp_path)
    given = load_file(tmp_path / "model.safetensors")
    bare = {key.removeprefix("language_model."): tensor for key, tensor in given.items()}
    save_file(bare, tmp_path / "model.safetensors")
    with pytest.raises(RequestError, match="not used: "):
        load_weights(build(load_config(tmp_path).spec, device="meta"), tmp_path)
