"""An FFN: what follows attention in a layer, each position by itself.

archlab verify --component ffn/start --plugin start.py
archlab build --plugin start.py model=gqa model/ffn=start
archlab build -m --plugin start.py model/ffn=swiglu,start bench=none
"""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

import archlab


@archlab.component("ffn", "start", summary="what it is, in a line", source="whose it is: a paper")
class Start(nn.Module):
    """down(silu(up(x)))."""

    # `d_model` is handed over, and `dropout` where it is asked for: its rates are dropout.ffn and others; without it
    # archlab drops what comes out. Arguments after the * are options: model.ffn.d_ff=2048. One called d_ff can be
    # solved for by a budget.
    def __init__(
        self, d_model: int, *, d_ff: Annotated[int | None, "width of the middle; null: 4 d_model"] = None
    ) -> None:
        super().__init__()
        width = d_ff or 4 * d_model
        self.up = nn.Linear(d_model, width, bias=False)
        self.down = nn.Linear(width, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        return self.down(F.silu(self.up(x)))
