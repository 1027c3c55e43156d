"""Budgets: the d_ff, n_layers or d_model at which a composition has so many parameters, KV bytes or FLOPs a token.

The exact closed forms are asked, size by size, by bisection; there is no formula of a budget's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

from archlab import presets
from archlab.cost.flops import flops_of_run
from archlab.cost.kv import kv_cache
from archlab.cost.params import DEFINITIONS, parameters
from archlab.decoder.resolve import Resolved, resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.frozen import Frozen, derived
from archlab.options import option
from archlab.record import Figure
from archlab.sizes import Size, size_named
from archlab.units import read_bytes, read_count, read_flops
from archlab.workload import Workload

SOLVE = ("d_ff", "n_layers", "d_model")
ROUND = ("down", "up", "nearest")


class Measure(Frozen):
    """A figure that may have a budget: of a spec at a workload. read: its amount as text, under a key."""

    unit: str
    how: str
    of: Callable[[DecoderSpec, Workload], int | Fraction]
    read: Callable[[str | int, str], int]


def _flops_per_token(spec: DecoderSpec, workload: Workload) -> Fraction:
    return Fraction(flops_of_run(spec, 1, workload.prompt, 0, "full").prefill, workload.prompt)


MEASURES = {
    "params": Measure("parameters", DEFINITIONS["total"], lambda spec, _: parameters(spec).total, read_count),
    "params_active": Measure("parameters", DEFINITIONS["active"], lambda spec, _: parameters(spec).active, read_count),
    "params_non_embedding": Measure(
        "parameters", DEFINITIONS["non_embedding"], lambda spec, _: parameters(spec).non_embedding, read_count
    ),
    "kv_bytes_per_token": Measure(
        "B/token",
        "all layers, one sequence, in the cache's dtype",
        lambda spec, workload: kv_cache(spec, 1, 1, workload.cache_dtype).bytes_per_token,
        read_bytes,
    ),
    "flops_per_token": Measure(
        "FLOP/token",
        "matmul FLOPs of a prompt, 2 a multiply-add, every query-key pair, logits of all positions, over its tokens",
        _flops_per_token,
        read_flops,
    ),
}
"""What a budget may be of, by name."""

Amount = int | float | str | None


def measure(name: str, spec: DecoderSpec, workload: Workload) -> Fraction:
    """A figure of a spec, exactly."""
    return Fraction(MEASURES[name].of(spec, workload))


def _preset(name: str) -> dict[str, Any]:
    try:
        return presets.model(name)
    except ConfigError as error:
        raise ConfigError("base", error.problem, value=name, valid=error.valid, nearest=error.nearest) from None


class Budget(Frozen):
    """At most one budget, and what is solved for to meet it."""

    params: Amount = option(None, "parameters in all, each once: 124M, 1.3B")
    params_active: Amount = option(None, "parameters that one token uses")
    params_non_embedding: Amount = option(None, "parameters without the token and position tables")
    kv_bytes_per_token: Amount = option(None, "bytes of the KV cache a token, all layers: 32KiB")
    flops_per_token: Amount = option(None, "FLOPs a token of the workload's prompt, every query-key pair: 250M")
    base: str | None = option(None, "a preset; the budget is what it has")
    figure: str | None = option(None, "which of its figures; null: params", valid=tuple(MEASURES))
    solve: str = option("d_ff", "the size that is solved for", valid=SOLVE)
    multiple: int | None = option(
        None, "the size is a multiple of it; null: 64 of a width, 1 of n_layers; heads may need more of d_model", ge=1
    )
    round: str = option(
        "down", "down: the largest size within the budget; up: one step beyond; nearest: the closer one", valid=ROUND
    )

    def __post_init__(self) -> None:
        given = [name for name in ("base", *MEASURES) if getattr(self, name) is not None]
        if len(given) > 1:
            said = " and ".join(f"{name} = {getattr(self, name)}" for name in given)
            raise ConfigError("", f"{said} are {len(given)} budgets for one unknown, {self.solve}; leave one of them")
        if self.figure is not None and self.base is None:
            raise ConfigError("figure", "says which figure of budget.base is the budget, and there is no base")

    @derived
    def is_set(self) -> bool:
        """Whether there is a budget at all."""
        return self.base is not None or any(getattr(self, name) is not None for name in MEASURES)

    def target(self, workload: Workload) -> tuple[str, Fraction]:
        """The figure's name, and how much of it. Raises ConfigError."""
        if self.base is not None:
            name = self.figure or "params"
            return name, measure(name, resolve(_preset(self.base)).spec, workload)
        name = next(name for name in MEASURES if getattr(self, name) is not None)
        given = getattr(self, name)
        whole = isinstance(given, float) and given.is_integer()
        return name, Fraction(MEASURES[name].read(int(given) if whole else given, name))


class Candidate(Frozen):
    """A size that was tried: its value, the model config with it, what that resolves to, and its figure."""

    value: int
    model: Mapping[str, Any]
    resolved: Resolved
    figure: Fraction


