"""The path of a token, step by step, as the built module takes it: shapes, parameters, FLOPs, and what training keeps.

Taken by hooks from the real module on the meta device, at any size. A step is a module that holds no others, what
attention and FFN do between their projections, a block as a whole, with its residual sums, and a third party's module,
with what it does beside the modules that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from archlab.components.attention.module import Attending
from archlab.components.block.module import Block
from archlab.components.ffn.experts import Experts
from archlab.components.ffn.module import FeedForward
from archlab.components.hosted import is_hosted
from archlab.components.position.module import NoPosition
from archlab.decoder.build import build
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import told

Shape = tuple[int, ...]


class Step:
    """One step of a pass. path: of the module, dotted; what: between a module's projections, `` for the module itself.

    parameters: of the module itself. flops: of the forward pass. kept: bytes for the backward pass, see `trace`; None
    of experts, whose weights are copied on the meta device and nowhere else.
    """

    def __init__(self, path: str, what: str, inputs: Shape, parameters: int = 0) -> None:
        self.path, self.what, self.inputs, self.parameters = path, what, inputs, parameters
        self.output: Shape = ()
        self.flops = 0
        self.kept: int | None = 0

    @property
    def layer(self) -> int | None:
        """The layer that it is a step of, None outside of them."""
        parts = self.path.split(".")
        return int(parts[1]) if parts[0] == "layers" else None


def trace(spec: DecoderSpec, batch: int, context: int, dtype: str = "fp32") -> list[Step]:
    """Every step of a training pass over [batch, context] ids, in the order in which they begin.

    FLOPs as torch's counter has them, with the explicit softmax, whose scores it sees. kept: what autograd is asked to
    keep for the backward pass, each storage once, at the step that asks first; parameters and tables apart. Raises
    RequestError where the positions do not reach, or the pass fails.
    """
    counter = FlopCounterMode(display=False)
    with told(f"a pass of {batch:,} x {context:,} tokens on the meta device fails"), counter:
        decoder = build(spec.on_backend("math"), device="meta", dtype=dtype)
        tracer = Tracer(decoder, counter)
        with torch.autograd.graph.saved_tensors_hooks(tracer.keep, lambda tensor: tensor):
            y = decoder(torch.zeros(batch, context, dtype=torch.int64, device="meta"))
    if spec.head.last_token_only:
        tracer.steps[-1].output = tuple(y.shape)  # the head's, as the model gives it: the one row is no dimension
    return tracer.steps


class Tracer:
    """Watches a decoder: its `steps` fill as it runs."""

    def __init__(self, decoder: Decoder, counter: FlopCounterMode) -> None:
        self.steps: list[Step] = []
        self._counter = counter
        self._open: list[Step] = []
        self._kept: dict[int, Tensor] = {}
        tables = [table for position in decoder.positions for table in getattr(position, "tables", ())]
        self._own = {tensor.untyped_storage()._cdata for tensor in (*decoder.parameters(), *decoder.buffers(), *tables)}
        self._position(decoder)
        for index, position in enumerate(decoder.positions):
            self._bias(f"positions.{index}", position)
        for path, module in decoder.named_modules():
            self._watch(path, module)

    def keep(self, tensor: Tensor) -> Tensor:
        """Count what autograd keeps; it is held on to, so that no other storage takes its place."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._own and storage._cdata not in self._kept:
            self._kept[storage._cdata] = tensor
            if self._open or self.steps:
                step = (self._open or self.steps)[-1]
                step.kept = None if step.kept is None else step.kept + storage.nbytes()
        return tensor

    def _watch(self, path: str, module: nn.Module) -> None:
        if isinstance(module, Block):
            module.register_forward_hook(lambda _, given, y: self._see(path, "with residuals", given[0], y))
        elif isinstance(module, Attending):
            module.attend = self._attention(path, module)  # type: ignore[method-assign]
        elif path and (_is_step(module) or is_hosted(module)):
            module.register_forward_pre_hook(lambda _, given: self._begin(path, "", given[0], _own_size(module)))
            if isinstance(module, Experts):
                module.register_forward_pre_hook(lambda _, given: self._lose_count())
            module.register_forward_hook(lambda _, given, y: self._end(y))
        if isinstance(module, FeedForward):
            module.middle = self._between(path, "between", module.middle)

    def _begin(self, path: str, what: str, x: Tensor, parameters: int = 0) -> None:
        step = Step(path, what, tuple(x.shape), parameters)
        step.flops = -self._counter.get_total_flops()
        self.steps.append(step)
        self._open.append(step)

    def _lose_count(self) -> None:
        self._open[-1].kept = None

    def _end(self, y: Any) -> None:
        step = self._open.pop()
        step.flops += self._counter.get_total_flops()
        if self._open:  # of others, whose own parts are steps too
            self._open[-1].flops -= step.flops
        step.output = tuple((y if isinstance(y, Tensor) else y[0]).shape)

    def _see(self, path: str, what: str, x: Tensor, y: Tensor, shape: Sequence[int] = (), parameters: int = 0) -> None:
        """A step that is only looked at."""
        step = Step(path, what, tuple(x.shape), parameters)
        step.output = tuple(shape or y.shape)
        self.steps.append(step)

    def _between(self, path: str, what: str, call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def watched(x: Tensor) -> Tensor:
            self._begin(path, what, x)
            y = call(x)
            self._end(y)
            return y

        return watched

    def _attention(self, path: str, module: Attending) -> Callable[..., Tensor]:
        """The heads as they come out of the projections, turned, and what becomes of them."""
        attend, parameters = module.attend, [_own_size(module)]

        def watched(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **more: Any) -> Tensor:
            for what, heads in (("queries", q), ("keys", k), ("values", v)):
                batch, count, tokens, width = heads.shape
                self._see(path, what, heads.new_empty(batch, tokens, count * width), heads)
            self._see(path, "scores", q, q, (*q.shape[:3], k.shape[2]))
            self._begin(path, "softmax(scores) values", q, parameters.pop() if parameters else 0)
            y = attend(q, k, v, *rest, **more)
            self._end(y)
            return y

        return watched

    def _position(self, decoder: Decoder) -> None:
        """What is added to the token embedding, where something is."""
        position = decoder.positions[0]
        embed, parameters = position.embed, _own_size(position)

        def watched(x: Tensor, span: Any) -> Tensor:
            y = embed(x, span)
            if y is not x:
                self._see("positions.0", "added", x, y, parameters=parameters)
            return y

        position.embed = watched  # type: ignore[method-assign]

    def _bias(self, path: str, position: NoPosition) -> None:
        """What is added to the scores, where something is; the first layer that asks is shown."""
        mask, parameters = position.mask, [_own_size(position)]

        def watched(span: Any, locality: Any, device: torch.device) -> Tensor | None:
            y = mask(span, locality, device)
            if position.biases and y is not None and parameters:
                self._see(path, "added to scores", y[0], y, parameters=parameters.pop())
            return y

        position.mask = watched  # type: ignore[method-assign]


def _is_step(module: nn.Module) -> bool:
    """A module that holds no others, and does something."""
    idle = isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and module.p == 0)
    return not idle and next(module.children(), None) is None


def _own_size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))
