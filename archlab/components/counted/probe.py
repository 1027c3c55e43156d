"""What a module of others costs, found by running it on sizes alone: FLOPs, what it caches, what autograd keeps.

FLOPs are those of torch's counter on the meta device. What is kept is logged with fake tensors, which take the kernels
of the CPU as real ones do; a log is replayed on a tape (`archlab.components.tape`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from archlab.components.tape import Activation, Buffer, Tape
from archlab.errors import ArchlabError, ConfigError, in_short
from archlab.options import Spec

DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
"""A dtype of so many bytes."""

RUNS = (8, 16, 24)
"""Tokens at which FLOPs are counted: two runs tell the rates, the third that they hold."""

Parts = Mapping[str, Callable[[Activation], Activation]]


def wrong(spec: Spec, problem: str) -> ConfigError:
    """The error of a choice whose module does not do what its axis asks for."""
    return ConfigError(f"model/{spec.axis}", f"{spec.choice}: {problem}")


@contextmanager
def blamed(spec: Spec, what: str) -> Iterator[None]:
    """Turn what a choice's module raises into one message. Raises ConfigError."""
    try:
        yield
    except ArchlabError:
        raise
    except Exception as error:
        raise wrong(spec, f"its {what} fails: {in_short(error)}") from error


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """The module without storage, as it is outside training."""
    with torch.device("meta"):
        return make().eval()


def check_shape(spec: Spec, given: Any, wanted: Sequence[int], what: str = "forward") -> None:
    """Raise ConfigError where a module puts out another shape than it has to."""
    if not isinstance(given, Tensor):
        raise wrong(spec, f"its {what} gives a {type(given).__name__}, not a tensor")
    if list(given.shape) != list(wanted):
        raise wrong(spec, f"its {what} gives {list(given.shape)}, not {list(wanted)}")


def sizes(module: nn.Module, skip: Sequence[str] = ()) -> dict[str, int]:
    """Parameters by tensor, each once; those of a norm together, under the norm's name. skip: children left out."""
    found: dict[str, int] = {}
    for path, parameter in module.named_parameters():
        owners = path.split(".")[:-1]
        norm = next((index for index, owner in enumerate(owners) if owner.endswith("norm")), None)
        name = path if norm is None else ".".join(owners[: norm + 1])
        if not owners or owners[0] not in skip:
            found[name] = found.get(name, 0) + parameter.numel()
    return found


def rows(module: nn.Module) -> dict[str, int]:
    """Input features of each matrix, by tensor."""
    return {name: parameter.shape[-1] for name, parameter in module.named_parameters() if parameter.dim() == 2}


# --- FLOPs ------------------------------------------------------------------------------------------------------------


class Rates(NamedTuple):
    """FLOPs of a token, and of a (query, key) pair."""

    token: int
    pair: int


def rates(spec: Spec, count: Callable[[int], Any], tokens: Callable[[int], int]) -> Rates:
    """The rates of what `count` runs, over so many keys. tokens: that it runs there. Raises ConfigError for none."""
    with torch.no_grad(), blamed(spec, "forward"):
        each = [Fraction(_flops(count, keys), tokens(keys)) for keys in RUNS]
    pair = (each[1] - each[0]) / (RUNS[1] - RUNS[0])
    token = each[0] - pair * RUNS[0]
    if token + pair * RUNS[2] != each[2] or token.denominator != 1 or pair.denominator != 1:
        counted = ", ".join(f"{float(value):,g} over {keys}" for keys, value in zip(RUNS, each, strict=True))
        raise wrong(
            spec, f"its FLOPs a token ({counted} keys) are no sum of tokens and pairs; its Spec has to state flops"
        )
    return Rates(int(token), int(pair))


def _flops(call: Callable[[int], Any], keys: int) -> int:
    with FlopCounterMode(display=False) as counter:
        call(keys)
    total: int = counter.get_total_flops()
    return total


# --- what is cached ---------------------------------------------------------------------------------------------------


class Turned:
    """A rotation that turns nothing and sees how wide it is."""

    width = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.width = x.shape[-1]
        return x


class Notebook:
    """A memory that has so many earlier tokens and notes what is kept beside them."""

    def __init__(self, spec: Spec, batch: int, tokens: int, earlier: int = 0) -> None:
        self.spec, self.batch, self.tokens, self.earlier = spec, batch, tokens, earlier
        self.stored: dict[str, tuple[int, ...]] = {}
        self.states: dict[str, tuple[int, ...]] = {}

    def store(self, **new: Tensor) -> list[Tensor]:
        for name, tensor in new.items():
            if tensor.dim() != 4 or (tensor.shape[0], tensor.shape[2]) != (self.batch, self.tokens):
                raise wrong(
                    self.spec, f"it keeps {name} {list(tensor.shape)}; [batch, heads, tokens, width] is asked for"
                )
            self.stored[name] = tuple(tensor.shape)
        return [torch.cat((t.new_empty(*t.shape[:2], self.earlier, t.shape[3]), t), 2) for t in new.values()]

    def recall(self, owner: str, name: str, start: Tensor) -> Tensor:
        self._note(name, start)
        return start

    def carry(self, owner: str, name: str, state: Tensor) -> None:
        self._note(name, state)

    def _note(self, name: str, state: Tensor) -> None:
        shape = tuple(state.shape)
        if len(shape) < 2 or shape[0] != self.batch or self.states.setdefault(name, shape) != shape:
            begun = f", where it began with {list(self.states[name])}" if name in self.states else ""
            raise wrong(self.spec, f"it carries {name} {list(shape)}{begun}; [batch, ..] of one shape is asked for")