class Solution(Frozen):
    """What a budget led to. start: the model as it was; above: None where the largest size of all meets the budget.

    below, above: the neighbours that the budget lies between, one of which is the answer.
    """

    budget: Budget
    name: str
    asked: Fraction
    size: Size
    start: Candidate
    below: Candidate
    above: Candidate | None
    answer: Candidate

    @property
    def residual(self) -> Fraction:
        """What is left of the budget; below zero where it is exceeded."""
        return self.asked - self.answer.figure

    @property
    def note(self) -> str:
        """The answer in a line."""
        met = f"{self.size.name} = {self.answer.value:,} by {self.budget_text}: {show(self.answer.figure)}"
        side = "short by" if self.residual >= 0 else "over by"
        return f"{met}, {side} {show(abs(self.residual))}" if self.residual else f"{met}, met exactly"

    @property
    def budget_text(self) -> str:
        """`budget params 39,000,000`; `budget params 42,082,816 of mha`."""
        of = f" of {self.budget.base}" if self.budget.base else ""
        return f"budget {self.name} {show(self.asked)}{of}"

    def figures(self) -> dict[str, Figure]:
        """The budget, what is left of it, and the size that was found."""
        unit, how = MEASURES[self.name].unit, MEASURES[self.name].how
        of = f"what {self.budget.base} has; " if self.budget.base else ""
        step = f"multiple of {self.size.step}, rounded {self.budget.round}"
        return {
            f"budget_{self.name}": Figure(plain(self.asked), unit, "exact", f"budget: {of}{how}"),
            "budget_residual": Figure(plain(self.residual), unit, "exact", f"budget less {self.name}"),
            f"solved_{self.size.name}": Figure(self.answer.value, "", "exact", f"{self.size.key}, {step}"),
        }


def solve(model: Mapping[str, Any], typed: Collection[str], budget: Budget, workload: Workload) -> Solution:
    """The size at which a model config meets a budget. typed: dotted keys that the user set, such as `model.n_layers`.

    Raises ConfigError, under `budget`, where there is none, and says how near it comes.
    """
    own = resolve(model, typed)  # what is wrong with the model itself comes first
    try:
        name, asked = budget.target(workload)
        size = size_named(budget.solve, model, typed, budget.multiple)
    except ConfigError as error:
        raise error.under("budget") from None

    @functools.cache
    def at(steps: int) -> Candidate:
        made = size.put(steps * size.step)
        resolved = resolve(made, typed)
        return Candidate(steps * size.step, made, resolved, measure(name, resolved.spec, workload))

    most = size.most // size.step
    steps = last_within(lambda tried: at(tried).figure, asked, most)
    if steps in (0, most):
        _check_met(name, asked, size, at(1), at(most))
    start = Candidate(size.start, model, own, measure(name, own.spec, workload))
    below, above = at(steps), at(steps + 1) if steps < most else None
    return Solution(budget, name, asked, size, start, below, above, _chosen(budget.round, asked, below, above))


def last_within(figure: Callable[[int], Fraction], budget: Fraction, most: int) -> int:
    """The largest of 1 .. most whose figure is within the budget, 0 where none is. The figure never falls."""
    low, high = 0, 1
    while high <= most and figure(high) <= budget:
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if figure(middle) <= budget:
            low = middle
        else:
            high = middle
    return low


def _chosen(rounding: str, asked: Fraction, below: Candidate, above: Candidate | None) -> Candidate:
    if above is None or rounding == "down" or below.figure == asked:
        return below
    if rounding == "up":
        return above
    return min(below, above, key=lambda tried: abs(tried.figure - asked))


def _check_met(name: str, asked: Fraction, size: Size, least: Candidate, most: Candidate) -> None:
    """Raise ConfigError where the smallest size is beyond the budget, or the largest within it; say how near it is."""
    key, unit = f"budget.{name}", MEASURES[name].unit
    if least.figure == most.figure and least.value < most.value:
        valid = [f"budget.solve={other}" for other in SOLVE if other != size.name]
        problem = f"does not depend on {size.name}: it is {show(least.figure)} {unit} whatever that is"
        raise ConfigError(key, problem, value=plain(asked), valid=valid)
    problem = f"{show(asked)} {unit} cannot be met: {size.key} ="
    if least.figure > asked:
        near = f"{least.value:,}, the least, has {show(least.figure)}, over by {show(least.figure - asked)}"
        raise ConfigError(key, f"{problem} {near}", value=plain(asked))
    if most.figure < asked:
        near = f"{most.value:,}, the most that is tried, has {show(most.figure)}, short by {show(asked - most.figure)}"
        raise ConfigError(key, f"{problem} {near}", value=plain(asked))


def plain(amount: Fraction) -> int | float:
    """An amount as JSON has it."""
    return int(amount) if amount == int(amount) else float(amount)


def show(amount: Fraction) -> str:
    """Every digit, thousands separated; a fraction to two decimals."""
    return f"{int(amount):,}" if amount == int(amount) else f"{float(amount):,.2f}"
