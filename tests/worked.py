"""Reads an explanation's text back: what its arithmetic comes to, and its formula with numbers for the symbols."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

BARE = (*(f"model.attention.{name}_bias=false" for name in "qkvo"), "model.ffn.bias=false", "model.norm.bias=false")
"""Overrides that leave GPT-2 without biases, as nanoGPT sizes it."""


def evaluate(text: str) -> Fraction:
    """What `2 x 4,096 x (32 x 128 + 7) / max(3, 5)` comes to, exactly."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    assert re.fullmatch(r"(?:max\(|[\d+\-x^/(), ])+", plain), text
    code = re.sub(r"\d+", lambda found: f"Fraction({found[0]})", plain.replace(" x ", " * ").replace("^", "**"))
    return Fraction(eval(code))


def with_numbers(formula: str, values: Mapping[str, int]) -> str:
    """`2 d_model d_ff` as `2 x 4,096 x 14,336`: what stands beside each other is multiplied."""
    text = re.sub(r"[A-Za-z_][\w.]*", lambda found: f"{values[found[0]]:,}", formula)
    return re.sub(r"(?<=[\d)]) (?=[\d(])", " x ", text)
