"""A head: what the last hidden state becomes.

archlab verify --component head/start --plugin start.py
archlab build --plugin start.py model=gqa model/head=start
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archlab


@archlab.component("head", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(nn.Module):
    """Logits through the token embedding, times a trained scale."""

    # `d_model` and `vocab_size` are handed over. Arguments after the * are options: model.head.scale=2. A method
    # loss(outputs, targets) would take the place of cross entropy in training; last_token_only = True, beside it, would
    # make it one row of outputs a sequence.
    def __init__(
        self, d_model: int, *, scale: Annotated[float, "what the logits are multiplied by at first"] = 1.0
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), scale))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, n, d_model], the token embedding [vocab_size, d_model] -> logits [B, n, vocab_size]."""
        return self.scale * F.linear(x, embedding)
