"""From a plain model config to a DecoderSpec: read the options, fill in the rules, check that the parts fit.

A preset's values for an axis belong to the choice that the preset made. Where another choice took its place, the
options that this one lacks or fixes are dropped and reported; an option that the user typed is never dropped, it is
an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from archlab.components.head.spec import Head
from archlab.components.placed import NONE
from archlab.decoder.pattern import Blocks, Entry, TypedOn, layer_axes, read_pattern, refuse_idle
from archlab.decoder.spec import MAX_LAYERS, DecoderSpec, LayerSpec
from archlab.errors import ConfigError, nearest, unknown_key
from archlab.frozen import Frozen
from archlab.options import BLOCK, Option, Verbatim, option, options_of, read_options, verbatim
from archlab.registry import (
    Choice,
    axes,
    choice,
    choices,
    is_axis,
    knows_option,
    part_choices,
    places,
    read_once,
    takes,
)


class ModelOptions(Frozen):
    """What belongs to the model itself; everything else belongs to a choice."""

    d_model: int = option(help="width of the residual stream", ge=1)
    n_layers: int = option(help="layers", ge=1, lt=MAX_LAYERS + 1)
    vocab_size: int = option(help="tokens in the vocabulary", ge=1)
    context: int = option(help="tokens in one sequence", ge=1)
    vocab_multiple: int | None = option(None, "pad vocab_size up to a multiple of this; null: as it is", ge=1)
    name: str = option("model", "what tables call it")
    about: str = option("", "one line on where it comes from")
    family: str | None = option(None, "its Hugging Face model_type, which names its weights")

    @property
    def rows(self) -> int:
        """Rows of the embedding: a token each, and those of the padding."""
        return self.vocab_size + -self.vocab_size % (self.vocab_multiple or 1)


class Resolved(Frozen):
    """A DecoderSpec and what had to be dropped to make it, a line each."""

    spec: DecoderSpec
    notes: list[str]


Sizes = tuple[tuple[str, Any], ...]
"""What the model supplies to a choice, by name: its sizes, and of a layer the norm and the heads."""

Read = tuple[Any, tuple[str, ...]]
"""A spec, and what was dropped from its block, a line each: the key below the block, and why."""


@read_once
def _read(axis: str, block: Verbatim, typed: frozenset[str], sizes: Sizes) -> Read:
    """The spec of one axis from its config block. typed, and the keys of notes and errors: below the block."""
    chosen = choice(axis, block.data.get("choice"))
    values, notes = _keep(chosen, block.data, typed)
    for name, opt in chosen.options.items():
        if opt.part is not None:
            values[name], dropped = _read_part(opt, values.get(name), frozenset(_below(name, typed)), sizes)
            notes += [f"{name}.{note}" for note in dropped]
    options = read_options(chosen.spec, values, skip=chosen.fixed)
    chosen.apply_fixed(options)
    return chosen.spec.resolve(axis, chosen.name, options, dict(sizes)), tuple(notes)


def _read_part(opt: Option, block: Any, typed: frozenset[str], sizes: Sizes) -> Read:
    """The spec that an option holds, from the block below it."""
    assert opt.part is not None
    axis, default = opt.part
    block = {} if block is None else block
    if not isinstance(block, Mapping):
        problem = f"{block!r} is not a block of options"
        raise _wrong_part(opt, opt.name, problem, block, block if isinstance(block, str) else None)
    name = block.get("choice", default)
    if not takes(opt, name):
        known = part_choices(opt)
        raise _wrong_part(opt, f"{opt.name}.choice", f"no choice {name!r}", name, nearest(str(name), known), known)
    try:
        return _read(axis, Verbatim({**block, "choice": name}), typed, sizes)
    except ConfigError as error:
        raise error.under(opt.name) from None


def _wrong_part(
    opt: Option, key: str, problem: str, value: Any, near: str | None, valid: Iterable[str] | None = None
) -> ConfigError:
    """The error of a block that names no choice; near: the one that was meant."""
    spelled = f"{opt.name}.choice={near}" if near else None
    error = ConfigError(key, problem, value=value, valid=valid, nearest=spelled)
    error.nearest_is_key = True
    return error


def _keep(chosen: Choice, block: Mapping[str, Any], typed: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The block's options that the choice has; the others are dropped with a note, or are an error."""
    excluded = {opt.excludes for name, opt in chosen.options.items() if opt.excludes and name in typed}
    set_by_user = {name.split(".")[0] for name in typed}
    kept, notes = {}, []
    for key, value in block.items():
        if key == "choice":
            continue
        if key in chosen.options and (key in set_by_user or key not in excluded):
            kept[key] = value
        elif not knows_option(chosen.axis, key):
            raise unknown_key(key, chosen.options)
        elif key in set_by_user:
            raise _typed_but_lacking(chosen, key, value)
        elif value is not None:
            why = "replaced by what you set" if key in excluded else _lacks(chosen, key)
            notes.append(f"{key} = {value}: {why}")
    return kept, notes


