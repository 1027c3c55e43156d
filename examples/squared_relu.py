"""A gated FFN whose gate is a squared ReLU: down(relu(gate(x))^2 * up(x)).

archlab build -m --plugin examples/squared_relu.py model=gqa model/ffn=swiglu,relu2glu

The activation is that of So et al. 2021 (Primer, arXiv 2109.08668, section 3), the gate that of Shazeer 2020 (GLU
Variants, arXiv 2002.05202). Its Spec says what it costs: nothing is counted, and several devices can share it.
"""

from torch import Tensor, nn

import archlab
from archlab.components.dropout.spec import Dropout
from archlab.components.ffn.spec import FeedForward
from archlab.components.tape import Activation, Tape


class SquaredReluGate(FeedForward):
    """down(relu(gate(x))^2 * up(x)): a FeedForward that is always gated."""

    @property
    def n_up(self) -> int:
        return 2

    def middle(self, tape: Tape, projected: Activation) -> Activation:
        """ReLU keeps its output, the square keeps its input, which is the same, and the product both factors."""
        up = projected.view(self.d_ff)
        relu = tape.like(up)
        tape.keep("ffn", relu)
        return tape.product("ffn", tape.like(relu), up)


@archlab.component(
    "ffn",
    "relu2glu",
    summary="squared-ReLU gate",
    formula="3 d f",
    source="So et al. 2021, arXiv 2109.08668; Shazeer 2020, arXiv 2002.05202",
    spec=SquaredReluGate,
)
class SquaredReluGated(nn.Module):
    """gate and up in one matrix, gate first."""

    def __init__(self, spec: SquaredReluGate, dropout: Dropout) -> None:
        super().__init__()
        self.gate_up = nn.Linear(spec.d_model, 2 * spec.d_ff, bias=spec.bias)
        self.down = nn.Linear(spec.d_ff, spec.d_model, bias=spec.bias)
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.dropout(self.down(gate.relu().square() * up))
