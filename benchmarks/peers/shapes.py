"""The shapes that all candidates are built in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """preset: archlab's, with the overrides that leave out what not every candidate has."""

    preset: str
    overrides: tuple[str, ...]
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    vocab_size: int
    context: int


SHAPES = {
    "minimind": Shape("minimind", ("model.attention.qk_norm=none",), 768, 8, 8, 4, 96, 2432, 6400, 2048),
    "gpt2": Shape("gpt2", ("model/dropout=none",), 768, 12, 12, 12, 64, 3072, 50257, 1024),
}
"""MiniMind without its query and key norms, which x-transformers and litgpt's Llama do not have; GPT-2 small."""