@read_once
def _read_layer(blocks: tuple[Verbatim, ...], typed: tuple[frozenset[str], ...], sizes: Sizes) -> Read:
    """One layer's spec from its blocks, in the order of `layer_axes`; notes, errors as of `_read`, below the axis."""
    parts: dict[str, Any] = {}
    dropped: list[str] = []
    for axis, block, keys in zip(layer_axes(), blocks, typed, strict=True):
        more: Sizes = (("norm", parts["norm"]),) if axis == "attention" or axis in places() else ()
        if axis == "position":
            more = (("n_heads", parts["attention"].n_heads),)
        try:
            parts[axis], notes = _read(axis, block, keys, sizes + more)
            if axis == "position":
                parts[axis].check_head(parts["attention"].rotary_width)
        except ConfigError as error:
            raise error.under(axis) from None
        dropped += [f"{axis}.{note}" for note in notes]
    placed = tuple(parts.pop(name) for name in places())
    return _layer(**parts, placed=placed), tuple(dropped)


@read_once
def _layer(**parts: Any) -> LayerSpec:
    """The layer of these specs; equal ones are the same object, and more are kept than a model may have."""
    return LayerSpec(**parts)


@dataclass
class _Reader:
    """notes: what was dropped, a line each; told: the same less its place, so that what the model lost is said once."""

    sizes: Sizes
    notes: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def layer(self, blocks: Blocks, path: str, typed: TypedOn) -> LayerSpec:
        """One layer's spec from its blocks below `path`; equal layers come back as the same object."""
        written = tuple(blocks[axis] for axis in layer_axes())
        keys = tuple(typed[axis] for axis in layer_axes())
        try:
            layer, dropped = _read_layer(written, keys, self.sizes)
        except ConfigError as error:
            raise _placed(error, path, layer_axes(), blocks) from None
        self._note(path, dropped)
        spec: LayerSpec = layer
        return spec

    def head(self, blocks: Blocks, typed: TypedOn) -> Head:
        try:
            head, dropped = _read("head", blocks["head"], typed["head"], self.sizes)
        except ConfigError as error:
            raise _placed(error.under("head"), "model", ("head",), blocks) from None
        self._note("model.head", dropped)
        spec: Head = head
        return spec

    def _note(self, path: str, dropped: tuple[str, ...]) -> None:
        self.notes += [f"dropped {path}.{note}" for note in dropped if note not in self.told]
        self.told.update(dropped)


def _placed(error: ConfigError, path: str, axes: Iterable[str], blocks: Blocks) -> ConfigError:
    """The error where it stands; a choice that there is not is named by its group, whatever else is wrong."""
    for axis in axes:
        choice(axis, blocks[axis].data.get("choice"))
    return error.under(path)


def _below(name: str, typed: Collection[str]) -> set[str]:
    """The typed keys below an option: `d_ff` of `expert.d_ff`."""
    return {key.removeprefix(f"{name}.") for key in typed if key.startswith(f"{name}.")}


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with what `change` sets, block by block."""
    merged = dict(base)
    for key, value in change.items():
        below = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = merge(base[key], value) if below else value
    return merged


@read_once
def _changed(axis: str, base: Verbatim, change: Verbatim) -> Verbatim:
    """A layer's block: the model's with what the layer changes."""
    return Verbatim(merge(_usable(axis, base.data, change.data), change.data))


def _usable(axis: str, base: Mapping[str, Any], change: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a layer takes from the model's block: with a choice of its own, only the options that this one has."""
    if "choice" not in change:
        return base
    options = choice(axis, change["choice"]).options
    return {key: value for key, value in base.items() if key in options}


def _lacks(chosen: Choice, key: str) -> str:
    return f"{chosen.name} fixes it" if key in chosen.fixed else f"{chosen.name} has no such option"


