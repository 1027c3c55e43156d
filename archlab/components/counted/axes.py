"""The specs of others, axis by axis: what is counted of each."""

from __future__ import annotations

import functools
from typing import Any, Self

import torch
from torch import Tensor, nn

from archlab.components.attention.base import Attention, CachedTensor, State
from archlab.components.attention.module import Step
from archlab.components.block.spec import Block, Part
from archlab.components.counted import probe
from archlab.components.counted.base import (
    BATCH,
    TOKENS,
    UNDROPPED,
    Counted,
    built,
    decode_rates,
    first,
    flops_of_each,
    log,
    module_of,
    prefill_rates,
)
from archlab.components.dropout.spec import Dropout
from archlab.components.ffn.spec import FFN
from archlab.components.head.module import loss_of
from archlab.components.head.spec import Head
from archlab.components.hosted import kind_of, own_tensors
from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.norm.spec import Norm
from archlab.components.placed import Placed
from archlab.components.position.module import NoPosition, Rotation, make_position
from archlab.components.position.spec import Position
from archlab.components.span import Span
from archlab.components.tape import Activation, Buffer, Tape
from archlab.frozen import derived, replace
from archlab.options import Spec, inherited


class CountedNorm(Norm):
    """A norm of others."""

    def params(self, width: int) -> dict[str, int]:
        return dict(_norm_sizes(self, width))

    def on_tape(self, tape: Tape, x: Activation, heads: int | None = None) -> Activation:
        shape = (x.rows, x.features) if heads is None else (x.rows // heads, heads, x.features)
        return probe.replay(_norm_log(self, heads, x.width, shape), tape, "norms", x, stream=x.buffer.stream)


@functools.lru_cache
def _norm_sizes(spec: Norm, width: int) -> dict[str, int]:
    with torch.no_grad(), torch.random.fork_rng(devices=[]), probe.blamed(spec, "forward"):
        module = module_of(spec, width)  # it is small, and a first pass on the meta device imports torch's compiler
        x = torch.zeros(BATCH, TOKENS, width)
        probe.check_shape(spec, module(x), x.shape)
    return probe.sizes(module)


@functools.lru_cache
def _norm_log(spec: Norm, heads: int | None, width: int, shape: tuple[int, ...]) -> probe.Log:
    own = {} if heads is None else {"heads": heads}
    return probe.logged(spec, lambda _: module_of(spec, shape[-1], **own), width, shape)


class CountedAttention(Counted, Attention):
    """An attention of others. It sees as far as its options `window` or `chunk` say, if it has one."""

    def made_with(self) -> tuple[Any, ...]:
        return (UNDROPPED,)

    def called_with(self, step: Step) -> tuple[Any, ...]:
        return (step,)

    @property
    def q_width(self) -> int:
        """As many features as its scores and values cost, 4 FLOPs a pair and feature."""
        return prefill_rates(self).pair // 4

    @property
    def kv_width(self) -> int:
        return sum(tensor.elements_per_token for tensor in self.cached_once) // 2

    @property
    def rotary_width(self) -> int:
        return first(self).turned

    @derived
    def locality(self) -> Locality:
        window, chunk = (getattr(self, name, None) for name in ("window", "chunk"))
        return EVERYWHERE if window is None and chunk is None else Locality(window, chunk)

    @property
    def backend_used(self) -> str:
        return str(getattr(self, "backend", "sdpa"))

    def ran(self, tape: Tape, dropout: Dropout) -> str:
        return "math" if self.backend_used == "flex" and not tape.cuda else self.backend_used

    def flops(self, tokens: int, pairs: int) -> int:
        rates = prefill_rates(self)
        return tokens * rates.token + pairs * rates.pair

    def decode_flops(self, tokens: int, pairs: int) -> int:
        rates = decode_rates(self)
        return tokens * rates.token + pairs * rates.pair

    def cached(self) -> tuple[CachedTensor, ...]:
        return first(self).cached

    def states(self) -> tuple[State, ...]:
        return first(self).states

    def remarks(self) -> tuple[str, ...]:
        kept = self.cached_once or self.states()
        return () if kept else (f"{self.choice} keeps nothing of earlier tokens between decode steps",)

    def on_tape(self, tape: Tape, x: Activation, dropout: Dropout, position: Position) -> Activation:
        shape = (tape.batch, tape.length, self.d_model)
        step = _Told(self, position, tape.length, tape.recompute == "selective")
        return probe.replay(log(self, (dropout,), x.width, shape, step), tape, "attention", x)


class _Told:
    """What an attention is told of a pass over all tokens: equal for equal passes, so that logs are kept by it."""

    def __init__(self, *about: Any) -> None:
        self.about = about

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Told) and other.about == self.about

    def __hash__(self) -> int:
        return hash(self.about)

    def __call__(self) -> Step:
        spec, position, length, recompute = self.about
        placed, span = make_position(position, spec.rotary_width, length), Span(0, length)
        mask = placed.mask(span, spec.locality, torch.device("cpu"))
        return Step(placed.rotation(span), mask, recompute=recompute)


