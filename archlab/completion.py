"""Shell completion of presets, groups, choices and keys, from the folder names of `conf/` and the registry."""

from __future__ import annotations

import os
from collections.abc import Iterator

BUILD_HELP = (
    "model=PRESET picks a preset (archlab models), model/AXIS=CHOICE another choice (archlab components), "
    "model.AXIS.OPTION=VALUE sets an option; so do bench=none|quick|full, workload.batch=8, device=cpu, seed=1. "
    "-m sweeps over comma-separated values. Hydra's own flags work: --cfg job, --info, --config-dir DIR."
)


def complete_model(incomplete: str) -> list[str]:
    """Presets that begin so."""
    from archlab import presets

    return [name for name in presets.names() if name.startswith(incomplete)]


def complete_axis(incomplete: str) -> list[str]:
    """Axes that begin so."""
    from archlab.registry import axes

    return [axis for axis in axes() if axis.startswith(incomplete)]


def complete_subject(incomplete: str) -> list[str]:
    """Axes, choices and figures that begin so."""
    from archlab.subjects import names

    return [name for name in names() if name.startswith(incomplete)]


def complete_experiment(incomplete: str) -> list[str]:
    """Experiments of `archlab lab` that begin so."""
    from archlab.lab.catalog import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


def complete_hardware(incomplete: str) -> list[str]:
    """Devices that begin so."""
    from archlab.hardware import AUTO, names

    return [name for name in (AUTO, *names()) if name.startswith(incomplete)]


def complete_override(incomplete: str) -> list[str]:
    """Overrides that begin so: a group with its choices, or a key up to its `=`."""
    before = _before_equals()
    if before is None:
        return _typed_on([word for word in sorted(_words()) if word.startswith(incomplete)])
    whole = before + incomplete.removeprefix("=")
    return [_Rest(word.removeprefix(before)) for word in sorted(_words()) if word.startswith(whole) and word != before]


def complete_model_or_override(incomplete: str) -> list[str]:
    """What may follow `compare`: presets, and overrides of the one before."""
    found = [] if _before_equals() is not None else complete_model(incomplete)
    return [*found, *complete_override(incomplete)]


def complete_budget(incomplete: str) -> list[str]:
    """What may follow `size MODEL`: settings of the budget, and overrides."""
    from archlab.budget import Budget
    from archlab.options import options_of
    from archlab.overrides import BUDGET_WORDS

    if _before_equals() is not None:
        return complete_override(incomplete)
    words = (f"{name}=" for name in (*BUDGET_WORDS, *options_of(Budget)))
    return [*(word for word in words if word.startswith(incomplete)), *complete_override(incomplete)]


class _Rest(str):
    """What comes after `key=`. Typer keeps only what begins with the word that bash passed: after `key=`, a `=`."""

    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        return True


def _in_bash() -> bool:
    return os.environ.get("_ARCHLAB_COMPLETE") == "complete_bash"


def _before_equals() -> str | None:
    """`key=` where bash, to which `=` ends a word, asks for what comes after it; None for a word that is whole."""
    words = os.environ.get("COMP_WORDS", "").split("\n")[: int(os.environ.get("COMP_CWORD", "0")) + 1]
    if not _in_bash() or "=" not in words[-2:]:
        return None
    return "".join(words[-2:] if words[-1] == "=" else words[-3:-1])


def _typed_on(found: list[str]) -> list[str]:
    """bash puts a blank after the only completion; beside a second one it waits for the value after the `=`."""
    return [*found, f"{found[0]}VALUE"] if _in_bash() and len(found) == 1 and found[0].endswith("=") else found


def _words() -> Iterator[str]:
    from archlab import presets
    from archlab.decoder.resolve import ModelOptions
    from archlab.frozen import fields_of
    from archlab.hardware import Hardware
    from archlab.options import options_of
    from archlab.registry import axes, choices, part_choices
    from archlab.request import GROUPS, RunOptions

    for group, kind in GROUPS.items():
        yield from (f"{group}.{name}=" for name in options_of(kind))
        yield from (f"{group}={file.stem}" for file in (presets.conf_dir() / group).glob("*.yaml"))
    yield from (f"hardware={file.stem}" for file in (presets.conf_dir() / "hardware").glob("*.yaml"))
    yield from (f"hardware.{name}=" for name in fields_of(Hardware))
    yield from (f"model={name}" for name in presets.names())
    yield from (f"{name}=" for name in options_of(RunOptions))
    yield from (f"model.{name}=" for name in options_of(ModelOptions))
    for axis in axes():
        yield from (f"model/{axis}={name}" for name in choices(axis))
        options = {name: opt for choice in choices(axis).values() for name, opt in choice.options.items()}
        yield from (f"model.{axis}.{name}=" for name, opt in options.items() if opt.part is None)
        for name, opt in options.items():
            below = {key for choice in part_choices(opt).values() for key in ("choice", *choice.options)}
            yield from (f"model.{axis}.{name}.{key}=" for key in below)
