"""Normalisation over the last dimension, on paper. The width is the caller's: d_model, or head_dim for q and k."""

from __future__ import annotations

from typing import Any

from archlab.components.tape import Activation, Tape
from archlab.errors import ConfigError
from archlab.options import Spec, option
from archlab.registry import register


class Norm(Spec):
    """No normalisation, and the base of those that do normalise."""

    def params(self, width: int) -> dict[str, int]:
        """Parameters of one norm over `width` features, by tensor."""
        return {}

    def on_tape(self, tape: Tape, x: Activation, groups: int = 1, by_group: bool = False) -> Activation:
        """The norm of x, of each of `groups` equal parts of its features; by_group: these have weights of their own."""
        return x


class LayerNorm(Norm):
    """gamma (x - mean) / sqrt(variance + eps) + beta. Ba et al. 2016, eq. 4."""

    eps: float = option(1e-5, "added to the variance, inside the root", gt=0)
    weight: bool = option(True, "the gain gamma; without it and the shift it is non-parametric (OLMo 1)")
    bias: bool = option(help="the shift beta", auto="true where there is a gain")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        values.setdefault("bias", values["weight"])

    def params(self, width: int) -> dict[str, int]:
        return ({"weight": width} if self.weight else {}) | ({"bias": width} if self.bias else {})

    def on_tape(self, tape: Tape, x: Activation, groups: int = 1, by_group: bool = False) -> Activation:
        wide = tape.cast(x, tape.wide) if by_group else x
        stats = tape.new(2 * groups, tape.wide if tape.cuda else wide.width, x.rows, x.buffer.stream)
        tape.keep("norms", wide, stats)
        y = tape.like(wide)
        if by_group and self.weight:
            tape.keep("norms", y)
            y = tape.like(y)
        return tape.cast(y, x.width)


class RMSNorm(Norm):
    """gamma x / sqrt(mean(x^2) + eps). Zhang and Sennrich 2019, eq. 4."""

    eps: float = option(1e-6, "added to the mean square", gt=0)
    eps_place: str = option("inside", "inside the root, or outside: x / (rms + eps)", valid=("inside", "outside"))
    weight: bool = option(True, "the gain gamma")
    unit_offset: bool = option(False, "multiply by 1 + weight, the weight starting at 0 (Gemma)")

    def check(self) -> None:
        if self.unit_offset and not self.weight:
            raise ConfigError("unit_offset", "needs a weight to add 1 to; weight is false", value=True)

    def params(self, width: int) -> dict[str, int]:
        return {"weight": width} if self.weight else {}

    def on_tape(self, tape: Tape, x: Activation, groups: int = 1, by_group: bool = False) -> Activation:
        outside = self.eps_place == "outside"
        plain = not (by_group or self.unit_offset or outside)
        fused = tape.cuda and plain  # one kernel, which keeps what it read
        wide = x if fused else tape.cast(x, tape.wide)
        tape.keep("norms", wide, tape.new(groups * (1 + outside), tape.wide, x.rows, x.buffer.stream))
        y = tape.like(wide)
        if self.weight and not fused:
            tape.keep("norms", y)
            y = tape.like(y)
        if self.weight and not plain:  # the gain, in the dtype of the statistics
            tape.keep("norms", tape.new(x.features if by_group else x.features // groups, tape.wide, rows=1))
        return tape.cast(y, x.width)


register(
    "norm",
    "layernorm",
    LayerNorm,
    summary="centre and scale, learned gain and shift",
    formula="2 w (w without bias, 0 without weight)",
)
register(
    "norm", "rmsnorm", RMSNorm, summary="scale by the root mean square, learned gain", formula="w (0 without weight)"
)
register("norm", "none", Norm, summary="no normalisation", formula="0")
