"""Hydra to DecoderSpec: compose a config from presets, YAML files, run folders and overrides."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab import presets
from archlab.decoder.describe import in_short
from archlab.decoder.pattern import pattern_text, read_pattern
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError, shortened
from archlab.frozen import replace
from archlab.hydra_errors import hydra_errors
from archlab.overrides import normalise, one_search_path, typed_keys
from archlab.plugins import load_installed, require
from archlab.registry import AXES, choice, origins
from archlab.request import Request, read_request
from archlab.yaml_text import read_yaml

if TYPE_CHECKING:
    from archlab.interop.hub import Imported

RUN_FILES = ("record.json", "config.yaml")
"""What a run leaves in its folder, and a model is read from."""


def load(source: str | Path, *overrides: str) -> DecoderSpec:
    """The spec of a preset, an archlab YAML, a run folder, a record or a Hugging Face config.json, with overrides.

    `load("minimind", "model/attention=mha", "model.n_layers=4")`. Raises ConfigError or RequestError.
    """
    return request(source, overrides).spec


def request(
    source: str | Path, overrides: Sequence[str] = (), *, budget: Mapping[str, Any] | None = None, **workload: Any
) -> Request:
    """The checked request of a model source with overrides.

    budget, workload: settings of these, which need no Hydra.
    """
    _check_words(source, overrides)
    config = composed(source, overrides)
    for group, given in (("budget", budget or {}), ("workload", workload)):
        config[group] = {**(config.get(group) or {}), **given}
    asked = read_request(config, typed_keys(overrides))
    return replace(asked, dropped=[*shadowed(source), *asked.dropped])


def path_first(source: str) -> str | Path:
    """What `--from` means, which takes paths: the one of that name, else the preset."""
    return Path(source) if is_path(source) or Path(source).exists() else source


def shadowed(source: str | Path) -> list[str]:
    """A note, where a bare name is a preset's and a file's or folder's too: the preset is meant."""
    if isinstance(source, Path) or is_path(source):
        return []
    beside = (source, *(os.path.join(source, name) for name in (*RUN_FILES, "config.json")))
    if not any(map(os.path.isfile, beside)):  # which is False, too, of what may not be looked at
        return []
    return [f"{source} is the preset of that name; ./{source} is here too: write ./{source} to read it"]


def _check_words(source: Any, overrides: Sequence[Any]) -> None:
    if not isinstance(source, str | Path):
        raise RequestError(f"a model is a name or a path, not {source!r}")
    for override in overrides:
        if not isinstance(override, str):
            raise RequestError(f"an override is text, such as 'model.n_layers=4', not {override!r}")


def base_config(source: str | Path) -> dict[str, Any]:
    """The composed config of a model source, for variants of it. Raises RequestError for one that interpolates."""
    _check_words(source, ())
    if is_path(source) and "${" in _preset_text(Path(source)):
        raise RequestError(f"{source}: holds an interpolation (${{..}}), which a variant in Python would not follow")
    return composed(source, ())