class CountedFFN(Counted, FFN):
    """An FFN of others: one that every token passes as a whole."""

    def made_with(self) -> tuple[Any, ...]:
        return (UNDROPPED,)

    @property
    def widths(self) -> dict[str, int]:
        return {}

    def detail(self) -> dict[str, int]:
        return {"dense": self.n_params}

    def flops(self, tokens: int) -> int:
        return tokens * flops_of_each(self)

    def on_tape(self, tape: Tape, x: Activation, dropout: float) -> Activation:
        made_with = (replace(UNDROPPED, ffn=dropout),)
        return probe.replay(log(self, made_with, x.width, (tape.batch, tape.length, self.d_model)), tape, "ffn", x)


class CountedPlaced(Counted, Placed):
    """What others have at a place."""

    def called_with(self, step: Step) -> tuple[Any, ...]:
        return (step.of(self.axis),)

    def flops(self, tokens: int) -> int:
        return tokens * flops_of_each(self)

    def states(self) -> tuple[State, ...]:
        if first(self).cached:
            raise probe.wrong(self, "it keeps tensors of each token, which attention alone may; carry a state")
        return first(self).states

    def on_tape(self, tape: Tape, x: Activation) -> Activation:
        return probe.replay(log(self, (), x.width, (tape.batch, tape.length, self.d_model)), tape, "other", x)


