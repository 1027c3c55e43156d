r"""Residual layout: where the norms sit around attention and FFN, and what the skip path is scaled by.

    pre_norm              post_norm             sandwich              parallel
    x --+--> r x --+      x --+--> r x --+      x --+--> r x --+      x --+----> r x ----+
        |          |          |          |          |          |          |              |
       norm        |         f(x) * b    |         norm        |         norm --> attn --+
        |          |          |          |          |          |          |       * b    |
       f(x) * b -> +          +--------> +         f(x)        |         norm --> ffn ---+
                   |                     |          |          |                  * b    |
                                        norm       norm * b -> +

res_post_norm is sandwich without the first norm: r x + b norm(f(x)).

f is attention, then FFN; r is `residual_scale`, b is `branch_scale`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archlab.components.tape import Activation, Tape
from archlab.frozen import derived
from archlab.options import Spec, inherited, option
from archlab.registry import register

Part = Callable[[Activation], Activation]
"""A norm, the attention or the FFN of one layer, on a tape."""


class Block(Spec):
    """A residual layout. `norm_names` are the norms over d_model that one layer owns."""

    d_model: int = inherited()
    residual_scale: float = option(1.0, "multiplies the skip path; 0 removes it", ge=0)
    branch_scale: float = option(1.0, "multiplies what is added to it")
    embedding_scale: float = option(
        1.0,
        "multiplies the token embedding as it enters the residual stream; sqrt_d_model: by the root of the width",
        gt=0,
        words=("sqrt_d_model",),
    )
    embedding_norm: bool = option(False, "a norm on the token embedding, before the first layer (BLOOM)")
    final_norm: bool = option(help="a norm between the last layer and the head", auto="true, but false for post_norm")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        if values["embedding_scale"] == "sqrt_d_model":
            values["embedding_scale"] = values["d_model"] ** 0.5
        values.setdefault("final_norm", True)

    @property
    def norm_names(self) -> tuple[str, ...]:
        return ("attention_norm", "ffn_norm")

    def params(self) -> dict[str, int]:
        """Parameters by tensor, beside those of norms, attention and FFN."""
        return {}

    def fan_in(self) -> dict[str, int]:
        """Input features of each matrix among these, by tensor."""
        return {}

    @derived
    def n_params(self) -> int:
        """All of these."""
        return sum(self.params().values())

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        """The layer's output for x."""
        raise self.unsaid("on_tape")


class PreNorm(Block):
    """x <- r x + b f(norm(x)). Xiong et al. 2020, fig. 1b."""

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        for branch in (attention, ffn):
            x = tape.like(branch(norm(x)))
        return x


class PostNorm(Block):
    """x <- norm(r x + b f(x)). Vaswani et al. 2017, section 3.1."""

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        values.setdefault("final_norm", False)
        super().derive(values)

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        for branch in (attention, ffn):
            x = norm(tape.like(branch(x)))
        return x


class Sandwich(Block):
    """x <- r x + b norm(f(norm(x))). Ding et al. 2021 (CogView), section 2.4."""

    @property
    def norm_names(self) -> tuple[str, ...]:
        return ("attention_norm", "attention_post_norm", "ffn_norm", "ffn_post_norm")

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        for branch in (attention, ffn):
            x = tape.like(norm(branch(norm(x))))
        return x


class ResPostNorm(Block):
    """x <- r x + b norm(f(x)). Liu et al. 2021 (Swin V2), section 3.2; OLMo 2 (Walsh et al. 2024, section 3.2)."""

    @property
    def norm_names(self) -> tuple[str, ...]:
        return ("attention_post_norm", "ffn_post_norm")

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        for branch in (attention, ffn):
            x = tape.like(norm(branch(x)))
        return x


class Parallel(Block):
    """x <- r x + b (attention(norm(x)) + ffn(norm(x))). Wang and Komatsuzaki 2021 (GPT-J)."""

    n_norms: int = option(1, "one norm that both branches share, or one each", valid=(1, 2))

    @property
    def norm_names(self) -> tuple[str, ...]:
        return ("attention_norm", "ffn_norm")[: self.n_norms]

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        normed = norm(x)
        branches = tape.like(attention(normed))
        ffn(normed if self.n_norms == 1 else norm(x))
        return tape.like(branches)


register("block", "pre_norm", PreNorm, summary="norm before each sub-layer", formula="2 norms a layer + final")
register("block", "post_norm", PostNorm, summary="norm after each residual sum", formula="2 norms a layer")
register(
    "block",
    "sandwich",
    Sandwich,
    summary="norm before and after each sub-layer",
    formula="4 norms a layer + final",
)
register(
    "block",
    "res_post_norm",
    ResPostNorm,
    summary="norm on what each sub-layer adds (OLMo 2)",
    formula="2 norms a layer + final",
)
register(
    "block",
    "parallel",
    Parallel,
    summary="attention and FFN side by side",
    formula="1 or 2 norms a layer + final",
)
