"""The feed-forward network on paper: plain or gated, the rules that choose its width, and a mixture of experts."""

from __future__ import annotations

import math
from typing import Any, Self

from archlab.components.tape import INDEX, Activation, Tape
from archlab.errors import ConfigError
from archlab.frozen import derived, replace, values_of
from archlab.options import Spec, inherited, option, part
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


def activated(activation: str, tape: Tape, x: Activation) -> Activation:
    """The activation of x: ReLU keeps its output, the others their input, and BLOOM's GELU each of its factors."""
    if activation == "gelu_bloom":
        tape.keep("ffn", x, *(tape.like(x) for _ in range(6)))
        return tape.like(x)
    y = tape.like(x)
    tape.keep("ffn", y if activation in ("relu", "relu2") else x)
    return tape.like(y) if activation == "relu2" else y


class FFN(Spec):
    """What follows attention in a layer: each position by itself, [.., d_model] -> [.., d_model]."""

    d_model: int = inherited()

    def params(self) -> dict[str, int]:
        """Parameters by tensor."""
        raise self.unsaid("params")

    def fan_in(self) -> dict[str, int]:
        """Input features of each matrix among `params`, by tensor: what a row of it has."""
        raise self.unsaid("fan_in")

    @derived
    def n_params(self) -> int:
        """All of its parameters."""
        return sum(self.params().values())

    @property
    def widths(self) -> dict[str, int]:
        """Widths of middles by their option: what several devices can share."""
        raise self.unsaid("widths")

    def detail(self) -> dict[str, int]:
        """Parameters by role: `dense`, or `router`, `routed_experts` and `shared_experts`."""
        raise self.unsaid("detail")

    @property
    def idle_params(self) -> int:
        """Parameters that one token does not use: the experts that it is not routed to."""
        return 0

    def flops(self, tokens: int) -> int:
        """Matmul FLOPs over `tokens` positions, 2 a multiply-add."""
        raise self.unsaid("flops")

    def flops_detail(self, tokens: int) -> dict[str, int]:
        """The same by the roles of `detail`."""
        return {"dense": self.flops(tokens)}

    def on_tape(self, tape: Tape, x: Activation, dropout: float) -> Activation:
        """The output for x; dropout: its rate."""
        raise self.unsaid("on_tape")

    def share(self, tp: int, ep: int) -> FFN:
        """What one device computes: of each matrix one of `tp` shares, of routed experts one of `ep`."""
        raise self.unsaid("share")


