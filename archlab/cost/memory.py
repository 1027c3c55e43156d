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
from typing import Protocol

from archlab.components.tape import Tape
from archlab.cost.activations import Training, masked, stage_kept, worked_again
from archlab.cost.kv import kv_cache
from archlab.cost.optimizers import Rates, Recipe
from archlab.cost.parallel import Split, Stage
from archlab.cost.state import gathered, state
from archlab.cost.storage import weight_bytes_by_part, weight_storage
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import Frozen, replace

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


class Serving(Frozen):
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
        return Tape(self.batch, self.prompt, storage.name if storage.plain else "bf16", self.device)


def inference_memory(spec: DecoderSpec, serving: Serving, split: Split = ONE_DEVICE) -> Memory:
    """Bytes at the peak of the prefill. Raises ConfigError where the split does not fit the model."""
    split.check(spec, serving.prompt)
    stages = [_inference(stage, serving) for stage in split.stages(spec)]
    return Memory(stages, split.tp * split.dp)


def _inference(stage: Stage, serving: Serving) -> Parts:
    spec, tape = stage.spec, serving.tape()
    weights = weight_bytes_by_part(spec, weight_storage(serving.weights))
    layers = [replace(layer, dropout=layer.dropout.off) for layer, _ in spec.layer_kinds]
    return _present(
        weights=sum(size for part, size in weights.items() if stage.has(part)),
        cache=kv_cache(spec, serving.batch, serving.length, serving.cache).required,
        tables=table_elements(spec, serving.length) * tape.wide,
        logits=serving.batch * spec.head.width * (tape.width + tape.wide) if stage.last else 0,
        working=running(layers, serving),
    )


def training_memory(spec: DecoderSpec, training: Training, recipe: Recipe, split: Split = ONE_DEVICE) -> Memory:
    """Bytes of a step on micro-batches: forward, loss, backward, optimizer.

    Raises ConfigError where the split does not fit the model, or the recipe the dtype.
    """
    split.check(spec, training.length)
    rates = recipe.rates(training.dtype)
    stages = [_training(stage, training, rates, split) for stage in split.stages(spec)]
    return Memory(stages, split.tp * split.dp)


def _training(stage: Stage, training: Training, rates: Rates, split: Split) -> Parts:
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
        working=max(0, sum(working(stage, training, rates, split).values()) - logits - loss),
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
    return _present(
        largest_layer=running(layers, replace(training, recompute="none")),
        worked_again=worked_again(layers, training),
        second_gradient=spec.vocab_size * spec.d_model * training.tape().width if tied else 0,
        gathered=gathered(spec, split, rates),
    )


def _present(**parts: int) -> Parts:
    return {part: size for part, size in parts.items() if size}


def table_elements(spec: DecoderSpec, length: int) -> int:
    """Elements of the fixed tables of positions, made for the model's context, or a longer run."""
    rows = max(spec.context, length)
    return sum(position.table_elements(turned, rows) for position, turned in spec.position_kinds)


class Work(Protocol):
    def tape(self) -> Tape: ...


def running(layers: Sequence[LayerSpec], work: Work) -> int:
    """The most that one of these layers makes while it runs, and the masks."""
    tape = work.tape()
    masks = [layer.position.mask_on_tape(tape) for layer in masked(layers, tape.length)]
    return sum(mask.buffer.bytes for mask in masks) + max(_made(layer, work) for layer in layers)


def _made(layer: LayerSpec, work: Work) -> int:
    """The residual stream before and after a branch, a norm, and all that the larger branch makes."""
    sizes = []
    for branch in (layer.attention_on_tape, layer.ffn_on_tape):
        tape = work.tape()
        x = tape.new(layer.attention.d_model)
        branch(tape, layer.norm.on_tape(tape, x))
        sizes.append(tape.made + x.buffer.bytes)
    return max(sizes)
