"""Memory on paper, part by part: what inference, or one training step, holds on each device.

    weights      in their dtype, quantised ones with their scales; in training by the recipe
    gradients    by the recipe (cost/optimizers.py), as they lie between micro-batches
    optimizer    by the recipe: moments, and float32 copies of the weights where these are 16 bits
    cache        the KV cache; inference only
    tables       of fixed positions, float32: buffers that are no parameters
    activations  what the backward pass needs (cost/activations.py), of all micro-batches in flight; training only
    logits       inference: of the last position, and a float32 copy; training: of all positions
    loss         the log-softmax in float32, its gradient, and that of the logits
    working      estimated, a little on the high side: what the largest layer makes while it runs; in training also
                 what it works out again, a tied embedding's second gradient, and what ZeRO puts together; as far as it
                 is more than the logits and the loss took, which are gone by then

They are added up as if all were there at once, gradients too. Not counted: torch's own code and context, what an
allocator rounds up, and buffers of communication.
"""

from __future__ import annotations

from collections.abc import Sequence

from archlab.components.tape import Tape
from archlab.cost.activations import Training, stage_kept, worked_again
from archlab.cost.kv import kv_cache
from archlab.cost.optimizers import Rates, Recipe
from archlab.cost.parallel import Split, Stage
from archlab.cost.state import gathered, state
from archlab.cost.storage import weight_bytes_by_part, weight_storage
from archlab.cost.working import running
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import Frozen, replace
from archlab.written import named

Parts = dict[str, int]
"""Bytes by part, those that are there."""

ONE_DEVICE = Split()

LOSS_COPIES = 3
"""Tensors of the logits' shape in float32: the log-softmax, its gradient, the logits' gradient."""


class Memory(Frozen):
    """What a device of each pipeline stage holds; devices: how many each stage has."""

    stages: Sequence[Parts]
    devices: int

    @property
    def fullest(self) -> int:
        """The stage whose devices hold most."""
        return max(range(len(self.stages)), key=lambda index: sum(self.stages[index].values()))

    @property
    def parts(self) -> Parts:
        """Of a device of the fullest stage."""
        return self.stages[self.fullest]

    @property
    def total(self) -> int:
        """Of a device of the fullest stage."""
        return sum(self.parts.values())

    @property
    def names(self) -> list[str]:
        """The parts that some stage has."""
        return list(dict.fromkeys(part for stage in self.stages for part in stage))

    def everywhere(self, part: str) -> int:
        """On all devices."""
        return self.devices * sum(stage.get(part, 0) for stage in self.stages)


class Inference(Frozen):
    """Inference: a prefill of [batch, prompt] tokens at once, into a cache of `length` tokens a sequence.

    weights: a name of WEIGHT_STORAGE; cache: of KV_STORAGE. Arithmetic is in bf16 where the weights are quantised.
    """

    batch: int
    prompt: int
    length: int
    weights: str = "bf16"
    cache: str = "bf16"
    device: str = "cpu"

    def tape(self) -> Tape:
        storage = weight_storage(self.weights)
        dtype = storage.name if storage.plain else "bf16"
        return Tape(self.batch, self.prompt, dtype, self.device, trained=False)


def inference_memory(spec: DecoderSpec, inference: Inference, split: Split = ONE_DEVICE) -> Memory:
    """Bytes at the peak of the prefill. Raises ConfigError where the split does not fit the model."""
    split.check(spec, inference.prompt)
    stages = [inference_parts(stage, inference) for stage in split.stages(spec)]
    return Memory(stages, split.tp * split.dp)


def inference_parts(stage: Stage, inference: Inference) -> Parts:
    """What a device of this stage holds."""
    spec, tape = stage.spec, inference.tape()
    weights = weight_bytes_by_part(spec, weight_storage(inference.weights))
    layers = [replace(layer, dropout=layer.dropout.off) for layer, _ in spec.layer_kinds]
    return _present(
        weights=sum(named(size, f"{part}_weights") for part, size in weights.items() if size and stage.has(part)),
        cache=kv_cache(spec, inference.batch, inference.length, inference.cache).required,
        tables=table_elements(spec, inference.length) * tape.wide,
        logits=inference.batch * spec.head.width * (tape.width + tape.wide) if stage.last else 0,
        working=running(layers, inference) + shared(spec, tape),
    )


def training_memory(spec: DecoderSpec, training: Training, recipe: Recipe, split: Split = ONE_DEVICE) -> Memory:
    """Bytes of a step on micro-batches: forward, loss, backward, optimizer.

    Raises ConfigError where the split does not fit the model, or the recipe the dtype.
    """
    split.check(spec, training.length)
    rates = recipe.rates(training.dtype)
    stages = [training_parts(stage, training, rates, split) for stage in split.stages(spec)]
    return Memory(stages, split.tp * split.dp)


def training_parts(stage: Stage, training: Training, rates: Rates, split: Split) -> Parts:
    """What a device of this stage holds."""
    spec, tape = stage.spec, training.tape()
    outputs = output_rows(stage, training) * spec.head.width
    logits, loss = outputs * tape.width, LOSS_COPIES * outputs * tape.wide
    kept = stage_kept(stage, training, split.ways)
    return _present(
        **state(stage, split, rates),
        tables=table_elements(spec, training.length) * tape.wide,
        activations=sum(size for purpose, size in kept.items() if purpose != "loss"),
        logits=logits,
        loss=loss,
        working=max(0, sum(working(stage, training, rates, split).values()) - named(logits + loss, "logits_and_loss")),
    )


def output_rows(stage: Stage, training: Training) -> int:
    """Rows of logits on this stage."""
    if not stage.last:
        return 0
    return training.batch if stage.spec.head.last_token_only else training.batch * training.length


def working(stage: Stage, training: Training, rates: Rates, split: Split) -> Parts:
    """What the backward pass needs while it goes through the layers, by name."""
    spec, layers = stage.spec, [layer for layer, _ in stage.spec.layer_kinds]
    tied = spec.head.tied and stage.first and stage.last  # one gradient from the head, and one from the lookup
    parts = _present(
        largest_layer=running(layers, replace(training, recompute="none")),
        worked_again=worked_again(layers, training),
        second_gradient=spec.vocab_size * spec.d_model * training.tape().width if tied else 0,
        gathered=gathered(spec, split, rates),
    )
    return {name: named(size, name) for name, size in parts.items()}


def _present(**parts: int) -> Parts:
    return {part: size for part, size in parts.items() if size}


def table_elements(spec: DecoderSpec, length: int) -> int:
    """Elements of the fixed tables of positions, made for the model's context, or a longer run."""
    rows = max(spec.context, length)
    return sum(position.table_elements(position.rotary_dim(head), rows) for position, head in spec.position_kinds)


def shared(spec: DecoderSpec, tape: Tape) -> int:
    """Bytes of the keys and values that a prefill holds on for layers that share them, where no cache has them all."""
    kinds = dict(zip(spec.shared_kv, spec.layers, strict=True)).items()
    attentions = [layer.attention for kind, layer in kinds if kind is not None]
    width = sum(2 * attention.kv_width for attention in attentions if attention.locality.limit is not None)
    return width * tape.tokens * tape.width
