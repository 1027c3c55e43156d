"""What the modules of others cost, where their specs do not say it: counted on the module, built without storage.

There is a class for each axis (`axes.py`). The spec of a third party's choice is made of its own class and of one of
these, so that what it says itself comes first, then what it inherits, then what is counted; see `components/own.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from archlab.components.attention.base import CachedTensor, State
from archlab.components.attention.module import Step
from archlab.components.counted import probe
from archlab.components.dropout.spec import PLACES, Dropout
from archlab.options import Spec
from archlab.registry import module_class

UNDROPPED = Dropout(axis="dropout", choice="none", p=0.0, **dict.fromkeys(PLACES, 0.0))
BATCH, TOKENS = 2, 8
"""Of the inputs that modules are tried on."""


class Counted(Spec):
    """Base of the specs whose module is counted. Its subclasses say how that is made, and how it is called."""

    def made_with(self) -> tuple[Any, ...]:
        """What the module is made with, beside the spec."""
        return ()

    def called_with(self, step: Step) -> tuple[Any, ...]:
        """What the module is called with, beside its input; tensors on the device that is torch's default."""
        return ()

    def output_shape(self, given: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...]:
        """What the output for an input of the shape `given` has to be, which is `found`."""
        return given

    def params(self) -> dict[str, int]:
        return probe.sizes(built(self))

    def fan_in(self) -> dict[str, int]:
        return probe.rows(built(self))

    def share(self, tp: int, ep: int = 1) -> Self:
        if tp * ep > 1:  # only the author could say how
            raise self.unsaid("share")
        return self


def module_of(spec: Spec, *given: Any, **named: Any) -> nn.Module:
    """The module of a spec, called as archlab's own of its axis are."""
    made: nn.Module = module_class(spec.axis, spec)(spec, *given, **named)
    return made


@functools.lru_cache
def built(spec: Any) -> nn.Module:
    """The module of a spec, without storage."""
    return probe.on_meta(lambda: module_of(spec, *spec.made_with()))


class First(NamedTuple):
    """What a module did in a first pass.

    output: its shape. cached, states: what it kept of each token, and of a sequence. turned: features of a head that it
    had turned.
    """

    output: tuple[int, ...]
    cached: tuple[CachedTensor, ...]
    states: tuple[State, ...]
    turned: int


@functools.lru_cache
def first(spec: Any) -> First:
    """The first pass of a spec's module. Raises ConfigError where it does not do what its axis asks for."""
    notes, turned = probe.Notebook(spec, BATCH, TOKENS), probe.Turned()
    y = _run(spec, BATCH, TOKENS, Step(turned, memory=notes))
    probe.check_shape(spec, y, spec.output_shape((BATCH, TOKENS, spec.d_model), tuple(getattr(y, "shape", ()))))
    cached = tuple(CachedTensor(name, shape[1], shape[3]) for name, shape in notes.stored.items())
    states = tuple(State(name, shape[1:]) for name, shape in notes.states.items())
    return First(tuple(y.shape), cached, states, turned.width)


@torch.no_grad()
def _run(spec: Any, batch: int, tokens: int, step: Step) -> Tensor:
    with torch.device("meta"), probe.blamed(spec, "forward"):
        y: Tensor = built(spec)(torch.empty(batch, tokens, spec.d_model), *spec.called_with(step))
        return y


@functools.lru_cache
def prefill_rates(spec: Any) -> probe.Rates:
    """FLOPs of a token and of a pair, of tokens that come together."""
    first(spec)  # whether it does what is asked for at all
    return probe.rates(spec, lambda tokens: _run(spec, 1, tokens, Step()), lambda tokens: tokens)


@functools.lru_cache
def decode_rates(spec: Any) -> probe.Rates:
    """The same of a token that comes after others which are cached; pairs are with these and with itself."""

    def run(keys: int) -> Tensor:
        return _run(spec, 1, 1, Step(memory=probe.Notebook(spec, 1, 1, keys - 1)))

    return probe.rates(spec, run, lambda keys: 1)


def flops_of_each(spec: Any) -> int:
    """FLOPs of a token where each stands by itself. Raises ConfigError where they do not."""
    found = prefill_rates(spec)
    if found.pair:
        raise probe.wrong(spec, "its FLOPs grow with the square of the tokens, as of attention alone they may")
    return found.token


@functools.lru_cache
def log(
    spec: Any, made_with: tuple[Any, ...], width: int, shape: tuple[int, ...], step: Callable[[], Step] = Step
) -> probe.Log:
    """What a training pass over an input of this shape keeps, in a dtype of so many bytes."""
    return probe.logged(spec, lambda _: module_of(spec, *made_with), width, shape, lambda: spec.called_with(step()))
