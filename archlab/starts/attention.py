"""An attention: the only part of a layer that looks at other tokens.

archlab verify --component attention/start --plugin start.py
archlab build --plugin start.py model=gqa model/attention=start
archlab kv --plugin start.py gqa model/attention=start --context 32k
"""

import math
from typing import Annotated

from torch import Tensor, nn

import archlab
from archlab.components.dropout.spec import Dropout


@archlab.component("attention", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(archlab.Attending):
    """softmax(q k) v, as many heads of keys and values as of queries."""

    # `d_model`, `n_heads` and `dropout` are handed over, and `norm` where it is asked for: norm(features) makes the
    # norm that the layer has. Arguments after the * are options: model.attention.head_dim=64.
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: Dropout,
        *,
        head_dim: Annotated[int | None, "features a head; null: d_model / n_heads"] = None,
    ) -> None:
        super().__init__(dropout=dropout)
        self.width = head_dim or d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * n_heads * self.width, bias=False)
        self.o = nn.Linear(n_heads * self.width, d_model, bias=False)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        q, k, v = (t.unflatten(-1, (-1, self.width)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))  # [B, h, n, hd]
        q, k = step.turned(q), step.turned(k)  # by the position, where it turns any
        k, v = step.with_earlier(
            key=k, value=v
        )  # kept for the tokens after these, and those of earlier ones before them
        y = self.attend(q, k, v, step, scale=1 / math.sqrt(self.width))  # masked as this pass is
        return self.finish(y)  # the heads side by side, through self.o
