"""YAML of users, read as data; and a composed config as YAML, spelled as OmegaConf spells it.

It is written by libyaml where that is there, in a tenth of the time.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping
from typing import Any

WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false")
"""What YAML 1.1 reads as a truth."""


MOST_NODES = 100_000
"""Of a file with its aliases written out: 10,000 layers, each with its own settings."""


def read_yaml(text: str) -> Any:
    """The data of a file.

    Raises ValueError for what is no YAML, for too many values, for keys that are no text and for one given twice, for
    values that no setting has.
    """
    import yaml  # type: ignore[import-untyped]

    try:
        body = yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if _nodes(body, {}) > MOST_NODES:
        raise ValueError(f"its aliases stand for more than {MOST_NODES:,} values")
    return body


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: dict[str, Any] = {}
            for key, _ in node.value:  # before `<<` is merged, whose keys may be given again
                first = seen.setdefault(str(key.value), key)
                if first is not key:
                    lines = " and ".join(str(each.start_mark.line + 1) for each in (first, key))
                    raise ValueError(f"the key {key.value!r} is given twice, in lines {lines}")
            return super().construct_mapping(node, deep)

    return Loader


def _nodes(node: Any, known: dict[int, float]) -> float:
    """How many values a node holds, those of aliases each time; without end, where one holds itself."""
    if not isinstance(node, dict | list):
        if not isinstance(node, str | int | float | datetime.date | None):  # Hydra takes a date for the text that it is
            raise ValueError(f"{node!r} is no text, number, list or group of settings")
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        wrong = [key for key in node if not isinstance(key, str)] if isinstance(node, dict) else []
        if wrong:
            raise ValueError(f"the key {wrong[0]!r} is no name of a setting")
        children = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    return known[id(node)]


def yaml_text(config: Mapping[str, Any]) -> str:
    """The text of a config; reading it gives the same config."""
    import yaml

    return str(yaml.dump(config, Dumper=_dumper(), sort_keys=False, default_flow_style=False, allow_unicode=True))


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent_text)
    return Dumper


def _represent_text(dumper: Any, text: str) -> Any:
    """Text that OmegaConf would read as a number or as a truth is quoted."""
    style = "'" if text.lower() in WORDS or _is_number(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
