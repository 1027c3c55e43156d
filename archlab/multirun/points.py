"""The points of a sweep, composed: through Hydra once for each set of choices, then value by value.

What comes out is what Hydra makes of the same overrides; wherever that is not plain to see, Hydra is asked.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archlab.frozen import Frozen
from archlab.options import options_of
from archlab.request import RunOptions

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

Config = dict[str, Any]

_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
REMEMBERED = 2**10


class Unlike(Exception):
    """A change whose outcome only OmegaConf knows."""


class Setting(Frozen):
    """An override that sets a plain value."""

    path: tuple[str, ...]
    value: Any


class Composed(Frozen):
    """What Hydra composed. plain: no part of it depends on where or when it is read. choices: by group."""

    config: Config
    plain: bool
    choices: dict[str, Any]


@functools.lru_cache(REMEMBERED)
def read(override: str) -> Setting | str | None:
    """An override as a plain value, as the group whose choice it names, or None for one that is neither."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(override)
    key, value = parsed.key_or_group, parsed.value()
    if parsed.is_delete() or parsed.package is not None or not _is_plain(value):
        return None
    if "." in key and parsed.is_force_add() and _KEY.fullmatch(key):
        return Setting(tuple(key.split(".")), value)
    if key in options_of(RunOptions) and not parsed.is_add() and not isinstance(value, dict):
        return Setting((key,), value)
    is_choice = isinstance(value, str) and "." not in key and not parsed.is_force_add()
    return key if is_choice else None


def _is_plain(value: Any) -> bool:
    """Whether OmegaConf takes a value as it stands: no interpolation, nothing that is still missing."""
    if isinstance(value, str):
        return "${" not in value and value != "???"
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return all(map(_is_plain, value)) if isinstance(value, list) else True


def put(block: Mapping[str, Any], path: Sequence[str], value: Any) -> Config:
    """The block with a value at the path, as OmegaConf's forced update puts it. Raises Unlike."""
    name, below = path[0], path[1:]
    held = block.get(name)
    if below:
        if isinstance(held, list) or held == "???":
            raise Unlike
        return {**block, name: put(held if isinstance(held, Mapping) else {}, below, value)}
    return {**block, name: _merged(held, value)}


def _merged(held: Any, value: Any) -> Any:
    """What stands where a value meets what was there: blocks are merged, all else is replaced."""
    if isinstance(held, Mapping | list) and isinstance(value, Mapping | list) and type(held) is not type(value):
        raise Unlike
    if not isinstance(held, Mapping) or not isinstance(value, Mapping):
        return value
    merged = dict(held)
    for name, item in value.items():
        merged[name] = _merged(held.get(name), item)
    return merged


class Composer:
    """Composes points for one sweep."""

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader, self._master = loader, master
        self._composed = functools.lru_cache(REMEMBERED)(self._compose)
        self._swap = functools.lru_cache(REMEMBERED)(self._find_swap)

    def point(self, overrides: Sequence[str]) -> Composed:
        """The config of a point. Raises what Hydra raises where there is none."""
        settings = [read(override) for override in overrides]
        choices = tuple(text for text, setting in zip(overrides, settings, strict=True) if isinstance(setting, str))
        if None in settings:
            return self._composed(tuple(overrides))
        try:
            made = self._chosen(choices)
            if not made.plain:
                return self._composed(tuple(overrides))
            config = made.config
            for setting in settings:
                if isinstance(setting, Setting):
                    config = put(config, setting.path, setting.value)
        except Unlike:
            return self._composed(tuple(overrides))
        return Composed(config, True, made.choices)

    def _chosen(self, choices: tuple[str, ...]) -> Composed:
        """The config of some choices. Axes that change nothing but their choice are composed one at a time."""
        swaps = [choice for choice in choices if choice.startswith("model/")]
        others = tuple(choice for choice in choices if choice not in swaps)
        axes = [str(read(swap)) for swap in swaps]
        if len(swaps) < 2 or len(set(axes)) < len(axes):
            return self._composed(choices)
        base = self._composed(others)
        config, named = base.config, dict(base.choices)
        for axis, swap in zip(axes, swaps, strict=True):
            chosen = self._swap(others, axis, swap)
            if chosen is None:
                return self._composed(choices)
            config = put(config, (*axis.split("/"), "choice"), chosen)
        return Composed(config, base.plain, named)

    def _find_swap(self, others: tuple[str, ...], axis: str, swap: str) -> str | None:
        """The choice that a swap puts into the axis's block, None where it changes anything else."""
        base, swapped = self._composed(others), self._composed((*others, swap))
        group, _, name = axis.partition("/")
        block = (swapped.config.get(group) or {}).get(name)
        chosen = block.get("choice") if isinstance(block, Mapping) else None
        if not isinstance(chosen, str) or axis not in base.choices:
            return None
        expected = put(base.config, (group, name, "choice"), chosen)
        same = json.dumps(expected, default=str) == json.dumps(swapped.config, default=str)
        return chosen if same and {**base.choices, axis: swapped.choices[axis]} == swapped.choices else None

    def _compose(self, overrides: tuple[str, ...]) -> Composed:
        from omegaconf import OmegaConf, open_dict

        config = self._loader.load_sweep_config(self._master, list(overrides))
        choices: Any = OmegaConf.to_container(config.hydra.runtime.choices)
        with open_dict(config):
            del config["hydra"]
        raw: Any = OmegaConf.to_container(config, resolve=False)
        return Composed(raw, _is_plain(raw), choices)
