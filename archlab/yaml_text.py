"""A composed config as YAML, spelled as OmegaConf spells it; by libyaml where that is there, in a tenth of the time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false")
"""What YAML 1.1 reads as a truth."""


def yaml_text(config: Mapping[str, Any]) -> str:
    """The text of a config; reading it gives the same config."""
    import yaml  # type: ignore[import-untyped]

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
