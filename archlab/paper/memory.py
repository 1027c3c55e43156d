"""archlab memory: what a model takes on each device, part by part, in inference or in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from archlab.components.ffn.spec import MixtureOfExperts
from archlab.components.tape import KEPT, RECOMPUTE
from archlab.cost.activations import Training, korthikanti, stage_kept
from archlab.cost.memory import ONE_DEVICE, Memory, Serving, inference_memory, training_memory
from archlab.cost.optimizers import RECIPES, Recipe, recipe_of
from archlab.cost.parallel import Split, Stage
from archlab.cost.params import parameters
from archlab.cost.state import state
from archlab.cost.storage import kv_storage, weight_storage
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.document import Chart, Column, Document, Explanation, Row, Table
from archlab.errors import ConfigError
from archlab.frozen import Frozen, replace
from archlab.paper.memory_worked import DIVIDED, explained
from archlab.request import Request
from archlab.units import dtype_name, show_bytes, show_count

BACKENDS = ("sdpa", "math")
POINTS = 12
"""Contexts at which a curve is drawn."""


class Asked(Frozen):
    """A model and what it is asked to do: `serving`, or `training` by a recipe."""

    spec: DecoderSpec
    split: Split
    serving: Serving | None
    training: Training | None
    recipe: Recipe | None

    @property
    def context(self) -> int:
        return self.training.length if self.training else self.served.prompt

    @property
    def served(self) -> Serving:
        assert self.serving is not None
        return self.serving

    @property
    def read_from_source(self) -> bool:
        """Whether what is kept is that of kernels which no test counts."""
        return self.training is not None and self.training.device == "cuda"

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
    kv_dtype: str | None = None,
    optimizer: str | None = None,
    attention: str | None = None,
    device: str | None = None,
    split: Split = ONE_DEVICE,
) -> Document:
    """What inference takes, or with `train` a training step, at `context` tokens (default: the model's context).

    dtype: of the weights (`fp8`, `int8`, `int4` too in inference); default: the workload's. optimizer: a recipe by
    name. attention: `sdpa` or `math` for every layer. device: `cpu` or `cuda`, whose kernels are meant. Raises
    ConfigError; RequestError beyond the positions' end.
    """
    asked = _asked(request, train, context, dtype, kv_dtype, optimizer, attention, device, split)
    memory = asked.memory()
    worked = explained(asked, memory)
    return Document(
        command="memory",
        model=asked.spec.name,
        verdict=_verdict(asked, memory),
        tables=[_parts(asked, memory, worked), *(_of_training(asked, memory) if train else ())],
        assumptions=_assumptions(asked),
        charts=[_chart(asked)],
        notes=[*request.notes, *_notes(asked, memory)],
        explanations=list(worked.values()),
    )


def _asked(
    request: Request,
    train: bool,
    context: int | None,
    dtype: str | None,
    kv_dtype: str | None,
    optimizer: str | None,
    attention: str | None,
    device: str | None,
    split: Split,
) -> Asked:
    spec, workload = with_backend(request.spec, attention), request.workload
    context = spec.context if context is None else context
    spec.check_length(context)
    kind = device or request.run.device.partition(":")[0].replace("auto", "cpu")
    weights, cache = dtype or workload.weight_dtype, kv_dtype or workload.kv_dtype
    if train:
        if cache is not None:
            raise ConfigError("kv-dtype", "training keeps no KV cache", value=cache)
        training = Training(workload.batch, context, dtype_name(weights), kind, workload.recompute)
        return Asked(spec, split, None, training, recipe_of(optimizer, training.dtype))
    _check_inference(optimizer, workload.recompute, split)
    stored = weight_storage(weights)
    cache = cache or (stored.name if stored.plain else "bf16")
    serving = Serving(workload.batch, context, context, stored.name, kv_storage(cache, "kv-dtype").name, kind)
    return Asked(spec, split, serving, None, None)


def _check_inference(optimizer: str | None, recompute: str, split: Split) -> None:
    """Raise ConfigError for what only training has."""
    for name, value, default in (
        ("optimizer", optimizer, None),
        ("recompute", recompute, "none"),
        ("zero", split.zero, 0),
        ("sequence-parallel", split.sequence, False),
    ):
        if value != default:
            raise ConfigError(name, "is for training; add --train", value=value)


def with_backend(spec: DecoderSpec, backend: str | None) -> DecoderSpec:
    """The spec whose attention asks for `sdpa` or for `math` in every layer. None: as the spec says."""
    if backend is None:
        return spec
    if backend not in BACKENDS:
        raise ConfigError("attention", f"{backend!r} is not one of its values", value=backend, valid=BACKENDS)
    changed = {
        id(layer): replace(layer, attention=replace(layer.attention, backend=backend)) for layer, _ in spec.layer_kinds
    }
    return replace(spec, layers=tuple(changed[id(layer)] for layer in spec.layers))


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
    rows = [_part_row(asked, memory, made) for made in worked.values()]
    return Table("memory", "Training step" if asked.training else "Inference", columns, rows, _work(asked))


def _part_row(asked: Asked, memory: Memory, made: Explanation) -> Row:
    sizes = memory.parts | {"total": memory.total}
    row: dict[str, Any] = {"part": made.figure, "per_device": sizes[made.figure], "kind": made.kind}
    row |= {"share": 100 * sizes[made.figure] / memory.total, "how": made.formula}
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
    training, recipe = asked.training, asked.recipe
    assert training is not None
    assert recipe is not None
    stage = asked.split.stages(asked.spec)[memory.fullest]
    yield _kept_table(stage, training, asked.split)
    yield _recompute_table(asked, memory.fullest, training)
    yield _recipe_table(stage, training, asked.split)


def _kept_table(stage: Stage, training: Training, split: Split) -> Table:
    kept = stage_kept(stage, training, split.ways)
    kind = "exact" if training.device == "cpu" else "estimated"
    total, tokens = sum(kept.values()), training.batch * training.length
    columns = (
        Column("kept_for"),
        Column("bytes", "B", kind, "distinct tensors that autograd keeps, parameters and fixed tables apart"),
        Column("per_token", "B", kind, "over the tokens of a micro-batch"),
        Column("share", "%", kind, "of what is kept"),
        Column("what"),
    )
    rows = [
        {"kept_for": name, "bytes": size, "per_token": size / tokens, "share": 100 * size / total, "what": KEPT[name]}
        for name, size in kept.items()
    ]
    whole = {"kept_for": "total", "bytes": total, "per_token": total / tokens, "share": 100.0}
    source = "as torch's saved-tensor hooks count" if training.device == "cpu" else "read from torch's source"
    return Table("kept", "Kept for the backward pass", columns, [*rows, whole], f"per device, {source}")


def _recompute_table(asked: Asked, index: int, training: Training) -> Table:
    """What is kept under each choice, for both ways to attend; the published formula beside them."""
    kind = "exact" if training.device == "cpu" else "estimated"
    stages = {backend: asked.split.stages(with_backend(asked.spec, backend))[index] for backend in BACKENDS}
    columns = (
        Column("recompute"),
        *(Column(backend, "B", kind, f"kept with {backend} attention where a layer has it") for backend in BACKENDS),
        Column("published", "B", "exact", "34 s b h + 5 a s^2 b a layer of GPT in 16 bits: Korthikanti et al. 2022"),
    )
    rows = [
        {
            "recompute": what,
            **{backend: _activations(stage, training, what, asked.split) for backend, stage in stages.items()},
        }
        | {"published": _published(stages["sdpa"], asked, training, what)}
        for what in RECOMPUTE
    ]
    return Table("recompute", "Recompute", columns, rows, "per device, activations without the loss")


def _activations(stage: Stage, training: Training, recompute: str, split: Split) -> int:
    kept = stage_kept(stage, replace(training, recompute=recompute), split.ways)
    return sum(size for purpose, size in kept.items() if purpose != "loss")


def _published(stage: Stage, asked: Asked, training: Training, recompute: str) -> int:
    """Of a GPT with as many layers, heads and features."""
    split = asked.split
    layers: Sequence[tuple[LayerSpec, tuple[int, ...]]] = stage.spec.layer_kinds
    each = (
        len(indices)
        * korthikanti(
            training.length,
            training.batch,
            layer.attention.d_model,
            layer.attention.n_heads * split.tp,
            tp=split.tp,
            sequence=split.sequence,
            recompute=recompute,
        )
        for layer, indices in layers
    )
    return round(stage.in_flight * sum(each))


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
        "optimizer": rates.matrices,
        "total": rates.total,
        "per_device": sum(state(stage, split, rates).values()),
        "about": recipe.about if dtype == training.dtype else f"{recipe.about} ({dtype})",
        "source": recipe.source,
    }


def _assumptions(asked: Asked) -> Mapping[str, Any]:
    split, backends = asked.split, {layer.attention.backend_used for layer, _ in asked.spec.layer_kinds}
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


def _notes(asked: Asked, memory: Memory) -> Iterator[str]:
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
