"""CUDA graphs without a compiler: one decode step recorded, and started again as one launch.

A decode step of a small batch is some hundreds of kernels, each of which takes Python longer to start than the device
to run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from archlab.components.ffn.experts import waiting_for_nothing
from archlab.decoder.cache import KVCache
from archlab.errors import RequestError

WARMUPS = 3
"""Steps before one is recorded, in which libraries set up what no graph may (torch.cuda.CUDAGraph's own advice)."""


class GraphedStep:
    """`step` of ids int64 [B, 1] after the tokens that a static cache holds; called, it replays the recording.

    Made while the cache holds nothing: it takes steps of its own, and leaves the cache empty. What a call gives is one
    and the same tensor, with new numbers in it. Nothing checks that the cache has room. For use in `evaluating`.
    """

    def __init__(self, step: Callable[[Tensor], Tensor], cache: KVCache) -> None:
        """Raises RequestError where the cache is not static or not on CUDA."""
        if cache.device.type != "cuda":
            raise RequestError(f"CUDA graphs are for cuda, not for {cache.device.type}")
        if not cache.static:
            raise RequestError("a CUDA graph needs KVCache(.., static=True), whose position is a tensor")
        self.token = torch.zeros(cache.batch, 1, dtype=torch.int64, device=cache.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(cache.device), waiting_for_nothing():
            self.output = self._recorded(step, cache)

    def __call__(self, token: Tensor) -> Tensor:
        self.token.copy_(token)
        self.graph.replay()
        return self.output

    def _recorded(self, step: Callable[[Tensor], Tensor], cache: KVCache) -> Tensor:
        stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            for _ in range(WARMUPS):
                cache.reset()
                step(self.token)
        here.wait_stream(stream)
        cache.reset()
        with torch.cuda.graph(self.graph):
            output = step(self.token)
        cache.reset()
        return output
