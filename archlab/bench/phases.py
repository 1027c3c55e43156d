"""The phases that are timed. Each is a context manager that prepares a decoder and yields what one run is.

prefill   [batch, prompt] tokens into an empty KV cache, logits of the last position only or, where asked, of all
decode    `new` steps of one token a sequence, each fed the likeliest token of the step before, after `prompt` cached
          tokens; the first token is prefill's and is not counted
train     forward, loss, backward and a fused AdamW step on [batch, prompt] tokens

Prefill and decode run in eval mode without gradients, training in training mode; the mode found is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from archlab.bench.clock import Call
from archlab.components.head import module as head
from archlab.components.product import has_onednn
from archlab.decoder.cache import KVCache
from archlab.decoder.dtype import torch_dtype
from archlab.decoder.generate import evaluating
from archlab.decoder.graph import GraphedStep
from archlab.decoder.module import Decoder
from archlab.workload import Workload

LEARNING_RATE = 1e-5
"""Small: the step costs the same, and the weights stay finite in any dtype."""


@dataclass(frozen=True)
class Run:
    """What is timed. tokens: those of one call that the rate counts, `counted` in words. steps: of one call.

    products: the ways to multiply that were found quickest, empty where none was looked for. cache_bytes: of the KV
    cache's tensors, None where there is no cache. step: one step of the call, where it has many.
    """

    call: Call
    tokens: int
    steps: int
    counted: str
    products: str = ""
    cache_bytes: int | None = None
    step: Call | None = None


Phase = Callable[..., AbstractContextManager[Run]]
"""Of a decoder, a workload and a seed."""


@contextmanager
def prefill(decoder: Decoder, workload: Workload, seed: int) -> Iterator[Run]:
    """One call fills the cache with the prompts."""
    batch, prompt = workload.batch, workload.prompt
    ids = _random_ids(decoder, batch, prompt, seed)
    with evaluating(decoder):
        products = _products(decoder, batch * prompt, batch)
        cache = _cache(decoder, workload)

        def call() -> Tensor:
            cache.reset()
            return decoder(ids, cache, last_only=workload.logits == "last")

        which = {"last": "the last position only", "all": "all positions"}[workload.logits]
        counted = f"{batch} x {prompt} prompt tokens, KV cache filled, logits of {which}"
        yield Run(call, batch * prompt, 1, counted, products, cache.nbytes)


@contextmanager
def decode(decoder: Decoder, workload: Workload, seed: int, graphs: bool = False) -> Iterator[Run]:
    """One call makes `new` tokens a sequence, each time from the same context. graphs: as a CUDA graph a step."""
    batch, prompt, new = workload.batch, workload.prompt, workload.new
    ids = _random_ids(decoder, batch, prompt, seed)
    with evaluating(decoder):
        products = _products(decoder, batch)
        cache = _cache(decoder, workload, static=graphs)

        step = _step(decoder, cache, graphs)
        first = _likeliest(decoder.forward(ids, cache, last_only=True))  # not timed, so that nothing is compiled for it

        def call(steps: int = new) -> Tensor:
            cache.reset()
            cache.advance(prompt)  # the prompt's keys and values are still there
            token = first
            for _ in range(steps):
                token = step(token)
            return token

        counted = f"{batch} x {new} new tokens, greedy, one a step, after {prompt} cached; the first is prefill's"
        counted += ", each step one CUDA graph, the KV cache static" if graphs else ""
        yield Run(call, batch * new, new, counted, products, cache.nbytes, lambda: call(1))


@contextmanager
def train(decoder: Decoder, workload: Workload, seed: int) -> Iterator[Run]:
    """One call is one step; it changes the weights a little."""
    batch, prompt = workload.batch, workload.prompt
    ids = _random_ids(decoder, batch, prompt + 1, seed)
    products = _named(decoder.tune(batch * prompt, train=True))
    optimizer = FusedAdamW(list(decoder.parameters()))

    def call() -> None:
        decoder.zero_grad(set_to_none=True)
        loss_of(decoder(ids[:, :-1]), ids[:, 1:], decoder).backward()
        optimizer.step()

    with _training(decoder, workload.recompute):
        again = "" if workload.recompute == "none" else f", {workload.recompute} recompute"
        counted = f"{batch} x {prompt} tokens: forward, loss, backward{again} and a fused AdamW step"
        yield Run(call, batch * prompt, 1, counted, products)


class FusedAdamW:
    """torch.optim.AdamW(fused=True) with torch's defaults; its class alone would import a compiler, 1 to 2 s.

    Loshchilov and Hutter 2019, algorithm 2.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.kept = [(parameter, *self._start(parameter)) for parameter in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [(kept[0].grad, *kept) for kept in self.kept if kept[0].grad is not None]
        gradients, parameters, means, squares, counts = (list(column) for column in zip(*moved, strict=True))
        adamw(
            *(parameters, gradients, means, squares, [], counts),
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=LEARNING_RATE,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
        )

    @staticmethod
    def _start(parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The two moments, and the count of steps."""
        count = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return torch.zeros_like(parameter), torch.zeros_like(parameter), count


PHASES: dict[str, Phase] = {"prefill": prefill, "decode": decode, "train": train}


@contextmanager
def _training(decoder: Decoder, recompute: str) -> Iterator[None]:
    """Training mode; the mode of every submodule is restored, and the gradients are dropped."""
    found, before = {part: part.training for part in decoder.modules()}, decoder.recompute
    decoder.train()
    decoder.recompute = recompute
    try:
        yield
    finally:
        for part, training in found.items():
            part.training = training
        decoder.recompute = before
        decoder.zero_grad(set_to_none=True)


def _random_ids(decoder: Decoder, batch: int, tokens: int, seed: int) -> Tensor:
    """Token ids [batch, tokens] on the decoder's device, the same for a seed on every device."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(decoder.spec.vocab_size, (batch, tokens), generator=generator)
    return ids.to(decoder.embedding.weight.device)


def _products(decoder: Decoder, *rows: int) -> str:
    """Have products of so many rows go the quickest way; what that is, in words."""
    weight = decoder.embedding.weight
    return _named(decoder.tune(*dict.fromkeys(rows), pack=packs(weight.dtype, weight.device.type)))


def _named(found: dict[str, str]) -> str:
    return ", ".join(sorted(set(found.values())))


def packs(dtype: str | torch.dtype, device: str) -> bool:
    """Whether weights may be packed while a phase without gradients is timed on a kind of device.

    Those of 32 bits stay as they are: oneDNN reads them nearly as fast, and packing leaves holes in the memory.
    """
    known = torch_dtype(dtype)
    return device == "cpu" and known.itemsize == 2 and has_onednn(known)


def _cache(decoder: Decoder, workload: Workload, static: bool = False) -> KVCache:
    """Room for the whole run, so that prefill and decode take the same memory."""
    device = decoder.embedding.weight.device
    return KVCache(decoder.spec, workload.batch, workload.length, workload.cache_dtype, device, static=static)


def _step(decoder: Decoder, cache: KVCache, graphs: bool) -> Callable[[Tensor], Tensor]:
    """From a token of each sequence, [B, 1], to the next. graphs: as a CUDA graph."""

    def eager(token: Tensor) -> Tensor:
        return _likeliest(decoder(token, cache, last_only=True))

    return GraphedStep(eager, cache) if graphs else eager


def _likeliest(logits: Tensor) -> Tensor:
    """Logits [B, 1, V] -> the next token of each sequence, [B, 1]."""
    return logits[:, -1].argmax(-1, keepdim=True)


def loss_of(outputs: Tensor, targets: Tensor, decoder: Decoder) -> Tensor:
    """The loss that a decoder's head is trained with."""
    return head.loss_of(decoder.head, decoder.spec.head, outputs, targets)