def _typed_but_lacking(chosen: Choice, key: str, value: Any) -> ConfigError:
    owners = [name for name, other in choices(chosen.axis).items() if key in other.options]
    problem = f"{_lacks(chosen, key)}; it is an option of {', '.join(owners)}"
    return ConfigError(key, problem, value=value)


def resolve(model: Mapping[str, Any], typed: Collection[str] = ()) -> Resolved:
    """The DecoderSpec of a model config. typed: dotted keys that the user set, such as `model.ffn.d_ff`.

    Raises ConfigError, with the dotted key, where the config cannot be.
    """
    blocks, own = _split(model)
    options = _read_model(Verbatim(own))
    sizes = {"d_model": options.d_model, "vocab_size": options.rows, "context": options.context}
    reader = _Reader(tuple(sizes.items()))
    typed_on = _typed_on(frozenset(typed))
    base = reader.layer(blocks, "model", typed_on)
    head = reader.head(blocks, typed_on)
    pattern = read_pattern(model.get("layers"), blocks, "model.layers" in typed)
    layers = _layers(reader, options.n_layers, pattern, base, blocks, typed_on)
    refuse_idle(typed_on, pattern)
    spec = DecoderSpec(
        name=options.name,
        **sizes,
        tokenizer_vocab=options.vocab_size,
        block=base.block,
        norm=base.norm,
        position=base.position,
        dropout=base.dropout,
        head=head,
        layers=layers,
        family=options.family,
    )
    _check_sharing(spec)
    return Resolved(spec, list(dict.fromkeys(reader.notes)))


def _check_sharing(spec: DecoderSpec) -> None:
    """Raise ConfigError where a layer is to read the keys and values of an earlier one that there is not."""
    if not any(layer.attention.shares_kv for layer, _ in spec.layer_kinds):
        return
    try:
        _ = spec.kv_sources
    except ConfigError as error:
        raise error.under("model.attention") from None


def _split(model: Mapping[str, Any]) -> tuple[Blocks, dict[str, Any]]:
    """The axes' blocks, and what belongs to the model itself. At a place of which nothing is said there is nothing."""
    known = options_of(ModelOptions)
    own = {key: value for key, value in model.items() if key != "layers" and (key in known or not is_axis(key))}
    blocks = {}
    for axis in axes():
        block = model.get(axis, NONE if axis in places() else None)
        if not isinstance(block, BLOCK):
            raise _no_block(axis, block)
        if axis in places() and "choice" not in block:
            block = {**NONE, **block}
        blocks[axis] = verbatim(block)
    return blocks, own


def _no_block(axis: str, value: Any) -> ConfigError:
    if isinstance(value, str):
        return ConfigError(f"model.{axis}", "is an axis, not a value", value=value, nearest=f"model/{axis}={value}")
    return ConfigError(f"model.{axis}", "is an axis and needs a choice", valid=choices(axis))


@read_once
def _typed_on(typed: frozenset[str]) -> TypedOn:
    keys = {key.removeprefix("model.") for key in typed}
    return {axis: frozenset(_below(axis, keys)) for axis in axes()}


@read_once
def _read_model(written: Verbatim) -> ModelOptions:
    own, known = written.data, options_of(ModelOptions)
    for key in own:
        if key not in known:
            raise unknown_key(key, [*known, *axes(), "layers"]).under("model")
    try:
        return ModelOptions(**read_options(ModelOptions, own))
    except ConfigError as error:
        raise error.under("model") from None


def _layers(
    reader: _Reader,
    n_layers: int,
    pattern: Sequence[Entry],
    base: LayerSpec,
    blocks: Blocks,
    typed_on: TypedOn,
) -> tuple[LayerSpec, ...]:
    """The pattern's entries, each `repeat` times, again and again until there are n_layers."""
    if not pattern:
        return (base,) * n_layers
    unrolled: list[LayerSpec] = []
    for index, (repeat, changes, typed) in enumerate(pattern):
        path = f"model.layers[{index}]"
        changed = {axis: _changed(axis, blocks[axis], change) for axis, change in changes.items()}
        layer = reader.layer({**blocks, **changed}, path, {**typed_on, **typed})
        if layer.position.embeds and layer.position != base.position:
            problem = f"{layer.position.choice} is added to the input once, for all layers; set it on the model"
            raise ConfigError(f"{path}.position", problem, value=layer.position.choice)
        unrolled += [layer] * repeat
    return tuple(itertools.islice(itertools.cycle(unrolled), n_layers))
