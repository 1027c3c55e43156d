"""A spec as plain data: what records keep and tables show of a composition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archlab.decoder.spec import DecoderSpec, listed_kinds
from archlab.errors import ConfigError
from archlab.options import Spec
from archlab.registry import choice


def describe(spec: Spec) -> dict[str, Any]:
    """A choice and its resolved options, blocks of options too; constants that it fixes are left out."""
    fixed = choice(spec.axis, spec.choice).fixed
    shown = {name: value for name, value in spec.options().items() if callable(fixed.get(name)) or name not in fixed}
    parts = {name: describe(value) for name, value in shown.items() if isinstance(value, Spec)}
    return {"choice": spec.choice} | shown | parts


def composition(spec: DecoderSpec) -> dict[str, Any]:
    """The whole model: its sizes, its choice on each axis, and each kind of layer with what it changes.

    axes: the model's own choices, by axis; of attention and FFN, those of most layers. layer_kinds: `layers` (indices)
    and the `axes` that differ from these. more_kinds: how many kinds there are beside these, where there are many.
    """
    usual = max(spec.layer_kinds, key=lambda kind: len(kind[1]))[0]  # not the first: a dense layer before many MoE
    axes = {axis: describe(part) for axis, part in usual.axes().items()} | {"head": describe(spec.head)}
    axes |= {axis: describe(getattr(spec, axis)) for axis in ("norm", "position", "dropout", "block")}
    kinds = []
    for layer, indices in spec.layer_kinds[: listed_kinds(len(spec.layer_kinds))]:
        described = {axis: describe(part) for axis, part in layer.axes().items()}
        changed = {axis: shown for axis, shown in described.items() if shown != axes[axis]}
        kinds.append({"layers": list(indices), "axes": changed})
    sizes = {name: getattr(spec, name) for name in ("name", "d_model", "n_layers", "vocab_size", "context")}
    more = len(spec.layer_kinds) - len(kinds)
    return {**sizes, **_padding(spec), "axes": axes, "layer_kinds": kinds, **({"more_kinds": more} if more else {})}


def _padding(spec: DecoderSpec) -> dict[str, int]:
    """What the vocabulary was padded from, and what that costs; nothing where it was not."""
    names = ("tokenizer_vocab", "unused_rows", "unused_params") if spec.unused_rows else ()
    return {name: getattr(spec, name) for name in names}


def in_short(spec: DecoderSpec) -> str:
    """`gqa 8/4, rope, swiglu, rmsnorm, tied`; a layout other than pre_norm is named, and layers that differ."""
    axes = composition(spec)["axes"]
    attention = axes["attention"]
    heads = f" {attention['n_heads']}/{attention['n_kv_heads']}" if "n_kv_heads" in attention else ""
    parts = [f"{attention['choice']}{heads}", *(axes[axis]["choice"] for axis in ("position", "ffn", "norm", "head"))]
    if axes["block"]["choice"] != "pre_norm":
        parts.append(axes["block"]["choice"])
    kinds = len(spec.layer_kinds)
    return ", ".join([*parts, f"{kinds} kinds of layer"] if kinds > 1 else parts)


# --- side by side -----------------------------------------------------------------------------------------------------


def differences(compositions: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What is not the same in all: sizes, choices and their options by dotted key, a value each, None where it lacks.

    `d_model`, `attention` (the choice), `attention.n_heads`, and `layer kinds`, how many kinds of layer there are.
    """
    held = [flat(composition) for composition in compositions]
    keys = dict.fromkeys(key for parts in held for key in parts)
    values = {key: [parts.get(key, _fixed(parts, key)) for parts in held] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def flat(composition: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes, choices and their options by dotted key, as `differences` names them."""
    if not composition:
        return {}
    kinds = len(composition["layer_kinds"]) + composition.get("more_kinds", 0)
    told = ("name", "axes", "layer_kinds", "more_kinds")
    found = {name: value for name, value in composition.items() if name not in told}
    for axis, described in composition["axes"].items():
        found |= {axis: described["choice"], **_flat_block(axis, described)}
    return found | {"layer kinds": kinds}


def _flat_block(key: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """A choice's options by dotted key; of a block of options its choice too: `ffn.expert`, `ffn.expert.d_ff`."""
    flat: dict[str, Any] = {}
    for name, value in described.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": value["choice"], **_flat_block(f"{key}.{name}", value)}
        elif name != "choice":
            flat[f"{key}.{name}"] = value
    return flat


def _fixed(parts: Mapping[str, Any], key: str) -> Any:
    """The value of an option that a choice fixes and so does not list: `n_kv_heads` of mqa is 1."""
    axis, _, option = key.partition(".")
    try:
        value = choice(axis, parts[axis]).fixed.get(option)
    except (ConfigError, KeyError):
        return None
    return None if callable(value) else value