# --- what autograd keeps ----------------------------------------------------------------------------------------------


class Log(NamedTuple):
    """A run on sizes: events in their order, each of a storage by its number, and the number of the output's.

    `new` (number, bytes); `keep` (number); `call` (part, number of what it reads, of what it gives). 0 is the input's.
    """

    events: tuple[tuple[Any, ...], ...]
    output: int


class Saved:
    """A tensor that autograd keeps, as long as it does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Ledger(TorchDispatchMode):
    """Notes storages as they are made and as autograd keeps them; those from before are none of its business."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self._numbers: dict[int, int] = {}
        self._held: list[torch.UntypedStorage] = []  # so that no number comes twice; a tensor would hold its graph
        self._kept: dict[int, weakref.ref[Saved]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        known = {
            tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)
        }
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in known:
                self.events.append(("new", self.number(tensor, anew=True), tensor.untyped_storage().nbytes()))
        return made

    def number(self, tensor: Tensor, anew: bool = False) -> int | None:
        """The number of a tensor's storage, None for one from before; anew: it gets one."""
        storage = tensor.untyped_storage()
        if anew and storage._cdata not in self._numbers:
            self._held.append(storage)
            self._numbers[storage._cdata] = len(self._numbers)
        return self._numbers.get(storage._cdata)

    def keep(self, tensor: Tensor) -> Saved:
        saved = Saved(tensor)
        if (number := self.number(tensor)) is not None:
            self._kept[len(self.events)] = weakref.ref(saved)
            self.events.append(("keep", number))
        return saved

    def lasting(self) -> tuple[tuple[Any, ...], ...]:
        """The events, without what was kept for results that nothing reads any more."""
        gone = {place for place, saved in self._kept.items() if saved() is None}
        return tuple(event for place, event in enumerate(self.events) if place not in gone)


def logged(
    spec: Spec,
    make: Callable[[Ledger], nn.Module],
    width: int,
    shape: Sequence[int],
    given: Callable[[], tuple[Any, ...]] = tuple,
) -> Log:
    """The log of a module's training pass over an input of this shape, in a dtype of so many bytes.

    given: what the module is called with beside the input, made before anything is noted.
    """
    ledger, dtype = Ledger(), DTYPES[width]
    with blamed(spec, "forward in training"), FakeTensorMode():
        module, beside = make(ledger).train(), given()
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        held = {name: _like(tensor, dtype) for name, tensor in tensors.items()}
        x = torch.empty(tuple(shape), dtype=dtype, requires_grad=True)
        ledger.number(x, anew=True)
        with ledger, torch.autograd.graph.saved_tensors_hooks(ledger.keep, lambda saved: saved.tensor):
            y = torch.func.functional_call(module, held, (x, *beside))
    output = ledger.number(y)
    return Log(ledger.lasting(), 0 if output is None else output)


class Stub(nn.Module):
    """Stands for a part of a layer: what it is called with, and what it would give, are noted."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__()
        self.name, self.ledger = name, ledger

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        y: Tensor = _Anew.apply(x)
        self.ledger.events.append(("call", self.name, self.ledger.number(x), self.ledger.number(y)))
        return y


class _Anew(torch.autograd.Function):
    """Another tensor like x, for which nothing is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        return given[0]


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    cast = dtype if tensor.is_floating_point() else tensor.dtype
    return torch.empty(tensor.shape, dtype=cast, requires_grad=tensor.requires_grad)


def replay(
    log: Log,
    tape: Tape,
    what: str,
    x: Activation,
    *,
    features: int | None = None,
    stream: bool = False,
    parts: Parts | None = None,
) -> Activation:
    """Put a log on a tape; the output, of so many features, or of as many as x.

    stream: whether what is made lies on the residual stream, as the output always does. parts: what `call` calls.
    """
    features = features or x.features
    buffers = {0: x.buffer}
    for event, *told in log.events:
        if event == "new":
            number, size = told
            buffers[number] = Buffer(size, stream or number == log.output)
            tape.made += size
        elif event == "keep":
            tape.keep(what, Activation(x.rows, features, x.width, buffers[told[0]]))
        else:
            name, read, given = told
            tape.made -= buffers[given].bytes
            buffers[given] = (parts or {})[name](Activation(x.rows, features, x.width, buffers[read])).buffer
    return Activation(x.rows, features, x.width, buffers[log.output])
