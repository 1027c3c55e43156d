"""What stands on the trunk, by the class that a file names under `architectures`: logits or classes, or refused."""

from __future__ import annotations

from typing import Any

from archlab.components.head.spec import Head
from archlab.errors import ConfigError
from archlab.interop.parts import Block
from archlab.interop.reader import Fields, show

LANGUAGE = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "LM")
CLASSES = "ForSequenceClassification"
SCORE = "score"
"""The module that gives the classes, in every family."""


def head_of(f: Fields, head: Block, architecture: str) -> Block:
    """The family's own head, or the one that gives classes. architecture: the family's class with its own head."""
    named = f.items("architectures", str)
    if not named or named[0].endswith(LANGUAGE):
        return head
    if named[0].endswith(CLASSES):
        return {"choice": "classification", "n_outputs": _labels(f), "bias": False}
    what = "the trunk without a head" if named[0].endswith("Model") else "a head for another task"
    problem = f"I do not model {show(named[0])}, {what}; name a class whose head is to be counted"
    raise ConfigError("architectures", problem, value=named[0], valid=(architecture, _classifier(architecture)))


def _labels(f: Fields) -> int:
    """As transformers counts them: the names, else the number, else two."""
    names = f.block("id2label")
    count: int = f.whole("num_labels", 2, null=2)
    if names is None:
        return count
    if f.has("num_labels") and count != len(names.raw):
        problem = f"{count} is not the {len(names.raw)} labels of id2label; they are one thing"
        raise ConfigError("num_labels", problem, value=count)
    return len(names.raw)


def fields_of_task(head: Head, architecture: str) -> dict[str, Any]:
    """The fields that `head_of` reads this head from."""
    if not head.last_token_only:
        return {"architectures": [architecture]}
    return {"architectures": [_classifier(architecture)], "num_labels": head.width}


def _classifier(architecture: str) -> str:
    return architecture.removesuffix("ForCausalLM").removesuffix("LMHeadModel") + CLASSES
