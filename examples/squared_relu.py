"""A gated FFN whose gate is a squared ReLU: down(relu(gate(x))^2 * up(x)).

archlab build -m --plugin examples/squared_relu.py model=gqa model/ffn=swiglu,relu2glu bench=none

The activation is that of So et al. 2021 (Primer, arXiv 2109.08668, section 3), the gate that of Shazeer 2020 (GLU
Variants, arXiv 2002.05202). On paper it is archlab's FeedForward with two of its options fixed, which says all that it
costs: nothing is counted on the module, several devices can share it, and its width can be solved for.
"""

from torch import Tensor, nn

import archlab
from archlab.components.dropout.spec import Dropout
from archlab.components.ffn.spec import FeedForward


@archlab.component(
    "ffn",
    "relu2glu",
    summary="squared-ReLU gate",
    formula="3 d f",
    source="So et al. 2021, arXiv 2109.08668; Shazeer 2020, arXiv 2002.05202",
    spec=FeedForward,
    fixed={"activation": "relu2", "gated": True},
)
class SquaredReluGated(nn.Module):
    """gate and up in one matrix, gate first."""

    def __init__(self, spec: FeedForward, dropout: Dropout) -> None:
        super().__init__()
        self.gate_up = nn.Linear(spec.d_model, 2 * spec.d_ff, bias=spec.bias)
        self.down = nn.Linear(spec.d_ff, spec.d_model, bias=spec.bias)
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.dropout(self.down(gate.relu().square() * up))
