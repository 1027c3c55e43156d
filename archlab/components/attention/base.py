"""What the model, its costs and its cache ask of an attention."""

from __future__ import annotations

import math
from typing import Any, Self

from archlab.components.attention import kept
from archlab.components.dropout.spec import Dropout
from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.norm.spec import Norm
from archlab.components.position.spec import Position
from archlab.components.tape import Activation, Tape
from archlab.errors import ConfigError
from archlab.frozen import Frozen, derived, fields_of, replace
from archlab.options import Spec, inherited, option


class CachedTensor(Frozen):
    """One tensor that a layer keeps a sequence: [heads, tokens, width]."""

    name: str
    heads: int
    width: int

    @property
    def elements_per_token(self) -> int:
        return self.heads * self.width


class State(Frozen):
    """One tensor that a layer keeps of a sequence however long it is, of this shape: a convolution's last inputs."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Attention(Spec):
    """Base of the attentions: what the model, its costs and its cache ask of one."""

    d_model: int = inherited()
    norm: Norm = inherited()
    n_heads: int = option(help="query heads", ge=1)
    shares_kv = False  # no field: an option of those that can
    """Whether it reads the keys and values of an earlier layer (`archlab.decoder.sharing` says which)."""

    @property
    def q_width(self) -> int:
        """Query features, all heads together."""
        raise self.unsaid("q_width")

    @property
    def kv_width(self) -> int:
        """Key features, and value features, as attention reads them in a prefill: all heads together."""
        raise self.unsaid("kv_width")

    @property
    def own_kv_width(self) -> int:
        """As kv_width, but of what the layer makes itself: none where it shares an earlier layer's."""
        return 0 if self.shares_kv else self.kv_width

    @property
    def rotary_width(self) -> int:
        """Features of a head that a rotation is offered."""
        raise self.unsaid("rotary_width")

    @property
    def locality(self) -> Locality:
        """How far back a query sees."""
        return EVERYWHERE

    @property
    def backend_used(self) -> str:
        """What runs in place of the backend that is asked for, one of `backend.BACKENDS`; see `ran`."""
        raise self.unsaid("backend_used")

    def on_backend(self, backend: str) -> Self:
        """The same with another backend, where it lets that be chosen."""
        return replace(self, backend=backend) if "backend" in fields_of(type(self)) else self

    def params(self) -> dict[str, int]:
        """Parameters by tensor; those that end in `norm` count under norms."""
        raise self.unsaid("params")

    def fan_in(self) -> dict[str, int]:
        """Input features of each matrix among `params`, by tensor: what a row of it has."""
        raise self.unsaid("fan_in")

    def flops(self, tokens: int, pairs: int) -> int:
        """Matmul FLOPs of `tokens` positions and `pairs` (query, key) pairs in a prefill, 2 a multiply-add."""
        raise self.unsaid("flops")

    def decode_flops(self, tokens: int, pairs: int) -> int:
        """The same of tokens decoded one by one after others that are cached."""
        return self.flops(tokens, pairs)

    def cached(self) -> tuple[CachedTensor, ...]:
        """What is kept of each token between decode steps."""
        raise self.unsaid("cached")

    def states(self) -> tuple[State, ...]:
        """What is kept of each sequence between decode steps, however long it is."""
        return ()

    def read(self) -> tuple[CachedTensor, ...]:
        """What a decode step reads of each earlier token: what this layer keeps of it, or the one whose it shares."""
        return self.cached()

    @derived
    def cached_once(self) -> tuple[CachedTensor, ...]:
        """`cached`, worked out once."""
        return self.cached()

    @derived
    def n_params(self) -> int:
        """All of its parameters."""
        return sum(self.params().values())

    @derived
    def n_norm_params(self) -> int:
        """Those of its norms."""
        return sum(count for tensor, count in self.params().items() if is_norm(tensor))

    def on_tape(self, tape: Tape, x: Activation, dropout: Dropout, position: Position) -> Activation:
        """The output for x, of a pass over all tokens of the sequences."""
        y = self.attended(tape, x, self._pass(tape, dropout, position))
        return tape.dropout(tape.linear(y, self.d_model, stream=True), dropout.residual)

    def keeps_bias(self, tape: Tape, dropout: Dropout, position: Position) -> bool:
        """Whether the pass keeps the mask that the position adds to the scores of all layers."""
        return position.biases and kept.keeps_bias(self.core, tape, self._pass(tape, dropout, position))

    def _pass(self, tape: Tape, dropout: Dropout, position: Position) -> kept.Pass:
        masked = self.locality.kept(tape.length) < tape.length
        turned, learned = position.rotary_dim(self.rotary_width), position.biases and bool(position.params())
        return kept.Pass(dropout.attention, turned, masked, position.biases, learned)

    def ran(self, tape: Tape, dropout: Dropout) -> str:
        """The backend whose tensors such a pass makes: `math` where flex attention is not one kernel."""
        return kept.ran(self.core, tape, dropout.attention)

    @property
    def core(self) -> kept.Core:
        """What softmax(q k^T) v is given."""
        raise self.unsaid("core")

    @property
    def decode_core(self) -> kept.Core:
        """The same of tokens decoded after others that are cached."""
        return self.core

    def attended(self, tape: Tape, x: Activation, step: kept.Pass) -> Activation:
        """What the output projection reads."""
        raise self.unsaid("attended")

    def share(self, tp: int) -> Self:
        """What one of `tp` devices computes, each with its heads; one KV head where there are fewer than devices."""
        raise self.unsaid("share")


def is_norm(tensor: str) -> bool:
    """Whether a tensor among `params` is of a norm."""
    return tensor.endswith("norm")


def divisors(number: int) -> list[int]:
    """All divisors in rising order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def even_share(values: dict[str, Any], name: str) -> int:
    """d_model / n_heads, the rule of the option `name`. Raises ConfigError where it is not whole."""
    heads, d_model = values["n_heads"], values["d_model"]
    if d_model % heads:
        problem = f"{heads} does not divide d_model = {d_model}; set {name}, or choose a divisor"
        raise ConfigError("n_heads", problem, value=heads, valid=divisors(d_model))
    share: int = d_model // heads
    return share
