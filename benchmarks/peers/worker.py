"""One candidate in a process of its own: `worker.py CANDIDATE SHAPE DTYPE`. Reads a phase, answers a line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from candidates import CANDIDATES, Candidate
from shapes import SHAPES, Shape
from torch import Tensor

PROMPT, CONTEXT, NEW = 512, 128, 64
TRAIN = (4, 256)
INFERENCE, TRAINING = ("prefill", "prefill_last", "decode_b1", "decode_b8"), ("train",)
PHASES = INFERENCE + TRAINING


def ids(shape: Shape, batch: int, length: int) -> Tensor:
    return torch.randint(shape.vocab_size, (batch, length), generator=torch.Generator().manual_seed(0))


def prefill(candidate: Candidate, shape: Shape, last_only: bool) -> tuple[int, Callable[[], Any]]:
    """One prompt into an empty cache, logits of all positions or of the last."""
    prompt = ids(shape, 1, PROMPT)
    candidate.ready(PROMPT, 1)

    def call() -> None:
        candidate.fresh(1, PROMPT)
        candidate.step(prompt, last_only)

    return PROMPT, call


def decode(candidate: Candidate, shape: Shape, batch: int) -> tuple[int, Callable[[], Any]]:
    """The likeliest token, one by one, after a prompt that is cached."""
    candidate.ready(batch)
    candidate.fresh(batch, CONTEXT + NEW)
    first = candidate.step(ids(shape, batch, CONTEXT), True)[:, -1:].argmax(-1)

    def call() -> None:
        candidate.rewind(CONTEXT)
        token = first
        for _ in range(NEW):
            token = candidate.step(token, True)[:, -1:].argmax(-1)

    return batch * NEW, call


def train(candidate: Candidate, shape: Shape) -> tuple[int, Callable[[], Any]]:
    """Forward, cross entropy, backward; no optimizer."""
    tokens = ids(shape, *TRAIN)
    candidate.ready(TRAIN[0] * TRAIN[1], train=True)

    def call() -> None:
        logits = candidate.plain(tokens)
        F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        candidate.module.zero_grad(set_to_none=True)

    return TRAIN[0] * TRAIN[1], call


def prepare(candidate: Candidate, shape: Shape, phase: str) -> tuple[int, Callable[[], Any]]:
    if phase == "train":
        return train(candidate, shape)
    if phase.startswith("decode"):
        return decode(candidate, shape, int(phase.removeprefix("decode_b")))
    return prefill(candidate, shape, phase == "prefill_last")


def measure(candidate: Candidate, shape: Shape, phase: str, warm: set[str]) -> dict[str, Any]:
    """Tokens a second of one call, after one that warms up where this phase is new here."""
    candidate.module.train(phase == "train")
    with torch.set_grad_enabled(phase == "train"):
        tokens, call = prepare(candidate, shape, phase)
        if phase not in warm:
            call()
            warm.add(phase)
        start, used = time.perf_counter(), time.process_time()
        call()
        seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tok_s": tokens / seconds, "seconds": seconds, "cpu_seconds": used, "peak_rss_mib": peak}


def main() -> None:
    name, shape_name, dtype = sys.argv[1:]
    out, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    torch.manual_seed(0)
    shape, warm = SHAPES[shape_name], set()
    candidate = CANDIDATES[name](shape, getattr(torch, dtype))
    params = sum(p.numel() for p in candidate.module.parameters())
    print(json.dumps({"parameters": params}), file=out, flush=True)
    for line in sys.stdin:
        try:
            answer = measure(candidate, shape, line.strip(), warm)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
