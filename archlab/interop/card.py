"""What an import says of itself: the file, and the exact size of the model in it."""

from __future__ import annotations

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.interop.hub import Imported
from archlab.interop.yaml_text import to_yaml


def summary(spec: DecoderSpec) -> str:
    """`7,241,732,096 parameters; KV cache 131,072 B a token in bf16`, with the active ones where they differ."""
    counts = parameters(spec)
    active = "" if counts.active == counts.total else f", {counts.active:,} active a token"
    cache = kv_cache(spec, 1, 1, "bf16").bytes_per_token
    return f"{counts.total:,} parameters{active}; KV cache {cache:,} B a token in bf16"


def preset_text(found: Imported) -> str:
    """The import as the YAML of a preset."""
    source = found.model["about"] or found.model["name"]
    header = f"{source}: imported from its config.json (model_type {found.model_type}).\n{summary(found.spec)}."
    return to_yaml(found.model, header)
