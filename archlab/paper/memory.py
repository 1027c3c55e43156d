"""archlab memory: what a model takes on each device, part by part, in inference or in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from archlab.components.attention.backend import BACKENDS
from archlab.components.ffn.spec import MixtureOfExperts
from archlab.components.tape import KEPT, RECOMPUTE
from archlab.cost.activations import Training, korthikanti, stage_kept
from archlab.cost.memory import ONE_DEVICE, Inference, Memory, inference_memory, training_memory
from archlab.cost.optimizers import RECIPES, Recipe, recipe_of
from archlab.cost.parallel import Split, Stage
from archlab.cost.params import parameters
from archlab.cost.state import state
from archlab.cost.storage import kv_storage, weight_storage
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Explanation, Row, Table
from archlab.errors import ConfigError
from archlab.frozen import Frozen, replace
from archlab.hardware import Hardware
from archlab.paper.memory_explained import DIVIDED, explained
from archlab.request import Request
from archlab.units import dtype_name, show_bytes, show_count

POINTS = 12
"""Contexts at which a curve is drawn."""


HOW = {
    "cache": "keys and values of every token that is seen",
    "activations": "kept for the backward pass, see below",
    "working": "what the largest layer makes while it runs",
    "total": "sum of the parts",
}
"""In short, where the formula is long; `--explain` has it."""


class Asked(Frozen):
    """A model and what it is asked to do: `serving`, or `training` by a recipe."""

    spec: DecoderSpec
    split: Split
    serving: Inference | None
    training: Training | None
    recipe: Recipe | None

    @property
    def context(self) -> int:
        return self.training.length if self.training else self.served.prompt

    @property
    def served(self) -> Inference:
        assert self.serving is not None
        return self.serving

    @property
    def kept_kind(self) -> str:
        """The kind of what is kept: no test counts what CUDA's kernels keep."""
        return "estimated" if self.training and self.training.device == "cuda" else "exact"

    def memory(self, context: int | None = None) -> Memory:
        """What it takes, perhaps at another context."""
        length = context or self.context
        if self.training and self.recipe:
            return training_memory(self.spec, replace(self.training, length=length), self.recipe, self.split)
        return inference_memory(self.spec, replace(self.served, prompt=length, length=length), self.split)


def document(
    request: Request,
    *,
    train: bool = False,
    context: int | None = None,
    dtype: str | None = None,
    weights_dtype: str | None = None,
    kv_dtype: str | None = None,
    optimizer: str | None = None,
    attention: str | None = None,
    device: str | None = None,
    split: Split = ONE_DEVICE,
) -> Document:
    """What inference takes, or with `train` a training step, at `context` tokens (default: `spec.reach`).

    dtype: of weights and arithmetic (default: the workload's); in inference `fp8`, `int8` or `int4` is that of the
    weights, as is weights_dtype. kv_dtype: of the cache. optimizer: a recipe by name. attention: one of
    `BACKENDS` in every layer. device: `cpu` or `cuda`, whose kernels are meant. Raises ConfigError; RequestError beyond
    the positions' end.
    """
    spec = with_backend(request.spec, attention)
    context = spec.reach if context is None else context
    spec.check_length(context)
    kernels = device or request.run.device.partition(":")[0].replace("auto", "cpu")
    if train:
        _refuse({"weights_dtype": weights_dtype, "kv_dtype": kv_dtype}, "is for inference; leave out --train")
        asked = _trained(request, spec, context, dtype, kernels, optimizer, split)
    else:
        of_training = {"zero": split.zero or None, "sequence_parallel": split.sequence or None, "optimizer": optimizer}
        recompute = {"recompute": request.workload.recompute} if request.workload.recompute != "none" else {}
        _refuse(of_training | recompute, "is for training; add --train")
        if weights_dtype is not None:
            weight_storage(weights_dtype, "weights_dtype")
        stored = weights_dtype or dtype or request.workload.weight_dtype
        asked = _served(request, spec, context, stored, kv_dtype, kernels, split)
    return _document(request, asked)