class CountedHead(Counted, Head):
    """A head of others: logits over the vocabulary, or as many outputs as its module gives."""

    vocab_size: int = inherited()

    def called_with(self, step: Step) -> tuple[Any, ...]:
        return (torch.empty(self.vocab_size, self.d_model, requires_grad=True),)

    def output_shape(self, given: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...]:
        return (*given[:2], found[-1] if found else self.vocab_size)

    @property
    def width(self) -> int:
        return first(self).output[-1]

    @property
    def tied(self) -> bool:
        return _reads_embedding(self)

    def flops(self, tokens: int) -> int:
        return tokens * flops_of_each(self)

    def remarks(self) -> tuple[str, ...]:
        own = hasattr(kind_of(self), "loss")
        return (f"{self.choice} has a loss of its own, whose FLOPs no figure counts",) if own else ()

    def on_tape(self, tape: Tape, x: Activation) -> None:
        probe.replay(_loss_log(self, x.width, (tape.batch, x.rows // tape.batch)), tape, "loss", x, features=1)


@functools.lru_cache
def _reads_embedding(spec: CountedHead) -> bool:
    """Whether a head's outputs hang on the token embedding that it is handed."""
    with torch.device("meta"), torch.enable_grad(), probe.blamed(spec, "forward"):
        (embedding,) = spec.called_with(Step())
        y = built(spec)(torch.empty(BATCH, TOKENS, spec.d_model), embedding)
        return y.requires_grad and torch.autograd.grad(y.sum(), embedding, allow_unused=True)[0] is not None


class _WithLoss(nn.Module):
    """A head and its loss."""

    def __init__(self, spec: Head) -> None:
        super().__init__()
        self.spec, self.head = spec, module_of(spec)

    def forward(self, x: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        return loss_of(self.head, self.spec, self.head(x, embedding), targets)


@functools.lru_cache
def _loss_log(spec: CountedHead, width: int, rows: tuple[int, int]) -> probe.Log:
    def given() -> tuple[Tensor, Tensor]:
        (embedding,) = spec.called_with(Step())
        targets = torch.zeros(rows[0], rows[1] + 1, dtype=torch.int64)[:, 1:]  # as the loss has them: ids, one later
        return embedding.to(probe.DTYPES[width]), targets

    return probe.logged(spec, lambda _: _WithLoss(spec), width, (*rows, spec.d_model), given)


# --- around attention and FFN -----------------------------------------------------------------------------------------


class CountedPosition(Position):
    """Positions of others: what they do is what their module does otherwise than `NoPosition`."""

    d_model: int = inherited()
    context: int = inherited()
    n_heads: int = inherited()

    def _does(self, hook: str) -> bool:
        return getattr(kind_of(self), hook) is not getattr(NoPosition, hook)

    @property
    def embeds(self) -> bool:
        return self._does("embed")

    @property
    def biases(self) -> bool:
        return self._does("bias")

    @property
    def max_length(self) -> int | None:
        longest = getattr(_position(self, self.d_model // self.n_heads, self.context), "max_length", None)
        return None if longest is None else int(longest)

    def rotary_dim(self, head_dim: int) -> int:
        if not head_dim or not self._does("rotation"):
            return 0
        with probe.blamed(self, "rotation"):
            turned = _position(self, head_dim, self.context).rotation(Span(0, 1))
        return 2 * turned.cos.shape[-1] if isinstance(turned, Rotation) else head_dim

    def params(self) -> dict[str, int]:
        return probe.sizes(_position(self, self.d_model // self.n_heads, self.context))

    def table_elements(self, rotary_dim: int, rows: int) -> int:
        module = _position(self, rotary_dim or self.d_model // self.n_heads, rows)
        return sum(table.numel() for table in (*module.buffers(), *getattr(module, "tables", ())))

    def mask_on_tape(self, tape: Tape) -> Activation:
        if not self.biases:
            return super().mask_on_tape(tape)
        nothing = Activation(self.n_heads * tape.length, tape.length, tape.width, Buffer(0, False))
        return probe.replay(_mask_log(self, tape.width, tape.length), tape, "masks", nothing)

    def share(self, tp: int) -> Self:
        if tp > 1 and self.biases:
            raise self.unsaid("share")
        return self


@functools.lru_cache
def _position(spec: CountedPosition, head_dim: int, context: int) -> Any:
    return probe.on_meta(lambda: module_of(spec, head_dim, context))


class _Mask(nn.Module):
    """What a position adds to the scores of a run, as a module's output."""

    def __init__(self, position: Any, length: int) -> None:
        super().__init__()
        self.position, self.length = position, length

    def forward(self, _: Tensor) -> Tensor:
        mask: Tensor = self.position.mask(Span(0, self.length), EVERYWHERE, torch.device("cpu"))
        return mask


@functools.lru_cache
def _mask_log(spec: CountedPosition, width: int, length: int) -> probe.Log:
    def made(_: probe.Ledger) -> nn.Module:
        return _Mask(module_of(spec, spec.d_model // spec.n_heads, length), length)

    return probe.logged(spec, made, width, (1,))


NO_NORM = Norm(axis="norm", choice="none")


class CountedBlock(Block):
    """A residual layout of others. The norms that a layer owns are its module's `norms`."""

    @property
    def norm_names(self) -> tuple[str, ...]:
        return tuple(getattr(kind_of(self), "norms", super().norm_names))

    def params(self) -> dict[str, int]:
        module = probe.on_meta(lambda: module_of(self, NO_NORM, self.d_model, nn.Identity(), nn.Identity()))
        return {name: tensor.numel() for name, tensor in own_tensors(module).items() if tensor.requires_grad}

    def on_tape(self, tape: Tape, x: Activation, norm: Part, attention: Part, ffn: Part) -> Activation:
        log = _block_log(self, x.width, (tape.batch, tape.length, self.d_model))
        parts = {"norm": norm, "attention": attention, "ffn": ffn}
        return probe.replay(log, tape, "other", x, stream=True, parts=parts)


@functools.lru_cache
def _block_log(spec: CountedBlock, width: int, shape: tuple[int, ...]) -> probe.Log:
    def made(ledger: probe.Ledger) -> nn.Module:
        attention, ffn = (probe.Stub(name, ledger) for name in ("attention", "ffn"))
        module = module_of(spec, NO_NORM, spec.d_model, attention, ffn)
        for name in spec.norm_names:
            module.add_module(name, probe.Stub("norm", ledger))
        return module

    return probe.logged(spec, made, width, shape, lambda: (Step(),))


COUNTED: dict[str, type[Spec]] = {
    "norm": CountedNorm,
    "position": CountedPosition,
    "attention": CountedAttention,
    "ffn": CountedFFN,
    "head": CountedHead,
    "block": CountedBlock,
}
"""By axis; at a place it is CountedPlaced."""
