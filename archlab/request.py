"""What one run was asked for: the whole composed config, read and checked, as specs and options."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, unknown_key
from archlab.frozen import Frozen
from archlab.options import option, options_of, read_plain
from archlab.workload import BenchOptions, Workload


class RunOptions(Frozen):
    """What belongs to the run rather than to the model."""

    device: str = option("auto", "auto, cpu, cuda, cuda:0, mps")
    seed: int = option(0, "of the weights and of the tokens that are timed", ge=0)
    weights: str | None = option(None, "a safetensors file, a sharded index or a folder; null: random weights")
    objective: tuple[str, ...] = option(("params",), "figures that a sweeper which searches is told")
    verify: bool = option(
        True,
        "build the module on the meta device and compare it with the closed form",
        auto="true; false in a sweep that measures nothing",
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            valid = ("auto", "cpu", "cuda", "cuda:0", "mps")
            raise ConfigError("device", f"no device {self.device!r}", value=self.device, valid=valid)


class Request(Frozen):
    """A checked request. notes: what had to be dropped to compose it."""

    spec: DecoderSpec
    workload: Workload
    bench: BenchOptions
    run: RunOptions
    notes: list[str]

    def check_runs(self) -> None:
        """Raise ConfigError where the model can be costed, but the workload cannot be run on it."""
        self.workload.check(self.spec)


def read_request(config: Mapping[str, Any], typed: Collection[str] = ()) -> Request:
    """Read a composed config. typed: dotted keys that the user set. Raises ConfigError."""
    groups = {"model", "workload", "bench"}
    own = {key: value for key, value in config.items() if key not in groups and key != "hydra"}
    for key in own:
        if key not in options_of(RunOptions):
            raise unknown_key(key, [*groups, *options_of(RunOptions)])
    for group in groups & config.keys():
        if not isinstance(config[group], Mapping):
            raise ConfigError(group, f"{config[group]!r} is not a group of settings", value=config[group])
    if "model" not in config:
        raise ConfigError("model", "is required")
    resolved = resolve(config["model"], [key for key in typed if key.startswith("model.")])
    return Request(
        spec=resolved.spec,
        workload=read_plain(Workload, config.get("workload", {}), "workload"),
        bench=read_plain(BenchOptions, config.get("bench", {}), "bench"),
        run=read_plain(RunOptions, own, ""),
        notes=resolved.notes,
    )