def _refuse(settings: Mapping[str, Any], problem: str) -> None:
    """Raise ConfigError for the first of these that is set."""
    for name, value in settings.items():
        if value is not None:
            raise ConfigError(name, problem, value=value)


def _trained(
    request: Request,
    spec: DecoderSpec,
    context: int,
    dtype: str | None,
    kernels: str,
    optimizer: str | None,
    split: Split,
) -> Asked:
    workload, name = request.workload, dtype_name(dtype or request.workload.weight_dtype)
    training = Training(workload.batch, context, name, kernels, workload.recompute)
    return Asked(spec, split, None, training, recipe_of(optimizer, name))


def _served(
    request: Request,
    spec: DecoderSpec,
    context: int,
    weights_dtype: str,
    kv_dtype: str | None,
    kernels: str,
    split: Split,
) -> Asked:
    workload, weights = request.workload, weight_storage(weights_dtype)
    cache = kv_storage(kv_dtype or workload.kv_dtype or (weights.name if weights.plain else "bf16"), "kv_dtype")
    return Asked(
        spec, split, Inference(workload.batch, context, context, weights.name, cache.name, kernels), None, None
    )


def _document(request: Request, asked: Asked) -> Document:
    memory = asked.memory()
    worked = explained(asked, memory)
    return Document(
        command="memory",
        model=asked.spec.name,
        verdict=_verdict(asked, memory),
        tables=[_parts(asked, memory, worked), *(_of_training(asked, memory) if asked.training else ())],
        assumptions=_assumptions(asked),
        charts=[_chart(asked)],
        notes=[*request.notes, *_on_device(request.hardware, memory), *_notes(asked)],
        explanations=list(worked.values()),
    )


def with_backend(spec: DecoderSpec, backend: str | None) -> DecoderSpec:
    """The spec whose attention asks for a backend in every layer. None: as the spec says."""
    if backend is None:
        return spec
    if backend not in BACKENDS:
        raise ConfigError("attention", f"{backend!r} is not one of its values", value=backend, valid=BACKENDS)
    return spec.on_backend(backend)


def _verdict(asked: Asked, memory: Memory) -> str:
    where = f"on each of {asked.split.devices} devices" if asked.split.devices > 1 else "on one device"
    if asked.split.pp > 1:
        where += f", at most: pipeline stage {memory.fullest + 1} of {asked.split.pp}"
    what = f"training ({asked.recipe.name})" if asked.recipe else "inference"
    return f"{show_bytes(memory.total)} for {what} {where}"


def _parts(asked: Asked, memory: Memory, worked: Mapping[str, Explanation]) -> Table:
    many = asked.split.devices > 1
    columns = (
        Column("part"),
        Column("per_device", "B", "estimated", "added up as if all were there at once"),
        *((Column("all_devices", "B", "estimated", "of every stage"),) if many else ()),
        Column("share", "%", "estimated", "of the device"),
        Column("kind"),
        *((Column("divided_by"),) if many else ()),
        Column("how"),
    )
    rows = [_part_row(asked, memory, worked[part]) for part in (*memory.parts, "total")]
    return Table("memory", "Training step" if asked.training else "Inference", columns, rows, _work(asked))


def _part_row(asked: Asked, memory: Memory, made: Explanation) -> Row:
    sizes = memory.parts | {"total": memory.total}
    row: dict[str, Any] = {"part": made.figure, "per_device": sizes[made.figure], "kind": made.kind}
    row |= {"share": 100 * sizes[made.figure] / memory.total, "how": HOW.get(made.figure, made.formula)}
    if asked.split.devices > 1:
        parts = memory.names if made.figure == "total" else [made.figure]
        row |= {"all_devices": sum(map(memory.everywhere, parts)), "divided_by": DIVIDED.get(made.figure)}
    return row


def _work(asked: Asked) -> str:
    if asked.training:
        return f"micro-batch {asked.training.batch} x {asked.training.length:,} tokens, {asked.training.dtype}"
    served = asked.served
    return f"batch {served.batch} x {served.length:,} tokens, weights {served.weights}, cache {served.cache}"


