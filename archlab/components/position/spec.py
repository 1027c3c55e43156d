"""How a token knows where it is. Three hooks, each may be nothing:

embed   a vector added to the token embedding (`learned`, `sinusoidal`);
rotate  an angle a feature pair of queries and keys (`rope` and its scalings);
bias    a number added to the scores, by head and distance (`alibi`, `t5`).
"""

from __future__ import annotations

import math
from typing import Any, Self

from archlab.components.tape import INDEX, Activation, Tape
from archlab.errors import ConfigError
from archlab.frozen import replace
from archlab.options import Spec, inherited, option
from archlab.registry import register


class Position(Spec):
    """No position information, and the base of those that give some."""

    @property
    def embeds(self) -> bool:
        """Whether it adds to the input, which happens once, for all layers."""
        return False

    @property
    def biases(self) -> bool:
        """Whether it adds to the scores."""
        return False

    def params(self) -> dict[str, int]:
        """Parameters by tensor."""
        return {}

    @property
    def max_length(self) -> int | None:
        """The longest run that it can place, None where there is no end."""
        return None

    def rotary_dim(self, head_dim: int) -> int:
        """Features of a head that are rotated."""
        return 0

    def check_head(self, head_dim: int) -> None:
        """Raise ConfigError where a head of this size cannot be placed."""

    def table_elements(self, rotary_dim: int, rows: int) -> int:
        """Elements of its fixed tables of `rows` positions, float32 or wider, that turn so many features of a head."""
        return 0

    def mask_on_tape(self, tape: Tape) -> Activation:
        """The mask of the layers that see as far as each other: a bool for each pair of positions."""
        return tape.new(tape.length, 1, rows=tape.length)

    def share(self, tp: int) -> Self:
        """What one of `tp` devices computes, each with its heads."""
        return self


class Learned(Position):
    """A trained vector a position, added to the embedding. Radford et al. 2018."""

    d_model: int = inherited()
    context: int = inherited()
    offset: int = option(0, "rows before the first position's, never read; OPT has 2", ge=0)

    @property
    def embeds(self) -> bool:
        return True

    def params(self) -> dict[str, int]:
        return {"weight": (self.context + self.offset) * self.d_model}

    @property
    def max_length(self) -> int | None:
        return self.context


