"""The position-wise feed-forward network, plain or gated, and the rules that choose its width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from archlab.errors import ConfigError
from archlab.options import Spec, inherited, option
from archlab.registry import register

RULES = ("4x", "8/3", "pi")


def width_by_rule(rule: str, d_model: int, multiple: int) -> int:
    """d_ff by a named rule: 4 d; 8/3 d or pi d, rounded up to `multiple`.

    8/3 gives a gated FFN (three matrices) the parameters of a plain one (two) at 4 d: Shazeer 2020, section 3.
    """
    if rule == "4x":
        return 4 * d_model
    width = 8 * d_model // 3 if rule == "8/3" else math.ceil(math.pi * d_model)
    return -(-width // multiple) * multiple


@dataclass(frozen=True, kw_only=True)
class FeedForward(Spec):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) when gated; no activation after `down`."""

    d_model: int = inherited()
    d_ff: int = option(help="width of the middle", auto="by the rule", ge=1, excludes="rule")
    rule: str | None = option(
        help="how d_ff is chosen",
        auto="8/3 when gated, else 4x; null when d_ff is given",
        valid=RULES,
        excludes="d_ff",
    )
    multiple: int = option(64, "what the rules 8/3 and pi round up to", ge=1)
    activation: str = option("gelu", "the non-linearity")
    gated: bool = option(False, "whether a second projection gates the first")
    bias: bool = option(False, "a bias on each projection")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        if "d_ff" in values:
            values.setdefault("rule", None)
        else:
            values.setdefault("rule", "8/3" if values["gated"] else "4x")
            values["d_ff"] = width_by_rule(values["rule"], values["d_model"], values["multiple"])

    def check(self) -> None:
        if self.rule is None:
            return
        width = width_by_rule(self.rule, self.d_model, self.multiple)
        if self.d_ff != width:
            problem = f"{self.d_ff} is given, but rule {self.rule} gives {width}; set one of them"
            raise ConfigError("d_ff", problem, value=self.d_ff)

    @property
    def n_up(self) -> int:
        """Projections from d_model to d_ff: one, or two when gated."""
        return 2 if self.gated else 1

    def params(self) -> dict[str, int]:
        """Parameters by tensor: (n_up + 1) d d_ff, and the biases."""
        weights = {"up": self.n_up * self.d_model * self.d_ff, "down": self.d_ff * self.d_model}
        return weights | ({"up_bias": self.n_up * self.d_ff, "down_bias": self.d_model} if self.bias else {})

    def flops(self, tokens: int) -> int:
        """Matmul FLOPs over `tokens` positions, 2 a multiply-add."""
        return 2 * tokens * (self.n_up + 1) * self.d_model * self.d_ff


@dataclass(frozen=True, kw_only=True)
class ClampedFeedForward(FeedForward):
    """down(g sigmoid(alpha g) (u + 1)), g = min(gate(x), limit), u = up(x) clamped to +- limit (gpt-oss)."""

    limit: float = option(7.0, "the gate is clamped to at most this, up to +- this", gt=0)
    alpha: float = option(1.702, "sharpness of the gate's sigmoid; 1.702 makes it about GELU", gt=0)


register(
    "ffn",
    "swiglu_clamped",
    ClampedFeedForward,
    summary="SiLU gate, clamped, up shifted by 1 (gpt-oss)",
    formula="3 d f",
    fixed={"activation": "silu", "gated": True},
)
for _name, _activation, _gated, _summary in (
    ("relu", "relu", False, "max(0, x)"),
    ("gelu", "gelu", False, "x Phi(x), exact"),
    ("gelu_tanh", "gelu_tanh", False, "GELU by its tanh form"),
    ("gelu_bloom", "gelu_bloom", False, "GELU by its tanh form, its constant cut to eight digits (BLOOM)"),
    ("silu", "silu", False, "x sigmoid(x)"),
    ("relu2", "relu2", False, "max(0, x) squared (Primer)"),
    ("swiglu", "silu", True, "SiLU gate"),
    ("geglu", "gelu", True, "GELU gate, exact"),
    ("geglu_tanh", "gelu_tanh", True, "GELU gate, by its tanh form"),
    ("reglu", "relu", True, "ReLU gate"),
):
    register(
        "ffn",
        _name,
        FeedForward,
        summary=_summary,
        formula="3 d f" if _gated else "2 d f",
        fixed={"activation": _activation, "gated": _gated},
    )