def _of_training(asked: Asked, memory: Memory) -> Iterator[Table]:
    """What is kept, what recompute would change, and what other recipes would take."""
    assert asked.training is not None
    stage = asked.split.stages(asked.spec)[memory.fullest]
    yield _kept_table(asked, stage, asked.training)
    yield _recompute_table(asked, asked.training, memory.fullest)
    yield _recipe_table(stage, asked.training, asked.split)


def _kept_table(asked: Asked, stage: Stage, training: Training) -> Table:
    kept = stage_kept(stage, training, asked.split.ways)
    total, tokens = sum(kept.values()), training.batch * training.length
    columns = (
        Column("kept_for"),
        Column("bytes", "B", asked.kept_kind, "distinct tensors that autograd keeps, parameters and tables apart"),
        Column("per_token", "B", asked.kept_kind, "over the tokens of a micro-batch"),
        Column("share", "%", asked.kept_kind, "of what is kept"),
        Column("what"),
    )
    rows: list[Row] = []
    for name, size in (kept | {"total": total}).items():
        of_it = {"per_token": size / tokens, "share": 100 * size / total}
        rows.append({"kept_for": name, "bytes": size, **of_it, "what": KEPT.get(name)})
    source = "as torch's saved-tensor hooks count" if training.device == "cpu" else "read from torch's source"
    return Table("kept", "Kept for the backward pass", columns, rows, f"per device, {source}")


def _recompute_table(asked: Asked, training: Training, index: int) -> Table:
    """What is kept under each choice, with either way to attend; the published formula beside them."""
    stages = {backend: asked.split.stages(with_backend(asked.spec, backend))[index] for backend in BACKENDS}
    columns = (
        Column("recompute"),
        *(Column(backend, "B", asked.kept_kind, f"with {backend} attention, the loss apart") for backend in BACKENDS),
        Column("published", "B", "exact", "34 s b h + 5 a s^2 b a layer of GPT in 16 bits: Korthikanti et al. 2022"),
    )
    rows = []
    for what in RECOMPUTE:
        choice = replace(training, recompute=what)
        found = {backend: _activations(stage, choice, asked.split) for backend, stage in stages.items()}
        rows.append({"recompute": what, **found, "published": _published(stages["sdpa"], choice, asked.split)})
    return Table("recompute", "Recompute", columns, rows, "activations per device, the loss apart")


def _activations(stage: Stage, training: Training, split: Split) -> int:
    kept = stage_kept(stage, training, split.ways)
    return sum(size for purpose, size in kept.items() if purpose != "loss")


def _published(stage: Stage, training: Training, split: Split) -> int:
    """Of a GPT with as many layers, heads and features."""
    s, b, how, total = training.length, training.batch, (split.tp, split.sequence, training.recompute), 0.0
    for layer, count in stage.spec.layer_counts:
        total += count * korthikanti(s, b, layer.attention.d_model, layer.attention.n_heads * split.tp, *how)
    return round(stage.in_flight * total)


def _recipe_table(stage: Stage, training: Training, split: Split) -> Table:
    per = "bytes a parameter"
    columns = (
        Column("recipe"),
        Column("weights", "B/param", "exact", per),
        Column("gradients", "B/param", "exact", per),
        Column("optimizer", "B/param", "exact", f"{per} of a matrix: moments and float32 copies"),
        Column("total", "B/param", "exact", "of a matrix, all together"),
        Column("per_device", "B", "exact", "weights, gradients and optimizer state of this model"),
        Column("about"),
        Column("source"),
    )
    return Table("recipes", "Recipes", columns, [_recipe_row(r, stage, training, split) for r in RECIPES.values()])


