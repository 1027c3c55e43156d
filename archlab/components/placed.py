"""What stands at a place of a layer, on paper: before or after attention or FFN, [.., d_model] -> [.., d_model].

Places are axes that others register (`archlab.place`); archlab has none of its own. Each has the choice `none`.
"""

from __future__ import annotations

from typing import Self

from archlab.components.attention.base import State
from archlab.components.norm.spec import Norm
from archlab.components.tape import Activation, Tape
from archlab.frozen import derived
from archlab.options import Spec, inherited
from archlab.registry import Place, places

NONE = {"choice": "none"}
"""The block of a place of which nothing is said."""


class Placed(Spec):
    """Nothing at a place, and the base of those that put something there."""

    d_model: int = inherited()
    norm: Norm = inherited()

    @property
    def place(self) -> Place:
        """Where it stands."""
        return places()[self.axis]

    @property
    def idle(self) -> bool:
        """Whether nothing is there."""
        return self.choice == NONE["choice"]

    def params(self) -> dict[str, int]:
        """Parameters by tensor."""
        return {}

    @derived
    def n_params(self) -> int:
        """All of its parameters."""
        return sum(self.params().values())

    def fan_in(self) -> dict[str, int]:
        """Input features of each matrix among `params`, by tensor: what a row of it has."""
        return {}

    def flops(self, tokens: int) -> int:
        """Matmul FLOPs over `tokens` positions, 2 a multiply-add."""
        return 0

    def states(self) -> tuple[State, ...]:
        """What is kept of each sequence between decode steps, however long it is."""
        return ()

    def on_tape(self, tape: Tape, x: Activation) -> Activation:
        """The output for x, of a pass over all tokens of the sequences."""
        return x

    def share(self, tp: int) -> Self:
        """What one of `tp` devices computes."""
        return self
