"""Shell completion of presets, groups, choices and keys, from the folder names of `conf/` and the registry."""

from __future__ import annotations

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
    from archlab.registry import AXES

    return [axis for axis in AXES if axis.startswith(incomplete)]


def complete_override(incomplete: str) -> list[str]:
    """Overrides that begin so: a group with its choices, or a key up to its `=`."""
    return sorted(word for word in _words() if word.startswith(incomplete))


def _words() -> Iterator[str]:
    from archlab import presets
    from archlab.decoder.resolve import ModelOptions
    from archlab.options import options_of
    from archlab.registry import AXES, choices, part_choices
    from archlab.request import RunOptions
    from archlab.workload import BenchOptions, Workload

    for group in ("workload", "bench"):
        yield from (f"{group}={file.stem}" for file in (presets.conf_dir() / group).glob("*.yaml"))
    yield from (f"model={name}" for name in presets.names())
    yield from (f"{name}=" for name in options_of(RunOptions))
    yield from (f"workload.{name}=" for name in options_of(Workload))
    yield from (f"bench.{name}=" for name in options_of(BenchOptions))
    yield from (f"model.{name}=" for name in options_of(ModelOptions))
    for axis in AXES:
        yield from (f"model/{axis}={name}" for name in choices(axis))
        options = {name: opt for choice in choices(axis).values() for name, opt in choice.options.items()}
        yield from (f"model.{axis}.{name}=" for name, opt in options.items() if opt.part is None)
        for name, opt in options.items():
            below = {key for choice in part_choices(opt).values() for key in ("choice", *choice.options)}
            yield from (f"model.{axis}.{name}.{key}=" for key in below)
