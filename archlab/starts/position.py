"""A position: how a token knows where it is.

archlab verify --component position/start --plugin start.py
archlab build --plugin start.py model=gqa model/position=start
"""

from typing import Annotated

import torch
from torch import Tensor, nn

import archlab


@archlab.component("position", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(archlab.NoPosition):
    """Scores fall with distance, by a trained slope a head."""

    # `n_heads` is handed over, as are `d_model`, `context` and `head_dim` where they are asked for. Arguments after
    # the * are options: model.position.slope=0.5. It does what it overrides of archlab.NoPosition: embed (added to the
    # input), rotation (turns queries and keys) or bias (added to the scores, with biases = True).
    biases = True

    def __init__(
        self, n_heads: int, *, slope: Annotated[float, "what a token of distance takes away at first"] = 0.1
    ) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.full((n_heads,), slope))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """What is added to the scores, [h, n, m], of queries at positions [n] and keys at [m]."""
        distance = (queries[:, None] - keys).clamp(min=0)
        return -self.slopes[:, None, None] * distance
