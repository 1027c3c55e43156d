"""From a Hugging Face config.json to an archlab model config; no torch, no Hydra, no transformers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, RequestError, is_folder
from archlab.frozen import Frozen
from archlab.interop.blame import by_field
from archlab.interop.families import family
from archlab.interop.reader import FILE, Fields, find_config, read_json, show
from archlab.interop.task import head_of

OUTER = ("tie_word_embeddings", "architectures", "num_labels", "id2label")
"""What the whole model says of its nested language model."""


class Imported(Frozen):
    """A config.json as archlab has it. model: the plain config, as a preset holds it; spec: resolved and checked."""

    file: Path
    model_type: str
    model: dict[str, Any]
    spec: DecoderSpec


def is_config(body: Any) -> bool:
    """Whether a JSON document is a Hugging Face config rather than one of archlab's."""
    return isinstance(body, Mapping) and ("model_type" in body or "architectures" in body)


def find_import(path: Path) -> Imported | None:
    """The import behind a path; None where it is something else. Raises as `load_config` does."""
    return load_config(path) if is_import(path) else None


def is_import(path: Path) -> bool:
    """Whether a path is a config.json, a folder with one, or another JSON file that holds one.

    A run folder, a record and a YAML are something else. Raises RequestError for a folder that may not be read.
    """
    if is_folder(path):
        run = any((path / name).is_file() for name in ("record.json", "config.yaml"))
        return os.path.lexists(path / FILE) and not run
    return path.name == FILE or (path.suffix == ".json" and _holds_config(path))


def _holds_config(file: Path) -> bool:
    try:
        return is_config(read_json(file))
    except RequestError:
        return False


def load_config(path: str | Path) -> Imported:
    """The model of a config.json, or of the one in a folder: the file that it is, never resolved by its name.

    Raises ConfigError or RequestError, one line that names the file, for whatever cannot be read or is not modelled.
    """
    file = find_config(Path(path))
    raw = read_json(file)
    try:
        model_type, model = read_config(raw)
        model["name"] = _name(file)
        return Imported(file, model_type, model, spec_of(raw, model))
    except ConfigError as error:
        place = f"{file}: {error.key}" if error.key else str(file)
        raise ConfigError(place, error.problem, value=error.value, valid=error.valid, nearest=error.nearest) from None


def read_config(raw: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """model_type and archlab's model config of a parsed config.json. Raises ConfigError."""
    raw = _text_model(raw)
    known = family(raw.get("model_type"))
    fields = Fields(raw)
    model = known.read(fields)
    model["head"] = head_of(fields, model["head"], known.architecture)
    fields.finish(known.harmless, model)
    source = raw.get("_name_or_path")
    about = source if isinstance(source, str) and re.fullmatch(r"[\w.-]{1,60}/[\w.-]{1,60}", source) else ""
    return known.model_type, {"name": known.model_type, "about": about, "family": known.model_type, **model}


def spec_of(raw: Mapping[str, Any], model: Mapping[str, Any]) -> DecoderSpec:
    """The spec of what was read. Raises ConfigError by the field of the file that cannot be."""
    try:
        return resolve(model).spec
    except ConfigError as error:
        raise by_field(error, _text_model(raw)) from None


def _text_model(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model of a config that nests it beside those for images or sound."""
    nested = raw.get("text_config")
    if nested is None:
        return raw
    if not isinstance(nested, dict):
        raise ConfigError("text_config", f"{show(nested)} is not an object")
    return {**nested, **{key: raw[key] for key in OUTER if raw.get(key) is not None}}


def _name(file: Path) -> str:
    """What tables call it: the folder of a config.json, or the file's own name; in the hub's cache, the repository."""
    own = _folder_name(file.parent.resolve()) if file.name == FILE else file.stem
    return re.sub(r"[^\w.-]+", "-", own).strip("-")[:80] or "model"


def _folder_name(folder: Path) -> str:
    """Qwen3-8B of .../Qwen3-8B, and of .../models--Qwen--Qwen3-8B/snapshots/1a2b, whose files are links."""
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.rpartition("--")[2] if cached else folder.name