def composed(source: str | Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The config of a model source with overrides; Hydra is imported only where it is needed."""
    if not overrides and not is_path(source):
        return {"model": preset(str(source))}
    imported = imported_from(Path(source)) if not overrides else None
    if imported is not None:
        return {"model": imported.model}
    with model_source(source) as chosen:
        return compose([*chosen, *overrides])


def preset(name: str) -> dict[str, Any]:
    """The composed `model` config of a preset. Raises ConfigError for an unknown one."""
    with hydra_errors():
        return presets.model(name)


def summary(name: str) -> dict[str, Any]:
    """A preset in one row: its exact totals, its choices in short and where it comes from."""
    from archlab.cost.kv import kv_cache
    from archlab.cost.params import parameters

    spec = load(name)
    counts = parameters(spec)
    return {
        "name": name,
        "params": counts.total,
        "params_non_embedding": counts.non_embedding,
        "kv_bytes_per_token": kv_cache(spec, 1, 1, "bf16").bytes_per_token,
        "kv_dtype": "bf16",
        "context": spec.context,
        "choices": in_short(spec),
        "about": preset(name).get("about", ""),
    }


def preset_users() -> dict[tuple[str, str], list[str]]:
    """Which presets make which choice, in all layers, in some or as a part: (axis, choice) to preset names."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in presets.names():
        for made in dict.fromkeys(_choices_of(preset(name))):
            found.setdefault(made, []).append(name)
    return found


def _choices_of(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The choices that a model's config makes, by axis: its own, those of its layers, those of blocks of options."""
    layers = read_pattern(model.get("layers"), {}, True)
    changed = [(axis, block.data) for _, changes, _ in layers for axis, block in changes.items()]
    for axis, block in [*((axis, model[axis]) for axis in AXES), *changed]:
        if "choice" not in block:
            continue
        yield axis, block["choice"]
        for name, opt in choice(axis, block["choice"]).options.items():
            if opt.part is not None:
                yield opt.part[0], (block.get(name) or {}).get("choice", opt.part[1])


@contextlib.contextmanager
def model_source(source: str | Path, **groups: Mapping[str, Any]) -> Iterator[list[str]]:
    """The overrides that make Hydra compose this model. A path is read as the file it is, never by its name.

    groups: the settings of other config groups, to be composed with the model of a path.
    """
    if not is_path(source):
        presets.check_name(str(source))
        yield [f"model={source}"]
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="archlab-") as folder:
        texts = {"model": _preset_text(Path(source)), **{name: _dump(block) for name, block in groups.items()}}
        for name, text in texts.items():
            (Path(folder) / name).mkdir()
            (Path(folder) / name / f"{STAND_IN}.yaml").write_text(text, encoding="utf-8")
        with _in_words_of(source, folder):
            yield [f"hydra.searchpath=[file://{folder}]", *(f"{name}={STAND_IN}" for name in texts)]


STAND_IN = "from_path"
"""What Hydra knows the file of a path by."""


@contextlib.contextmanager
def _in_words_of(source: str | Path, folder: str) -> Iterator[None]:
    """Let an error name the path that was given, where Hydra names the file that stands for it in `folder`."""
    try:
        yield
    except RequestError as error:
        stands = re.compile(rf"({re.escape(folder)}/)?model/{STAND_IN}(\.yaml)?")
        raise error.reworded(lambda text: stands.sub(lambda _: str(source), text)) from error


def imported_from(path: Path) -> Imported | None:
    """What is behind a path that holds a Hugging Face config; None where it is something else."""
    from archlab.interop.hub import find_import  # thirty families, for a path only

    return find_import(path)


def holds_import(path: Path) -> bool:
    """Whether a path holds a Hugging Face config."""
    from archlab.interop.hub import is_import

    return is_import(path)


def is_path(source: str | Path) -> bool:
    """Whether a model source is a path, not the name of a preset."""
    text = str(source)
    if not text or "\0" in text:
        raise RequestError(f"no model named {text!r}; archlab models lists the presets")
    looks = isinstance(source, Path) or "/" in text or text.endswith((".yaml", ".yml", ".json"))
    return looks or (not presets.exists(text) and Path(text).exists())


def _preset_text(path: Path) -> str:
    """The file as a preset of the `model` group."""
    imported = imported_from(path)
    if imported is not None:
        return _dump(_as_preset(imported.model))
    if path.is_dir():
        path = next((path / name for name in RUN_FILES if (path / name).is_file()), path)
    try:
        text = path.read_text(encoding="utf-8")
        body = _read_json(path) if path.suffix == ".json" else read_yaml(text)
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(body, dict):
        raise RequestError(f"{path}: is no model of archlab: a mapping of settings is expected")
    if "figures" in body:
        require(body.get("plugins") or [], str(path))
        body = body.get("config")
    if isinstance(body, dict) and "defaults" not in body and isinstance(body.get("model"), dict):
        return _dump(_as_preset(body["model"]))
    if isinstance(body, dict) and "defaults" not in body and "d_model" in body:
        return _dump(_as_preset(body))
    if not isinstance(body, dict) or "defaults" not in body:
        raise RequestError(f"{path}: is no model of archlab: it has neither `defaults` nor `model` nor `d_model`")
    _check_choices(path, body)
    return text


def _read_json(path: Path) -> Any:
    from archlab.interop.reader import read_json  # as a config.json is: no name twice, no number that is none

    return read_json(path, 64 << 20)  # a record of many layers is longer than a config


SUCH_AS = "[gqa, override norm: layernorm, _self_]"
"""What the defaults of a model's file may be."""


def _is_choice(entry: Any) -> bool:
    """Whether an entry of the defaults names one choice, or none."""
    return isinstance(entry, dict) and len(entry) == 1 and isinstance(next(iter(entry.values())), str | None)


def _check_choices(path: Path, body: Mapping[str, Any]) -> None:
    """Raise RequestError where a block and the defaults of one file choose differently: one of them would be lost."""
    if not isinstance(body["defaults"] or [], list):
        raise RequestError(f"{path}: its defaults are no list, such as {SUCH_AS}")
    for entry in body["defaults"] or []:
        if not isinstance(entry, str) and not _is_choice(entry):
            problem = f"{shortened(str(entry))} is neither a preset nor one choice of an axis"
            raise RequestError(f"{path}: defaults: {problem}; such as {SUCH_AS}")
    entries = [entry for entry in body["defaults"] or [] if isinstance(entry, dict)]
    made = {str(key).removeprefix("override "): value for entry in entries for key, value in entry.items()}
    for axis in AXES:
        block = body.get(axis)
        chosen = block.get("choice", made.get(axis)) if isinstance(block, dict) else made.get(axis)
        if axis in made and chosen != made[axis]:
            problem = f"{axis}.choice is {chosen}, and the defaults choose {axis}: {made[axis]}; leave one of them"
            raise RequestError(f"{path}: {problem}")


def _dump(preset: Mapping[str, Any]) -> str:
    return json.dumps(preset)  # JSON is YAML


def _as_preset(model: dict[str, Any]) -> dict[str, Any]:
    """A composed model as a preset: its choices become defaults, so that an override can swap them.

    They come after its values, so that what the file of a choice sets wins, as in conf/model/. What is at a place is
    swapped by its value, and stays as it is written.
    """
    preset = dict(model)
    defaults: list[Any] = []
    for axis in AXES:
        block = model.get(axis)
        if isinstance(block, dict) and isinstance(block.get("choice"), str):
            defaults.append({axis: block["choice"]})
            preset[axis] = {key: value for key, value in block.items() if key != "choice"}
    pattern = {"layers": pattern_text(model["layers"])} if "layers" in model else {}
    return {"defaults": ["_self_", *defaults], **preset, **pattern}


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The composed config as plain data. Raises ConfigError for what Hydra cannot compose."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    store_choices()
    with hydra_errors(), initialize_config_dir(str(presets.conf_dir()), version_base="1.3", job_name="archlab"):
        config = OmegaConf.to_container(hydra_compose("config", one_search_path(normalise(overrides))), resolve=True)
    return {str(key): value for key, value in config.items()}  # type: ignore[union-attr]


def store_choices() -> None:
    """Let Hydra know the choices of others, for which no YAML stands; one of the user's own comes first."""

    from hydra.core.config_store import ConfigStore

    load_installed()
    warnings.filterwarnings("ignore", message="(?s).*is validated against ConfigStore schema", category=UserWarning)
    for name in origins():
        axis, slash, chosen = name.partition("/")
        if slash:
            ConfigStore.instance().store(name=chosen, node={"choice": chosen}, group=f"model/{axis}")


if __name__ == "__main__":
    names = presets.names()
    presets.write({name: compose([f"model={name}"])["model"] for name in names}, [summary(name) for name in names])
