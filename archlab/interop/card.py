"""The two texts that interop hands out: a preset to edit, and a config.json."""

from __future__ import annotations

import json
from pathlib import Path

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.interop.export import export
from archlab.interop.hub import load_config
from archlab.interop.yaml_text import to_yaml


def summary(spec: DecoderSpec) -> str:
    """`7,241,732,096 parameters; KV cache 131,072 B a token in bf16`, with the active ones where they differ."""
    counts = parameters(spec)
    active = "" if counts.active == counts.total else f", {counts.active:,} active a token"
    cache = kv_cache(spec, 1, 1, "bf16").bytes_per_token
    return f"{counts.total:,} parameters{active}; KV cache {cache:,} B a token in bf16"


def import_preset(path: str | Path, output: str | Path | None = None) -> tuple[str, str, tuple[str, ...]]:
    """A config.json as the YAML of a preset, what it is in a line, and what one might not expect of it, a line each.

    output: the file that it is for names it.
    """
    found = load_config(path)
    name = found.model["name"] if output is None else Path(output).stem
    source = found.model["about"] or name
    notes = found.spec.remarks
    header = [f"{source}: imported from its config.json (model_type {found.model_type}).", f"{summary(found.spec)}."]
    header += [f"Note: {note}." for note in notes]
    text = to_yaml({**found.model, "name": name}, "\n".join(header))
    return text, f"{found.model_type}, {summary(found.spec)}", notes


def export_config(spec: DecoderSpec) -> tuple[str, str]:
    """The config.json of a spec, and what it is in a line."""
    config = export(spec)
    return json.dumps(config, indent=2) + "\n", f"{config['model_type']}, {summary(spec)}"
