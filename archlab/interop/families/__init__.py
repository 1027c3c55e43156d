"""The families of Hugging Face models that archlab reads and writes, by the model_type of their config.json."""

from __future__ import annotations

import functools
import importlib
import re

from archlab.errors import ConfigError, nearest
from archlab.interop.family import Family
from archlab.interop.reader import show

_HOMES = {
    "llama": "llama mistral qwen2 qwen3 granite smollm3",
    "gpt": "gpt2 gptj gpt_neox opt",
    "alibi": "bloom mpt falcon",
    "gemma": "gemma gemma2 gemma3_text",
    "phi": "phi phi3 stablelm starcoder2 cohere",
    "olmo": "olmo olmo2 olmoe",
    "glm": "glm glm4",
    "moe": "mixtral qwen2_moe qwen3_moe gpt_oss",
    "deepseek": "deepseek deepseek_v2 deepseek_v3",
    "minimind": "minimind",
}
HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
"""model_type to the module that knows it; a module is imported when one of its families is asked for."""


def family(model_type: object) -> Family:
    """The family of a model_type. Raises ConfigError for one that archlab does not know."""
    if not isinstance(model_type, str) or model_type not in HOME:
        near = _misspelt(model_type) if isinstance(model_type, str) else None
        problem = "is missing" if model_type is None else f"I do not know {show(model_type)}"
        raise ConfigError("model_type", problem, valid=sorted(HOME), nearest=near)
    return _families(HOME[model_type])[model_type]


def _misspelt(model_type: str) -> str | None:
    """The family that was meant. A program wrote the word: one that differs much, or in a number, is another family."""
    near = nearest(model_type[:60], HOME, 0.85)
    return near if near is None or re.findall(r"\d", near) == re.findall(r"\d", model_type) else None


@functools.cache
def _families(module: str) -> dict[str, Family]:
    found = importlib.import_module(f"archlab.interop.families.{module}").FAMILIES
    return {one.model_type: one for one in found}
