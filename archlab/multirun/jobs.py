"""A job of Hydra's: its overrides, the folder among them, and whether anything of Hydra's own is asked for at each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from archlab.overrides import of_task
from archlab.quotes import quoted

SUBDIR = "hydra.sweep.subdir="
NUMBER = "${hydra.job.num}"


def is_plain(config: DictConfig) -> bool:
    """Whether nothing of Hydra's own is asked for at each point: folders, callbacks, logs, variables."""
    hydra = config.hydra
    logs = hydra.runtime.choices.get("hydra/job_logging")
    extras = (hydra.job.chdir, hydra.output_subdir, hydra.job.env_set, set(hydra.callbacks) - {"folder"})
    return subdir(config) == NUMBER and logs == "stderr" and not any(extras)


def subdir(config: DictConfig) -> Any:
    """The pattern of the points' folders, as it is written."""
    raw: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    return raw["subdir"]


def with_subdir(overrides: Sequence[str], folder: str, number: int) -> list[str]:
    """A job's overrides, and its folder where that is not the number that the launcher gives it."""
    return [*overrides, *([] if folder == str(number) else [f"{SUBDIR}{quoted(folder)}"])]


def without_subdir(overrides: Sequence[str]) -> tuple[list[str], str | None]:
    """A job's overrides without the folder that the sweeper gave it, and that folder."""
    if not overrides or not overrides[-1].startswith(SUBDIR):
        return list(overrides), None
    return list(overrides[:-1]), str(OverridesParser.create().parse_override(overrides[-1]).value())


def shown(overrides: Sequence[str]) -> list[str]:
    """The overrides as records keep them."""
    parsed = OverridesParser.create()
    own = (
        text
        for text in overrides
        if not text.startswith("hydra") or not parsed.parse_override(text).is_hydra_override()
    )
    return of_task(own)
