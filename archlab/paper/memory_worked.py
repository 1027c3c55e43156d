"""How the parts of `archlab memory` were got: their formulas, and the same with this model's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from archlab.cost.activations import Training, entry_tape, exit_tape, layer_tape
from archlab.cost.kv import kv_cache
from archlab.cost.memory import LOSS_COPIES, Memory, Serving, output_rows, table_elements, working
from archlab.cost.optimizers import Rates
from archlab.cost.parallel import Split, Stage
from archlab.cost.params import parameters
from archlab.cost.state import held
from archlab.cost.storage import weight_bytes_by_part, weight_storage
from archlab.document import Explanation

if TYPE_CHECKING:
    from archlab.paper.memory import Asked

Worked = tuple[str, str]
"""A formula in symbols, and in numbers."""

ESTIMATED = ("working", "total")
"""What is no closed form of tensors that are there."""


def explained(asked: Asked, memory: Memory) -> dict[str, Explanation]:
    """How each part of a device of the fullest stage was got, and their total."""
    stage = asked.split.stages(asked.spec)[memory.fullest]
    found = _training(asked, stage) if asked.training else _inference(asked.served, stage)
    sizes = memory.parts | {"total": memory.total}
    found["total"] = "sum of the parts", " + ".join(f"{size:,} B" for size in memory.parts.values())
    return {part: _explanation(asked, part, *found[part], size) for part, size in sizes.items()}


def _explanation(asked: Asked, part: str, formula: str, numbers: str, size: int) -> Explanation:
    kind = "estimated" if part in ESTIMATED or (part == "activations" and asked.read_from_source) else "exact"
    divided = asked.split.devices > 1 and part in DIVIDED
    by = (f"one device of {asked.split.devices}, divided by {DIVIDED[part]}",) if divided else ()
    return Explanation(part, kind, formula, f"{numbers} = {size:,} B", (*ASSUMED.get(part, ()), *by))


DIVIDED = {
    "weights": "tp, pp; experts by ep; by dp with zero=3",
    "gradients": "tp, pp; experts by ep; by dp from zero=2",
    "optimizer": "tp, pp; experts by ep; by dp from zero=1",
    "cache": "tp, down to one KV head; pp",
    "tables": "none",
    "activations": "tp, norms and stream with sequence parallelism only; a stage of pp holds several micro-batches",
    "logits": "tp; on the last stage",
    "loss": "tp; on the last stage",
    "working": "tp",
}
"""Which degrees make a part smaller."""

ASSUMED: Mapping[str, tuple[str, ...]] = {
    "gradients": ("they stay between micro-batches",),
    "cache": ("a window of W keeps W tokens, the current one included",),
    "activations": ("distinct tensors that autograd keeps; the log-softmax counts under loss",),
    "loss": ("the log-softmax, its gradient and that of the logits, in float32 or wider, at once",),
    "working": ("a little on the high side; in training less the logits and the loss, which are gone by then",),
    "total": ("everything there at once; torch itself, its allocator and communication not counted",),
}


def _training(asked: Asked, stage: Stage) -> dict[str, Worked]:
    assert asked.training is not None
    assert asked.recipe is not None
    training, rates, tape = asked.training, asked.recipe.rates(asked.training.dtype), asked.training.tape()
    rows, width = output_rows(stage, training), stage.spec.head.width
    return {
        **_state(stage, asked.split, rates),
        "tables": _tables(stage, training.length, tape.wide),
        "activations": _activations(stage, training, asked.split.ways),
        "logits": (f"rows x outputs x {tape.width} B", f"{rows:,} x {width:,} x {tape.width} B"),
        "loss": (
            f"{LOSS_COPIES} x rows x outputs x {tape.wide} B",
            f"{LOSS_COPIES} x {rows:,} x {width:,} x {tape.wide} B",
        ),
        "working": _working(stage, training, rates, asked.split),
    }


def _state(stage: Stage, split: Split, rates: Rates) -> dict[str, Worked]:
    of_optimizer = {"matrices": rates.matrices, "tables": rates.tables, "vectors": rates.vectors}
    return {
        "weights": _parameters(stage, split, lambda role: rates.weights, split.zero >= 3),
        "gradients": _parameters(stage, split, lambda role: rates.gradients, split.zero >= 2),
        "optimizer": _parameters(stage, split, lambda role: of_optimizer[role], split.zero >= 1),
    }


def _parameters(stage: Stage, split: Split, rate: Callable[[str], float], sharded: bool) -> Worked:
    """So many bytes a parameter; of a rank's share where they are sharded."""
    groups = held(stage, split)
    counts = [(group.role, -(-group.count // group.ranks) if sharded else group.count) for group in groups]
    numbers = " + ".join(f"{count:,} x {rate(role):g} B" for role, count in counts)
    over = " / dp" if sharded and split.dp > 1 else ""
    if len({rate(role) for role, _ in counts}) == 1:
        return f"parameters{over} x {rate(counts[0][0]):g} B", numbers
    roles = dict.fromkeys(role for role, _ in counts)
    return " + ".join(f"{role}{over} x {rate(role):g} B" for role in roles), numbers


def _tables(stage: Stage, length: int, width: int) -> Worked:
    elements = table_elements(stage.spec, length)
    return f"elements of fixed position tables x {width} B", f"{elements:,} x {width} B"


def _activations(stage: Stage, training: Training, ways: int) -> Worked:
    spec = stage.spec
    layers = [
        f"{len(indices)} x {layer_tape(layer, training).bytes(ways=ways):,} B" for layer, indices in spec.layer_kinds
    ]
    before = [f"{entry_tape(spec, training).bytes(ways=ways):,} B"] if stage.first else []
    formula, numbers = "sum over layers of what each keeps", " + ".join((*layers, *before))
    if before:
        formula += " + before them"
    if stage.in_flight > 1:
        formula, numbers = f"micro-batches in flight x ({formula})", f"{stage.in_flight} x ({numbers})"
    if stage.last:
        tape = exit_tape(spec, training)
        return f"{formula} + after them", f"{numbers} + {tape.bytes(ways=ways) - tape.bytes('loss', ways):,} B"
    return formula, numbers


def _working(stage: Stage, training: Training, rates: Rates, split: Split) -> Worked:
    parts, rows, tape = working(stage, training, rates, split), output_rows(stage, training), training.tape()
    formula = " + ".join(name.replace("_", " ") for name in parts)
    numbers = " + ".join(f"{size:,} B" for size in parts.values())
    gone = rows * stage.spec.head.width * (tape.width + LOSS_COPIES * tape.wide)
    return (f"{formula} - logits - loss", f"{numbers} - {gone:,} B") if gone else (formula, numbers)


def _inference(serving: Serving, stage: Stage) -> dict[str, Worked]:
    spec, tape = stage.spec, serving.tape()
    cost = kv_cache(spec, serving.batch, serving.length, serving.cache)
    kinds = " + ".join(f"{len(k.layers)} x {k.tokens:,} x {k.bytes_per_token:,} B" for k in cost.by_layer)
    both = f"({tape.width} + {tape.wide}) B"
    return {
        "weights": _stored(stage, serving),
        "cache": ("batch x sum over layers of tokens x B a token", f"{serving.batch} x ({kinds})"),
        "tables": _tables(stage, serving.length, tape.wide),
        "logits": (f"batch x outputs x {both}", f"{serving.batch} x {spec.head.width:,} x {both}"),
        "working": ("what the largest layer makes while it runs", ""),
    }


def _stored(stage: Stage, serving: Serving) -> Worked:
    storage = weight_storage(serving.weights)
    if storage.plain:
        counts = parameters(stage.spec).by_part
        numbers = " + ".join(f"{count:,}" for part, count in counts.items() if count and stage.has(part))
        return f"parameters x {storage.bits // 8} B", f"({numbers}) x {storage.bits // 8} B"
    sizes = {part: size for part, size in weight_bytes_by_part(stage.spec, storage).items() if stage.has(part) and size}
    return " + ".join(sizes), " + ".join(f"{size:,} B" for size in sizes.values())
