"""Activations: what a training pass keeps for the backward one, by the tape of every part (components/tape.py).

Equal to what torch's saved-tensor hooks count on the CPU: unique storages, parameters and fixed tables apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archlab.components.tape import INDEX, KEPT, Tape
from archlab.cost.parallel import Stage
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import Frozen, replace


class Training(Frozen):
    """A training pass of [batch, length] tokens: dtype of the arithmetic, kind of device, what is worked out again."""

    batch: int
    length: int
    dtype: str = "bf16"
    device: str = "cpu"
    recompute: str = "none"

    def tape(self) -> Tape:
        return Tape(self.batch, self.length, self.dtype, self.device, self.recompute)


Kept = dict[str, int]
"""Bytes by what they are kept for, those of `KEPT` that there are."""


def kept(spec: DecoderSpec, training: Training) -> Kept:
    """What a whole model keeps."""
    return stage_kept(Stage(spec, 0, 1), training)


def stage_kept(stage: Stage, training: Training, ways: int = 1) -> Kept:
    """What a device keeps of all micro-batches in flight. ways: devices that share the residual stream's tokens."""
    spec = stage.spec
    once = [_times(_kept(layers_tape(layers, training), ways), count) for layers, count in spec.sharing_groups]
    if stage.first:
        once.append(_kept(entry_tape(spec, training), ways))
    held = [_times(part, stage.in_flight) for part in once]
    return _added(*held, _kept(exit_tape(spec, training), ways)) if stage.last else _added(*held)


def layers_tape(layers: Sequence[LayerSpec], training: Training) -> Tape:
    """A layer's, and of those that read its keys and values; where they are run again, their inputs and these only."""
    tape, again = training.tape(), training.tape()
    for layer in layers:
        x = tape.new(layer.attention.d_model, stream=True)
        if training.recompute == "full":
            tape.keep("layers", x)
        else:
            layer.on_tape(tape, x)
    if training.recompute == "full" and len(layers) > 1:
        layers[0].on_tape(again, again.new(layers[0].attention.d_model))
        tape.keep("held", *again.shared)
    return tape


def entry_tape(spec: DecoderSpec, training: Training) -> Tape:
    """The embedding's, and of the angles and masks that layers share."""
    tape = training.tape()
    tape.keep("ids", tape.new(1, INDEX, training.batch * (training.length + 1)))
    x = tape.new(spec.d_model, stream=True)
    if spec.block.embedding_norm:
        x = spec.norm.on_tape(tape, x)
    tape.dropout(x, spec.dropout.embedding)
    for position, width in dict.fromkeys(layer.position_kind for layer, _ in spec.layer_kinds):
        tables = [tape.new(position.rotary_dim(width), tape.wide, tape.length) for _ in ("cos", "sin")]
        tape.keep("held" if training.recompute == "full" else "angles", *tables)
    for layers in masked([layer for layer, _ in spec.layer_kinds], tape):
        mask = layers[0].position.mask_on_tape(tape)
        if training.recompute != "none":
            tape.keep("held", mask)
        elif any(layer.attention.keeps_bias(tape, layer.dropout, layer.position) for layer in layers):
            tape.keep("masks", mask)
    return tape


def masked(layers: Sequence[LayerSpec], tape: Tape) -> list[list[LayerSpec]]:
    """The layers of each mask that a pass makes: those that see as far, and have the same bias if any."""
    found: dict[Any, list[LayerSpec]] = {}
    for layer in layers:
        biased, locality = layer.position.biases, layer.attention.locality
        cut = locality.kept(tape.length) < tape.length
        if biased or (cut and layer.attention.ran(tape, layer.dropout) != "flex"):
            found.setdefault((layer.position if biased else None, locality), []).append(layer)
    return list(found.values())


def exit_tape(spec: DecoderSpec, training: Training) -> Tape:
    """The final norm's, the head's and the loss's."""
    tape = training.tape()
    x = tape.new(spec.d_model, stream=True)
    if spec.head.last_token_only:
        x = x.view(spec.d_model, rows=training.batch)
    if spec.block.final_norm:
        x = spec.norm.on_tape(tape, x)
    spec.head.on_tape(tape, tape.dropout(x, spec.dropout.output))
    return tape


def worked_again(layers: Sequence[LayerSpec], training: Training) -> int:
    """The most that the backward pass of one of these layers works out again: what it would have kept otherwise."""
    if training.recompute == "none":
        return 0
    everything = replace(training, recompute="none")
    return max(layers_tape([layer], everything).bytes() - layers_tape([layer], training).bytes() for layer in layers)


def korthikanti(s: int, b: int, h: int, a: int, tp: int = 1, sequence: bool = False, recompute: str = "none") -> float:
    """Bytes that a layer of GPT keeps in 16 bits, as published: s tokens, b sequences, width h, a heads.

    34 s b h + 5 a s^2 b, of which 10 s b h is not divided by `tp` unless the sequence is, and the second term is what
    selective recompute saves. Korthikanti et al. 2022, equations 1, 2, 4 and 6, and section 5.
    """
    stream, inner, scores = 10 * s * b * h, 24 * s * b * h, 5 * a * s * s * b
    if recompute == "full":
        return 2 * s * b * h
    return stream / (tp if sequence else 1) + (inner + (scores if recompute == "none" else 0)) / tp


def _kept(tape: Tape, ways: int) -> Kept:
    return {purpose: tape.bytes(purpose, ways) for purpose in KEPT}


def _times(kept: Kept, count: int) -> Kept:
    return {purpose: size * count for purpose, size in kept.items()}


def _added(*parts: Kept) -> Kept:
    """What all keep together, in the order of `KEPT`."""
    return {name: size for name in KEPT if (size := sum(part[name] for part in parts))}
