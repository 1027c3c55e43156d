"""Classifiers and other classes than the language model: what `architectures` names is what is counted, live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from imported import error_of, spec_of
from test_families import CASES, doubled
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig, AutoModelForSequenceClassification

import archlab
from archlab.cost.params import parameters
from archlab.interop.export import export
from archlab.interop.hub import load_config
from archlab.model import build

pytestmark = pytest.mark.slow  # live, beside transformers

KNOWN = {config.model_type for config in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING}
CLASSIFIERS = [name for name in CASES if name in KNOWN]
LLAMA = {"model_type": "llama", **CASES["llama"][0]}


def classifier(name: str, n_labels: int, folder: Path) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A classifier of transformers with random weights, saved in `folder`; token ids and what it gives for them."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **CASES[name][0], num_labels=n_labels)
    kernels = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float64, **kernels).eval()
    for tensor in model.parameters():
        tensor.data.normal_(0.3 if tensor.dim() == 1 else 0.0, 0.3)
    model.save_pretrained(folder)
    ids = torch.randint(0, 64, (1, 12))  # one sequence: with several, a padding token is wanted
    return model, ids, model(ids).logits


@pytest.mark.parametrize("n_labels", [1, 5])
@pytest.mark.parametrize("name", CLASSIFIERS)
@torch.no_grad()
def test_a_classifier_is_read_loaded_and_exported_as_one(name: str, n_labels: int, tmp_path: Path) -> None:
    with doubled():
        model, ids, logits = classifier(name, n_labels, tmp_path)
    spec = load_config(tmp_path).spec
    assert parameters(spec).total == sum(p.numel() for p in model.parameters())
    ours = build(spec, dtype=torch.float64, weights=tmp_path).eval()(ids)
    assert (ours - logits).abs().max() <= 1e-9 * max(1.0, logits.abs().max().item())
    again = export(spec)
    assert again["architectures"] == [type(model).__name__.replace("Gemma3Text", "Gemma3")]
    assert AutoConfig.for_model(**again).num_labels == n_labels


def test_most_families_have_a_classifier() -> None:
    assert len(CLASSIFIERS) > 25


@pytest.mark.parametrize(
    ("more", "n_outputs"),
    [
        ({}, 2),
        ({"num_labels": 3}, 3),
        ({"id2label": {"0": "A"}}, 1),
        ({"id2label": {"0": "A"}, "num_labels": 1}, 1),
        ({"id2label": None, "num_labels": None}, 2),
    ],
)
def test_labels_are_counted_as_transformers_counts_them(more: dict[str, Any], n_outputs: int) -> None:
    given = {**LLAMA, **more, "architectures": ["LlamaForSequenceClassification"]}
    assert AutoConfig.for_model(**{k: v for k, v in given.items() if v is not None}).num_labels == n_outputs
    assert spec_of(given).head.width == n_outputs


@pytest.mark.parametrize("name", ["LlamaModel", "LlamaForTokenClassification", "LlamaForQuestionAnswering", "Odd"])
def test_another_class_is_refused_with_those_that_can_be_counted(name: str) -> None:
    message = error_of({**LLAMA, "architectures": [name]})
    assert f'architectures: I do not model "{name}"' in message
    assert "valid: LlamaForCausalLM, LlamaForSequenceClassification" in message


def test_labels_that_disagree_are_refused() -> None:
    given = {**LLAMA, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "A"}, "num_labels": 2}
    assert "num_labels: 2 is not the 1 labels of id2label" in error_of(given)


def test_names_of_other_makers_are_language_models() -> None:
    for name in (
        "LLaMAForCausalLM",
        "MPTForCausalLM",
        "GPT2LMHeadModel",
        "MiniMindLM",
        "Gemma3ForConditionalGeneration",
    ):
        assert spec_of({**LLAMA, "architectures": [name]}) == spec_of(LLAMA)
    for nothing in ([], None):
        assert spec_of({**LLAMA, "architectures": nothing}) == spec_of(LLAMA)


def test_the_whole_model_says_which_head_a_nested_one_has(tmp_path: Path) -> None:
    outer = {"model_type": "llava", "architectures": ["LlavaForSequenceClassification"], "text_config": LLAMA}
    (tmp_path / "config.json").write_text(json.dumps({**outer, "num_labels": 3}))
    assert archlab.load(str(tmp_path)).head.width == 3
