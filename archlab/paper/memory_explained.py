"""How the parts of `archlab memory` were got: the closed forms of cost/memory.py, run over a spec of symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from archlab.cost.activations import Training, stage_kept
from archlab.cost.explain import explanation
from archlab.cost.memory import Memory, inference_parts, training_parts
from archlab.cost.symbols import Symbolic, symbolic, whole
from archlab.document import Explanation
from archlab.frozen import replace
from archlab.written import named, symbol

if TYPE_CHECKING:
    from archlab.paper.memory import Asked

DIVIDED = {
    "weights": "tp, pp; experts by ep; by dp with zero=3",
    "gradients": "tp, pp; experts by ep; by dp from zero=2",
    "optimizer": "tp, pp; experts by ep; by dp from zero=1",
    "cache": "tp, down to one KV head; pp",
    "tables": "nothing",
    "activations": "tp, norms and stream with sequence parallelism only; a stage of pp holds several micro-batches",
    "logits": "tp; on the last stage",
    "loss": "tp; on the last stage",
    "working": "tp",
}
"""Which degrees make a part smaller."""

ASSUMED: Mapping[str, tuple[str, ...]] = {
    "gradients": ("they stay between micro-batches",),
    "cache": ("a window of W keeps W tokens, the current one included",),
    "tables": ("cosines and sines for the model's context, or a longer run, in float32 or wider",),
    "activations": ("distinct tensors that autograd keeps; the log-softmax counts under loss",),
    "logits": ("in training of all positions; in inference of the last one, and a float32 copy",),
    "loss": ("the log-softmax, its gradient and that of the logits, in float32 or wider, at once",),
    "working": ("a little on the high side; in training less the logits and the loss, which are gone by then",),
    "total": ("all parts there at once; torch itself, its allocator and communication not counted",),
}


def explained(asked: Asked, memory: Memory) -> dict[str, Explanation]:
    """How each part of a device of the fullest stage was got, their total, and what is kept for each purpose."""
    stage = asked.split.stages(symbolic(asked.spec))[memory.fullest]
    model = stage.spec
    assert isinstance(model, Symbolic)
    if asked.training and asked.recipe:
        training = _symbols(asked.training)
        parts = training_parts(stage, training, asked.recipe.rates(training.dtype), asked.split)
        purposes = stage_kept(stage, training, asked.split.ways)
    else:
        length = symbol(asked.context, "context")
        serving = replace(asked.served, batch=symbol(asked.served.batch, "batch"), prompt=length, length=length)
        parts, purposes = inference_parts(stage, serving), {}
    forms = parts | {"total": sum(named(size, part) for part, size in parts.items())}
    found = {part: explanation(part, whole(model, size), *_about(asked, part)) for part, size in forms.items()}
    kept = {f"kept.{name}": whole(model, size) for name, size in purposes.items()}
    return found | {name: explanation(name, form, asked.kept_kind) for name, form in kept.items()}


def _symbols(training: Training) -> Training:
    return replace(training, batch=symbol(training.batch, "batch"), length=symbol(training.length, "context"))


def _about(asked: Asked, part: str) -> tuple[str, ...]:
    """Its kind, and what it assumes."""
    kind = "estimated" if part in ("working", "total") else asked.kept_kind if part == "activations" else "exact"
    many = asked.split.devices > 1 and part in DIVIDED
    divided = (f"one device of {asked.split.devices}, divided by {DIVIDED[part]}",) if many else ()
    return kind, *ASSUMED.get(part, ()), *divided
