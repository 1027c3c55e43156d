"""torch's own layers without torch's own initialisation.

`init_weights` sets every weight. What torch draws first would be thrown away, and on the meta device it would import
torch's compiler, a second of every self-check.
"""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """nn.Linear, its weights not set."""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """nn.Embedding, its weights not set."""

    def reset_parameters(self) -> None:
        pass
