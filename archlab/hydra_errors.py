"""What Hydra, OmegaConf and YAML raise, as one clear message with the valid values and the nearest spelling."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from archlab import presets
from archlab.errors import ArchlabError, ConfigError, RequestError, extra_needed, nearest
from archlab.registry import axes, choices, is_axis
from archlab.request import GROUPS


@contextlib.contextmanager
def hydra_errors() -> Iterator[None]:
    """Turn what Hydra, OmegaConf and YAML raise into one clear message, and what Hydra only warns of too."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", _NO_FOLDER, UserWarning)
            yield
    except ArchlabError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


_NO_FOLDER = r"provider=.*, path=(.*) is not available"


def translate(error: Exception) -> RequestError | None:
    """The request error behind an exception of Hydra, OmegaConf or YAML; None for any other."""
    module = type(error).__module__.split(".")[0]
    unresolved = _unresolved(error) if module == "omegaconf" else None
    if unresolved is not None:
        return unresolved
    folder = re.match(_NO_FOLDER, str(error)) if isinstance(error, UserWarning) else None
    if folder is not None:
        return ConfigError("hydra.searchpath", f"there is no folder {folder[1]}", value=folder[1])
    missing = getattr(error, "missing_cfg_file", None)
    if missing is not None:
        return _missing_choice(str(missing), getattr(error, "options", None) or [], _of_file(error))
    cause = error.__cause__ if module == "hydra" else None
    if isinstance(cause, RequestError):  # of a plugin of ours, which Hydra makes
        return cause
    if module == "hydra" and cause is not None and type(cause).__module__.split(".")[0] in ("omegaconf", "yaml"):
        return translate_text(error, cause)
    if module in _HYDRAS or (isinstance(error, _SLIPS) and _raised_in(error) in _HYDRAS):
        return translate_text(error, None)
    return None


_HYDRAS = ("hydra", "omegaconf", "yaml", "antlr4")
_SLIPS = (ValueError, TypeError, AttributeError, LookupError, AssertionError, RecursionError)
"""What Hydra lets through for an input that it did not expect."""


def _raised_in(error: BaseException) -> str:
    """The package that raised an error; what it had the standard library do for it counts as its own."""
    from traceback import walk_tb

    frames = [frame.f_globals.get("__name__", "").split(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    return next((name for name in reversed(frames) if name not in sys.stdlib_module_names), "")


EXTRAS = {
    "hydra/launcher/joblib": "joblib", "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/submitit_slurm": "slurm", "hydra/launcher/ray": "ray",
}  # fmt: skip
"""What Hydra knows only once an extra of archlab is installed."""


def _unresolved(error: Any) -> ConfigError | None:
    """The error of an interpolation that leads nowhere, with its key and how it is written; None for any other."""
    from omegaconf.errors import InterpolationResolutionError

    if not isinstance(error, InterpolationResolutionError) or error.full_key is None:
        return None
    written = str(error.child_node)
    return ConfigError(error.full_key, f"{written} cannot be resolved: {_one_line(error)}", value=written)


def _of_file(error: Exception) -> str:
    """In the defaults of which of its files Hydra found what is wrong, as the end of a problem; none of its own."""
    found = re.match(r"In '([^']+)'", str(error))
    return f" (in the defaults of {found[1]}.yaml)" if found and found[1] != "config" else ""


def _groups() -> list[str]:
    return ["model", *(f"model/{axis}" for axis in axes()), *GROUPS, "hardware", "cluster", "experiment"]


def _no_setting(key: str, known: Sequence[str], where: str) -> ConfigError:
    return ConfigError(key, f"no such setting or group{where}", valid=known, nearest=nearest(key, known))


def _missing_choice(missing: str, options: Sequence[str], where: str) -> RequestError:
    """where: the file, told of an unknown axis alone; of a choice Hydra names the file that chose there first."""
    group, _, name = missing.rpartition("/")
    if missing in EXTRAS:
        return extra_needed(missing.replace("launcher/", "launcher="), EXTRAS[missing])
    if not options and group and group not in _groups() and not group.startswith("hydra"):
        return _no_setting(group, _groups(), where)
    if not options:  # Hydra lists none where a preset's own defaults name it
        axis = group.removeprefix("model/")
        options = presets.names() if group == "model" else list(choices(axis)) if is_axis(axis) else []
    near = nearest(name, options)
    if not group:
        return ConfigError("--config-name", f"no config {name!r}", value=name)
    return ConfigError(
        group,
        f"no {'preset' if group == 'model' else 'choice'} {name!r}",
        value=name,
        valid=sorted(options),
        nearest=f"{group}={near}" if near else None,
    )


def translate_text(error: Exception, cause: BaseException | None) -> RequestError:
    """Hydra's message in one line, with the nearest setting where it names one that is not there."""
    key = re.search(r"Could not override '([^']+)'", str(error))
    if key:
        return _no_setting(key[1], [*_groups(), "device", "seed", "verify"], _of_file(error))
    text = _one_line(error) or type(error).__name__
    return RequestError(text if cause is None else f"{text} ({_one_line(cause)})")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).replace("++", "").split())
    return re.sub(r"\s*(full_key|object_type|reference_type)[:=] ?\S*", "", text)