class Sinusoidal(Position):
    """sin and cos of position / base^(2i/d), in alternate columns, added. Vaswani et al. 2017, section 3.5.

    An odd width has one sine column more than cosines.
    """

    d_model: int = inherited()
    base: float = option(10000.0, "wavelengths run from 2 pi to base * 2 pi tokens", gt=1)

    @property
    def embeds(self) -> bool:
        return True

    def frequencies(self) -> list[float]:
        """Radians a token, one a sine column: ceil(d_model / 2) of them."""
        return [self.base ** (-2 * i / self.d_model) for i in range((self.d_model + 1) // 2)]

    def table_elements(self, rotary_dim: int, rows: int) -> int:
        return rows * self.d_model


class Alibi(Position):
    """Scores fall with distance, -slope a token, a slope a head. Press et al. 2022, section 3.

    The slopes of 2^n heads are geometric, 2^(-max_bias i / 2^n); other numbers of heads take those of the power below,
    then every second one of the power above, as the paper's code, BLOOM and MPT do.
    """

    n_heads: int = inherited()
    max_bias: float = option(8.0, "the last head's slope is 2 to minus this", gt=0)
    scale: float = option(1.0, "multiplies the bias; Falcon has 1 / sqrt(head_dim)", gt=0)

    @property
    def biases(self) -> bool:
        return True

    def slopes(self) -> list[float]:
        """One a head."""
        below = 2 ** (self.n_heads.bit_length() - 1)
        between = [self.max_bias * i / (2 * below) for i in range(1, 2 * below, 2)]
        exponents = [self.max_bias * i / below for i in range(1, below + 1)] + between
        return [self.scale * 2.0**-exponent for exponent in exponents[: self.n_heads]]

    def table_elements(self, rotary_dim: int, rows: int) -> int:
        return self.n_heads

    def mask_on_tape(self, tape: Tape) -> Activation:
        return tape.new(tape.length, tape.wide, self.n_heads * tape.length)

    def share(self, tp: int) -> Self:
        return replace(self, n_heads=self.n_heads // tp)


class T5Bias(Position):
    """A trained number a head and bucket of distance, one table for all layers. Raffel et al. 2020, section 2.1.

    Half of the buckets hold one distance each, from 0 on; the other half grow, evenly in the logarithm, up to
    max_distance, and the last holds all beyond.
    """

    n_heads: int = inherited()
    n_buckets: int = option(32, "distances told apart", ge=2)
    max_distance: int = option(128, "tokens from which on all are in the last bucket", ge=2)

    def check(self) -> None:
        if self.max_distance <= self.n_buckets // 2:
            problem = f"{self.max_distance} must be > {self.n_buckets // 2}, the buckets of one distance each"
            raise ConfigError("max_distance", problem, value=self.max_distance)

    @property
    def biases(self) -> bool:
        return True

    def params(self) -> dict[str, int]:
        return {"weight": self.n_buckets * self.n_heads}

    def mask_on_tape(self, tape: Tape) -> Activation:
        buckets, hidden = (tape.new(tape.length, width, tape.length) for width in (INDEX, 1))
        tape.keep("masks", buckets, hidden)
        return tape.new(tape.length, rows=self.n_heads * tape.length)

    def share(self, tp: int) -> Self:
        return replace(self, n_heads=self.n_heads // tp)


class Rope(Position):
    """Rotate pairs of query and key features by position * base^(-2i/r). Su et al. 2021, eq. 34."""

    base: float = option(10000.0, "the slowest pair turns once in about base * 2 pi tokens", gt=1)
    fraction: float = option(1.0, "share of the head that is rotated, from its first feature on", gt=0)
    layout: str = option(
        "half",
        "pairs are (i, i + r/2), as GPT-NeoX and Llama have it, or (2i, 2i + 1), as GPT-J",
        valid=("half", "interleaved"),
    )

    def check(self) -> None:
        if self.fraction > 1:
            raise ConfigError("fraction", f"{self.fraction} must be <= 1", value=self.fraction)

    def rotary_dim(self, head_dim: int) -> int:
        return int(head_dim * self.fraction)

    def check_head(self, head_dim: int) -> None:
        if not head_dim:
            problem = f"{self.choice} turns queries and keys, and this attention has none to turn; none goes with it"
            raise ConfigError("choice", problem, value=self.choice)
        rotated = self.rotary_dim(head_dim)
        if rotated < 2 or rotated % 2:
            problem = (
                f"{rotated} features of a head of {head_dim} would be rotated; rotation needs an even number, 2 or more"
            )
            raise ConfigError("fraction", problem, value=self.fraction)

    @property
    def depends_on_length(self) -> bool:
        """Whether the angles depend on how long the run is."""
        return False

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        """Radians a token of each of the rotary_dim/2 pairs, for a run of `length` tokens, in float64."""
        return [self.base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]

    def table_elements(self, rotary_dim: int, rows: int) -> int:
        return rows * rotary_dim

    def amplitude(self) -> float:
        """What cos and sin are multiplied by; its square scales the scores."""
        return 1.0


class LinearRope(Rope):
    """All positions divided by `factor`. Chen et al. 2023 (position interpolation)."""

    factor: float = option(4.0, "by how much the context is stretched", ge=1)

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        return [w / self.factor for w in super().frequencies(rotary_dim, length)]


class FixedLengthRope(Rope):
    """Base of the scalings whose angles depend on how long the run is.

    Keys already cached keep the angle they were given, so the table must not change during a run: it is made once,
    for `rope_length` tokens, by default the whole run's length (all tokens of a plain pass, a cache's capacity).
    """

    context: int = inherited()
    original_context: int = option(help="context it was trained at", auto="the model's context", ge=1)
    rope_length: int | None = option(None, "length the angles are made for; null: the run's whole length", ge=1)

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        values.setdefault("original_context", values["context"])

    @property
    def depends_on_length(self) -> bool:
        return self.rope_length is None


class NtkRope(FixedLengthRope):
    """Dynamic NTK: past the original context the base grows with the run. bloc97 2023; Peng et al. 2023, app. B.1."""

    factor: float = option(4.0, "by how much the base grows", ge=1)

    def check_head(self, head_dim: int) -> None:
        super().check_head(head_dim)
        if self.rotary_dim(head_dim) < 4:
            raise ConfigError("fraction", "ntk needs 4 or more rotated features", value=self.fraction)

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        stretch = max(self.rope_length or length, self.original_context) / self.original_context
        grown = self.factor * stretch - (self.factor - 1)
        base = self.base * grown ** (rotary_dim / (rotary_dim - 2))
        return [base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]


class YarnRope(Rope):
    """YaRN: fast pairs kept, slow pairs divided by `factor`, a ramp between, scores scaled. Peng et al. 2023."""

    context: int = inherited()
    factor: float = option(4.0, "by how much the context is stretched", ge=1)
    original_context: int = option(help="context it was trained at", auto="context / factor", ge=1)
    beta_fast: float = option(32.0, "turns over the original context from which a pair is kept", gt=0)
    beta_slow: float = option(1.0, "turns over the original context up to which a pair is divided", gt=0)
    attention_factor: float = option(help="multiplies cos and sin", auto="0.1 ln(factor) + 1, or by mscale", gt=0)
    mscale: float | None = option(None, "numerator of the attention factor, with mscale_all_dim (DeepSeek)")
    mscale_all_dim: float | None = option(None, "denominator of the attention factor")
    truncate: bool = option(True, "round the ramp's ends outward to whole pairs")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        factor = values["factor"]
        values.setdefault("original_context", max(1, int(values["context"] / factor)))
        scale, scale_all = values["mscale"], values["mscale_all_dim"]
        if scale and scale_all:
            values.setdefault("attention_factor", _mscale(factor, scale) / _mscale(factor, scale_all))
        values.setdefault("attention_factor", _mscale(factor, 1.0))

    def remarks(self) -> tuple[str, ...]:
        stretch = self.context / self.original_context
        if stretch in (1.0, self.factor):
            return ()
        return (f"factor {self.factor:g} holds, though the context is {stretch:g} times the original",)

    def amplitude(self) -> float:
        return self.attention_factor

    def ramp(self, rotary_dim: int) -> tuple[float, float]:
        """The pair indices where the ramp starts and ends."""
        low = self._pair_turning(self.beta_fast, rotary_dim)
        high = self._pair_turning(self.beta_slow, rotary_dim)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        return max(low, 0), min(high, rotary_dim - 1)

    def _pair_turning(self, turns: float, rotary_dim: int) -> float:
        """The (fractional) pair that turns `turns` times over the original context."""
        return rotary_dim * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(self.base))

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        low, high = self.ramp(rotary_dim)
        width = high - low if high != low else 0.001  # a step, where both ends fall on one pair
        scaled = []
        for i, w in enumerate(super().frequencies(rotary_dim, length)):
            slow = min(max((i - low) / width, 0.0), 1.0)
            scaled.append(w * (1 - slow) + w / self.factor * slow)
        return scaled


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


class Llama3Rope(Rope):
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a blend between. Dubey et al. 2024."""

    context: int = inherited()
    factor: float = option(8.0, "by how much the slow pairs are divided", ge=1)
    original_context: int = option(help="context it was trained at", auto="context / factor", ge=1)
    low_freq_factor: float = option(1.0, "wavelengths over original_context / this are divided", gt=0)
    high_freq_factor: float = option(4.0, "wavelengths under original_context / this are kept", gt=0)

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        values.setdefault("original_context", max(1, int(values["context"] / values["factor"])))

    def check(self) -> None:
        super().check()
        if self.high_freq_factor <= self.low_freq_factor:
            problem = f"{self.high_freq_factor} must be > low_freq_factor = {self.low_freq_factor}"
            raise ConfigError("high_freq_factor", problem, value=self.high_freq_factor)

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        scaled = []
        for w in super().frequencies(rotary_dim, length):
            turns = self.original_context * w / (2 * math.pi)
            blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
            kept = min(max(blend, 0.0), 1.0)
            scaled.append(w * kept + w / self.factor * (1 - kept))
        return scaled


class LongRope(FixedLengthRope):
    """A divisor a pair, one list for short runs and one for long. Ding et al. 2024 (LongRoPE)."""

    original_context: int = option(help="context it was trained at", auto="context / 4", ge=1)
    short_factor: tuple[float, ...] | None = option(
        None, "a divisor a pair, up to the original context; null: 1 for every pair", gt=0
    )
    long_factor: tuple[float, ...] | None = option(
        None, "a divisor a pair, past the original context; null: context / original_context for every pair", gt=0
    )
    attention_factor: float = option(
        help="multiplies cos and sin", auto="sqrt(1 + ln(context / original) / ln(original))", gt=0
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        original = values.setdefault("original_context", max(1, values["context"] // 4))
        stretch = values["context"] / original
        longer = stretch > 1 and original > 1
        values.setdefault("attention_factor", math.sqrt(1 + math.log(stretch) / math.log(original)) if longer else 1.0)

    def check_head(self, head_dim: int) -> None:
        super().check_head(head_dim)
        pairs = self.rotary_dim(head_dim) // 2
        for name, given in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if given is not None and len(given) != pairs:
                raise ConfigError(name, f"has {len(given)} numbers; a head of {head_dim} has {pairs} rotated pairs")

    def amplitude(self) -> float:
        return self.attention_factor

    def frequencies(self, rotary_dim: int, length: int) -> list[float]:
        plain = super().frequencies(rotary_dim, length)
        long = (self.rope_length or length) > self.original_context
        even = (max(1.0, self.context / self.original_context) if long else 1.0,) * len(plain)
        divisors = (self.long_factor if long else self.short_factor) or even
        return [w / d for w, d in zip(plain, divisors, strict=True)]


for _name, _spec, _summary, _formula in (
    ("none", Position, "no position information", "0"),
    ("learned", Learned, "a trained vector a position, added", "(context + offset) d"),
    ("sinusoidal", Sinusoidal, "fixed sines and cosines, added", "0"),
    ("alibi", Alibi, "scores fall with distance, a slope a head (ALiBi)", "0"),
    ("t5", T5Bias, "a trained score a head and bucket of distance", "n_buckets h"),
    ("rope", Rope, "rotate queries and keys", "0"),
    ("linear", LinearRope, "rope with all positions divided", "0"),
    ("ntk", NtkRope, "rope whose base grows with the run (dynamic NTK)", "0"),
    ("yarn", YarnRope, "rope by YaRN: slow pairs divided, scores scaled", "0"),
    ("llama3", Llama3Rope, "rope as Llama 3.1 stretches it", "0"),
    ("longrope", LongRope, "rope with a divisor a pair (LongRoPE)", "0"),
):
    register("position", _name, _spec, summary=_summary, formula=_formula)