class FeedForward(FFN):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) when gated; no activation after `down`."""

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

    def fan_in(self) -> dict[str, int]:
        return {"up": self.d_model, "down": self.d_ff}

    @property
    def widths(self) -> dict[str, int]:
        return {"d_ff": self.d_ff}

    def detail(self) -> dict[str, int]:
        return {"dense": self.n_params}

    def flops(self, tokens: int) -> int:
        return 2 * tokens * (self.n_up + 1) * self.d_model * self.d_ff

    def on_tape(self, tape: Tape, x: Activation, dropout: float) -> Activation:
        middle = self.middle(tape, tape.linear(x, self.n_up * self.d_ff))
        return tape.dropout(tape.linear(middle, self.d_model, stream=True), dropout)

    def share(self, tp: int, ep: int) -> Self:
        return replace(self, d_ff=self.d_ff // tp, rule=None)

    def middle(self, tape: Tape, projected: Activation) -> Activation:
        """What the down projection reads, of the up projection's output (with the gate's, where there is one)."""
        up = projected.view(self.d_ff)
        y = activated(self.activation, tape, up)
        return tape.product("ffn", y, up) if self.gated else y


class ClampedFeedForward(FeedForward):
    """down(g sigmoid(alpha g) (u + 1)), g = min(gate(x), limit), u = up(x) clamped to +- limit (gpt-oss)."""

    limit: float = option(7.0, "the gate is clamped to at most this, up to +- this", gt=0)
    alpha: float = option(1.702, "sharpness of the gate's sigmoid; 1.702 makes it about GELU", gt=0)

    def middle(self, tape: Tape, projected: Activation) -> Activation:
        tape.keep("ffn", projected)
        gate, up, opened = (tape.like(projected.view(self.d_ff)) for _ in range(3))
        tape.keep("ffn", opened)
        return tape.product("ffn", tape.product("ffn", gate, up), opened)


class MixtureOfExperts(FFN):
    """sum of w_i expert_i(x) over the chosen experts, plus what the shared experts give to every token.

    A router gives each expert a score from W x; the highest are chosen. Shazeer et al. 2017; shared experts: Dai et
    al. 2024 (DeepSeekMoE), section 3.2; choice limited to groups: DeepSeek-V2, section 2.1.2; a bias that balances the
    load without a loss: Wang et al. 2024, and DeepSeek-V3, section 2.1.2. Shared experts side by side are one FFN.
    """

    n_experts: int = option(8, "routed experts", ge=1)
    experts_per_token: int = option(2, "experts that each token is sent to", ge=1)
    expert: FeedForward = part("ffn", "swiglu", "the FFN that each expert is")
    n_shared: int = option(0, "shared experts, which every token passes", ge=0, excludes="shared_d_ff")
    shared_d_ff: int = option(
        help="width of the shared experts together, 0 for none",
        auto="n_shared times the expert's d_ff",
        ge=0,
        excludes="n_shared",
    )
    shared_gate: bool = option(False, "sigmoid(w x) multiplies what the shared experts give (Qwen2-MoE)")
    scoring: str = option("softmax", "from the router's logits to scores", valid=("softmax", "sigmoid"))
    normalise: bool = option(True, "the chosen experts' weights add up to 1")
    scaling: float = option(1.0, "multiplies the routed experts' weights", gt=0)
    n_groups: int = option(1, "groups of neighbouring experts", ge=1)
    groups_per_token: int = option(help="groups that a token may choose from", auto="all", ge=1)
    group_score: str = option("max", "a group's score: its best expert's, or its best two's sum", valid=("max", "top2"))
    balance_bias: bool = option(False, "a buffer added to the scores for the choice, not for the weights")
    router_bias: bool = option(False, "a bias on the router's logits")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        values.setdefault("shared_d_ff", values["n_shared"] * values["expert"].d_ff)
        values.setdefault("groups_per_token", values["n_groups"])

    def check(self) -> None:
        if self.n_shared and self.shared_d_ff != self.n_shared * self.expert.d_ff:
            problem = f"{self.shared_d_ff} is given, but n_shared = {self.n_shared} gives"
            problem += f" {self.n_shared * self.expert.d_ff}; set one of them"
            raise ConfigError("shared_d_ff", problem, value=self.shared_d_ff)
        if self.shared_gate and not self.shared_d_ff:
            raise ConfigError("shared_gate", "there are no shared experts to gate; set n_shared or shared_d_ff")
        self._check_groups()
        self._check_most("experts_per_token", self.groups_per_token * self.group_size, "experts to choose from")

    def _check_groups(self) -> None:
        if self.n_experts % self.n_groups:
            valid = [count for count in range(1, self.n_experts + 1) if self.n_experts % count == 0]
            problem = f"{self.n_groups} does not divide n_experts = {self.n_experts}"
            raise ConfigError("n_groups", problem, value=self.n_groups, valid=valid)
        self._check_most("groups_per_token", self.n_groups, "groups")
        if self.limited and self.group_score == "top2" and self.group_size < 2:
            raise ConfigError("group_score", "top2 needs two experts or more in a group", value="top2", valid=("max",))

    def _check_most(self, name: str, most: int, what: str) -> None:
        value = getattr(self, name)
        if value > most:
            raise ConfigError(name, f"{value} is more than the {most} {what}", value=value)

    @property
    def widths(self) -> dict[str, int]:
        shared = {"shared_d_ff": self.shared_d_ff} if self.shared_d_ff else {}
        return {"expert.d_ff": self.expert.d_ff} | shared

    @property
    def held(self) -> int:
        """Routed experts that are here."""
        return self.n_experts

    def share(self, tp: int, ep: int) -> FFN:
        divided = {"expert": self.expert.share(tp, ep), "n_shared": 0, "shared_d_ff": self.shared_d_ff // tp}
        return MixtureShare(**values_of(self) | divided, here=self.held // ep)

    @property
    def group_size(self) -> int:
        """Experts in a group."""
        return self.n_experts // self.n_groups

    @property
    def limited(self) -> bool:
        """Whether a token may not choose from all groups."""
        return self.groups_per_token < self.n_groups

    @derived
    def shared(self) -> FeedForward | None:
        """The shared experts as the one FFN that they amount to, None where there are none."""
        if not self.shared_d_ff:
            return None
        return replace(self.expert, d_ff=self.shared_d_ff, rule=None)

    def params(self) -> dict[str, int]:
        """Parameters by tensor: of the router, of all experts, of the shared ones, and of their gate."""
        tensors = {"router": self.n_experts * self.d_model}
        tensors |= {"router_bias": self.n_experts} if self.router_bias else {}
        tensors |= {f"experts.{name}": self.held * count for name, count in self.expert.params().items()}
        if self.shared is not None:
            tensors |= {f"shared.{name}": count for name, count in self.shared.params().items()}
        return tensors | ({"shared.gate": self.d_model} if self.shared_gate else {})

    def fan_in(self) -> dict[str, int]:
        rows = {"router": self.d_model} | {f"experts.{name}": row for name, row in self.expert.fan_in().items()}
        if self.shared is not None:
            rows |= {f"shared.{name}": row for name, row in self.shared.fan_in().items()}
        return rows | ({"shared.gate": self.d_model} if self.shared_gate else {})

    def detail(self) -> dict[str, int]:
        roles = {"router": 0, "experts": 0, "shared": 0}
        for tensor, count in self.params().items():
            roles[tensor.removesuffix("_bias").split(".")[0]] += count
        named = {"routed_experts": roles["experts"], "router": roles["router"], "shared_experts": roles["shared"]}
        return {role: count for role, count in named.items() if count}

    @property
    def idle_params(self) -> int:
        return (self.n_experts - self.experts_per_token) * self.expert.n_params

    def flops(self, tokens: int) -> int:
        return sum(self.flops_detail(tokens).values())

    def flops_detail(self, tokens: int) -> dict[str, int]:
        """Of the experts that a token is sent to, of the router, and of the shared experts with their gate."""
        roles = {
            "routed_experts": self.experts_per_token * self.expert.flops(tokens),
            "router": 2 * tokens * self.n_experts * self.d_model,
        }
        if self.shared is not None:
            roles["shared_experts"] = self.shared.flops(tokens) + 2 * tokens * self.shared_gate * self.d_model
        return roles

    def on_tape(self, tape: Tape, x: Activation, dropout: float) -> Activation:
        y = self._routed(tape, x, self._weights(tape, x))
        if self.shared is not None:
            shared = self.shared.on_tape(tape, x, 0.0)
            if self.shared_gate:
                shared = tape.product("ffn", tape.like(tape.linear(x, 1, stream=True)), shared)
            y = tape.like(y)
        return tape.dropout(y, dropout)

    def _weights(self, tape: Tape, x: Activation) -> Activation:
        """The weights of a token's experts; the router scores in float32 or wider."""
        wide = tape.cast(x, tape.wide)
        tape.keep("ffn", wide)
        if wide is not x:
            tape.keep("ffn", tape.new(self.d_model, tape.wide, rows=self.n_experts))  # its weight, cast as well
        scores = tape.new(self.n_experts, tape.wide, stream=True)
        tape.keep("ffn", scores, tape.new(self.experts_per_token, INDEX, stream=True))
        weights = tape.new(self.experts_per_token, tape.wide, stream=True)
        if self.normalise:
            tape.keep("ffn", weights, tape.new(1, tape.wide, stream=True))
        return tape.like(weights)

    def _routed(self, tape: Tape, x: Activation, weights: Activation) -> Activation:
        """Tokens in the order of their experts, through these, back in their own order, weighted and added up."""
        k = self.experts_per_token
        tape.keep("ffn", tape.new(2 * k, INDEX))  # the order, and each one's token
        sorted_ = tape.new(self.d_model, rows=tape.tokens * k)
        middle = self.expert.middle(tape, tape.linear(sorted_, self.expert.n_up * self.expert.d_ff))
        ordered = tape.linear(middle, self.d_model)
        outputs = tape.like(ordered)
        tape.keep("ffn", ordered, outputs, weights)
        weighted = tape.like(outputs, tape.wide)
        return tape.cast(tape.like(x, weighted.width), x.width)


class MixtureShare(MixtureOfExperts):
    """What one device of several has of a mixture: all of its router, some of its experts."""

    here: int = inherited()

    @property
    def held(self) -> int:
        return self.here


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

register(
    "ffn",
    "moe",
    MixtureOfExperts,
    summary="a router sends each token to a few of many experts",
    formula="E d + E expert + shared",
)
