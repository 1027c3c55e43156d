"""The routed experts: their weights stacked, and four ways through them that give the same.

grouped    tokens ordered by expert, one product for all experts, for which a device need not be asked how many tokens
           each has: where CUDA has a kernel for it
sorted     tokens ordered by expert, one product an expert that was hit: reads each weight once, and never copies one
gathered   a copy of its experts' weights for each token, one batched product: no step depends on the data, so that it
           runs on the meta device, in CUDA graphs, and in one piece under torch.compile; for few tokens
looped     over all experts, each asked for its tokens: the plain way, which the others are tested against
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.ffn import spec as specs
from archlab.components.ffn.activation import middle_of

HOPPER = 9
"""Compute capability from which on one kernel multiplies for all experts; before, each product waits for its rows."""

_waits: ContextVar[bool] = ContextVar("_waits", default=True)


@contextmanager
def waiting_for_nothing() -> Iterator[None]:
    """Have all experts take a way that waits for nothing: what a CUDA graph records is to be warmed up, too."""
    held = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(held)


class Experts(nn.Module):
    """`gate_up` (or `up`) [n_experts, n_up d_ff, d_model], `down` [n_experts, d_model, d_ff]; biases without the last.

    names: of the parameters, in this order. path: one of those above; None takes what suits the call.
    """

    def __init__(self, spec: specs.MixtureOfExperts) -> None:
        super().__init__()
        expert, self.count = spec.expert, spec.n_experts
        self.middle = middle_of(expert)
        self.path: str | None = None
        up = "gate_up" if expert.gated else "up"
        shapes: dict[str, tuple[int, ...]] = {up: (expert.n_up * expert.d_ff, spec.d_model)}
        shapes["down"] = (spec.d_model, expert.d_ff)
        self._aligned = all(size % 8 == 0 for shape in shapes.values() for size in shape)
        shapes |= {f"{name}_bias": shape[:1] for name, shape in shapes.items()} if expert.bias else {}
        self.names = tuple(shapes)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(self.count, *shape)))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """x [tokens, d_model]; chosen int64 and weights, both [tokens, k] -> the weighted sum [tokens, d_model]."""
        paths = {way: getattr(self, f"_{way}") for way in ("grouped", "sorted", "gathered", "looped")}
        path = self.path or self._suitable(x, chosen)
        run = torch.compiler.disable(paths[path]) if path == "sorted" and torch.compiler.is_compiling() else paths[path]
        outputs: Tensor = run(x, chosen)
        return (outputs * weights[..., None]).sum(1).to(x.dtype)

    def _suitable(self, x: Tensor, chosen: Tensor) -> str:
        if x.is_cuda and self.groups(x.dtype) and torch.cuda.get_device_properties(x.device).major >= HOPPER:
            return "grouped"
        if torch.compiler.is_compiling():  # asked before what is asked below, which cannot be traced
            few = chosen.numel() <= self.count  # then no more is copied than all the weights there are
            return "gathered" if few or x.is_meta else "grouped" if self.groups(x.dtype) else "sorted"
        recorded = not _waits.get() or (x.is_cuda and torch.cuda.is_current_stream_capturing())
        return "gathered" if x.is_meta or recorded else "sorted"

    def groups(self, dtype: torch.dtype) -> bool:
        """Whether torch has one product for all experts in a dtype: in bf16, of rows of whole 16 bytes."""
        return dtype == torch.bfloat16 and self._aligned

    def _grouped(self, x: Tensor, chosen: Tensor) -> Tensor:
        """[tokens, k, d_model]: what each token's experts give it."""
        experts, order = chosen.flatten().sort()
        ends = torch.searchsorted(experts, torch.arange(self.count, device=x.device), right=True, out_int32=True)
        up, down, *biases = (getattr(self, name) for name in self.names)
        middle = F.grouped_mm(x[order // chosen.shape[1]], up.transpose(1, 2), offs=ends)
        middle = self.middle(middle + biases[0][experts] if biases else middle)
        ordered = F.grouped_mm(middle, down.transpose(1, 2), offs=ends)
        ordered = ordered + biases[1][experts] if biases else ordered
        return torch.empty_like(ordered).index_copy(0, order, ordered).unflatten(0, chosen.shape)

    def _sorted(self, x: Tensor, chosen: Tensor) -> Tensor:
        """As `_grouped`."""
        order = chosen.flatten().argsort()
        counts = chosen.flatten().bincount(minlength=self.count).tolist()
        parts = x[order // chosen.shape[1]].split(counts)
        stacks = self._stacks()
        ordered = torch.cat([self._expert(part, [w[i] for w in stacks]) for i, part in enumerate(parts) if len(part)])
        return torch.empty_like(ordered).index_copy(0, order, ordered).unflatten(0, chosen.shape)

    def _gathered(self, x: Tensor, chosen: Tensor) -> Tensor:
        """As `_grouped`."""
        up, down, *biases = (getattr(self, name)[chosen.flatten()] for name in self.names)
        middle = torch.bmm(up, x.repeat_interleave(chosen.shape[1], 0)[..., None]).squeeze(-1)
        middle = self.middle(middle + biases[0] if biases else middle)
        outputs = torch.bmm(down, middle[..., None]).squeeze(-1)
        return (outputs + biases[1] if biases else outputs).unflatten(0, chosen.shape)

    def _looped(self, x: Tensor, chosen: Tensor) -> Tensor:
        """As `_grouped`."""
        outputs = x.new_zeros(*chosen.shape, x.shape[-1])
        stacks = self._stacks()
        for index in range(self.count):
            token, slot = (chosen == index).nonzero(as_tuple=True)
            outputs[token, slot] = self._expert(x[token], [w[index] for w in stacks])
        return outputs

    def _expert(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """One expert's output; `weights` in the order of `names`."""
        up, down, *biases = weights
        up_bias, down_bias = biases or (None, None)
        return F.linear(self.middle(F.linear(x, up, up_bias)), down, down_bias)

    def _stacks(self) -> list[Sequence[Tensor]]:
        """Each parameter, to be indexed by expert. For a gradient it is cut up at once, not slice by slice: autograd
        would make each slice's gradient as large as the whole.
        """
        stacks = [getattr(self, name) for name in self.names]
        return [stack.unbind() for stack in stacks] if torch.is_grad_enabled() else stacks