def _recipe_row(recipe: Recipe, stage: Stage, training: Training, split: Split) -> Row:
    dtype = training.dtype if training.dtype in recipe.dtypes else recipe.dtypes[0]
    rates = recipe.rates(dtype)
    return {
        "recipe": recipe.name,
        "weights": rates.weights,
        "gradients": rates.gradients,
        "optimizer": rates.optimizer,
        "total": rates.total,
        "per_device": sum(state(stage, split, rates).values()),
        "about": recipe.about if dtype == training.dtype else f"{recipe.about} ({dtype})",
        "source": recipe.source,
    }


def _assumptions(asked: Asked) -> Mapping[str, Any]:
    split, layers = asked.split, [layer for layer, _ in asked.spec.layer_kinds]
    tape = asked.training.tape() if asked.training else None
    backends = {layer.attention.ran(tape, layer.dropout) if tape else layer.attention.backend_used for layer in layers}
    degrees = {name: getattr(split, name) for name in ("dp", "tp", "pp", "ep", "zero") if getattr(split, name) > 1}
    degrees |= {"zero": split.zero} if split.zero else {}
    common = {"attention": " and ".join(sorted(backends)), **degrees}
    if asked.training and asked.recipe:
        recompute = {"recompute": asked.training.recompute, "kernels": asked.training.device}
        schedule = {"schedule": "1F1B, as many micro-batches as stages or more"} if split.pp > 1 else {}
        sequence = {"sequence_parallel": True} if split.sequence else {}
        return {
            "optimizer": f"{asked.recipe.name}, {asked.recipe.about}",
            **recompute,
            **common,
            **sequence,
            **schedule,
        }
    storage = [weight_storage(asked.served.weights), kv_storage(asked.served.cache)]
    return {"prefill": "whole prompt at once", **common, **{s.name: s.about for s in storage if not s.plain}}


def _on_device(device: Hardware | None, memory: Memory) -> Iterator[str]:
    """Whether a device that was named has as much, as far as its memory is known."""
    if device is not None and device.memory is not None:
        left = device.memory - memory.total
        beside = f"{show_bytes(left)} left" if left >= 0 else f"short by {show_bytes(-left)}"
        yield f"{device.name} has {show_bytes(device.memory)}: {beside}; see archlab fit for what an engine leaves"


def _notes(asked: Asked) -> Iterator[str]:
    spec, split = asked.spec, asked.split
    if asked.context > spec.context:
        yield f"{asked.context:,} tokens are beyond the model's context of {spec.context:,}"
    counts = parameters(spec)
    if counts.active != counts.total:
        yield f"all {show_count(counts.total)} parameters lie in memory; a token uses {show_count(counts.active)}"
    if any(isinstance(layer.ffn, MixtureOfExperts) for layer, _ in spec.layer_kinds) and split.ep > 1:
        yield "experts are taken to be chosen equally often"
    if spec.vocab_size % split.tp:
        padded = -(-spec.vocab_size // split.tp) * split.tp
        yield f"vocab_size {spec.vocab_size:,} is padded to {padded:,} so that tp = {split.tp} devices share it"
    if split.zero and split.dp == 1:
        yield f"zero={split.zero} shards over dp, which is 1"
    if asked.training and asked.training.device == "cpu":
        other = replace(asked, training=replace(asked.training, device="cuda")).memory().total
        yield f"as the CPU's kernels keep, which is tested; with CUDA's about {show_bytes(other)} (--device cuda)"


def _chart(asked: Asked) -> Chart:
    """The total and its largest moving part over the context."""
    top = max(asked.context, 16)
    top = min(4 * top, asked.spec.max_length or 4 * top)
    contexts = sorted({max(1, round(top / 64 * 64 ** (step / (POINTS - 1)))) for step in range(POINTS)})
    contexts = [tokens - tokens % asked.split.ways for tokens in contexts if tokens >= asked.split.ways]
    found = [(tokens, asked.memory(tokens)) for tokens in contexts]
    part = "activations" if asked.training else "cache"
    curves = {
        "total": [(tokens, memory.total) for tokens, memory in found],
        part: [(tokens, memory.parts.get(part, 0)) for tokens, memory in found],
    }
    return Chart("Growth", "context", "bytes on a device", curves, log_x=True, log_y=True, unit="B")
