"""Errors that a user can act on: what is wrong, the value, the valid ones, the nearest spelling."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

EMPTY = "an empty text was given; give a value, or leave it out"
"""What is wrong with an option or a setting of no letter."""


class ArchlabError(Exception):
    """The run is not ok. The command line prints the message and exits with `exit_code`."""

    exit_code = 1

    def as_dict(self) -> dict[str, Any]:
        """The error as the JSON object that `--json` prints."""
        return {"type": type(self).__name__, "message": str(self)}


class RequestError(ArchlabError):
    """The request was wrong: nothing was run and nothing was written."""

    exit_code = 2

    def reworded(self, say: Callable[[str], str]) -> RequestError:
        """The same error with its words as `say` puts them."""
        return RequestError(say(str(self)))


class UnknownFlag(RequestError):
    """A flag that the command does not take where it stands. known: those of `archlab build`; own: the command's."""

    def __init__(self, flag: str, known: Iterable[str], own: Iterable[str] = ()) -> None:
        self.flag, self.known, self.own = flag, list(known), list(own)
        super().__init__(flag)

    def __str__(self) -> str:
        if self.flag in self.own:
            return f"{self.flag} stands after --, where no option is read"
        if self.flag in self.known:
            return f"no option {self.flag} here; archlab build has it"
        near = nearest(self.flag, [*self.known, *self.own])
        return f"no option {self.flag}" + (f"; did you mean {near}?" if near else "")

    def among(self, own: Iterable[str]) -> UnknownFlag:
        """The same error, with the command's own flags known too."""
        return UnknownFlag(self.flag, self.known, own)


class ConfigError(RequestError):
    """A setting that cannot be: `key` (dotted), its `value`, the `valid` ones and the `nearest` spelling."""

    def __init__(
        self,
        key: str,
        problem: str,
        *,
        value: Any = None,
        valid: Iterable[Any] | None = None,
        nearest: str | None = None,
    ) -> None:
        self.key, self.problem, self.value, self.nearest = key, problem, value, nearest
        self.valid = None if valid is None else list(valid)
        super().__init__(key, problem)

    def __str__(self) -> str:
        parts = [f"{self.key}: {self.problem}" if self.key else self.problem]
        if self.nearest is not None:
            parts.append(f"did you mean {self.nearest}?")
        if self.valid:
            parts.append("valid: " + ", ".join(str(v) for v in self.valid))
        return "; ".join(parts)

    def under(self, prefix: str) -> ConfigError:
        """The same error with `prefix` before its key: a spec names its option, its owner knows where it sits."""
        if not prefix:
            return self
        key = f"{prefix}.{self.key}" if self.key else prefix
        nearest = f"{prefix}.{self.nearest}" if self.nearest is not None and self.nearest_is_key else self.nearest
        return self._copy(key, self.problem, nearest)

    def _copy(self, key: str, problem: str, nearest: str | None) -> ConfigError:
        error = type(self)(key, problem, value=self.value, valid=self.valid, nearest=nearest)
        error.nearest_is_key = self.nearest_is_key
        return error

    def reworded(self, say: Callable[[str], str]) -> ConfigError:
        return self._copy(self.key, say(self.problem), self.nearest)

    nearest_is_key = False

    def as_dict(self) -> dict[str, Any]:
        fields = {"key": self.key, "value": self.value, "valid": self.valid, "nearest": self.nearest}
        return super().as_dict() | {name: value for name, value in fields.items() if value is not None}


class Unsaid(ConfigError):
    """A choice's spec leaves out what a figure is made of."""


def extra_needed(what: str, extra: str) -> RequestError:
    """The error for what an extra brings that is not installed."""
    return RequestError(f"{what} needs an extra that is not installed: pip install 'archlab[{extra}]'")


def check_whole(key: str, value: Any, least: int = 1) -> None:
    """Raise ConfigError for what is no whole number, or less than `least`; True is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(key, f"{value!r} is not a whole number of {least} or more", value=value)


def is_folder(path: Path, rights: int = os.X_OK) -> bool:
    """Whether a path is a folder. Raises RequestError for one that may not be read.

    rights: to reach what it holds by name; with `os.R_OK`, to list it.
    """
    found = path.is_dir()
    if found and not os.access(path, rights):
        raise RequestError(f"{path}: this folder may not be read")
    return found


def in_short(error: BaseException, most: int = 200) -> str:
    """What an error that is not archlab's own says, with its type, in one line."""
    said = str(error).partition("\nException raised from")[0]  # where in torch's own code
    text = " ".join(f"{type(error).__name__}: {said}".split()).removesuffix(":")
    return shortened(text, most)


def shortened(text: str, most: int = 200) -> str:
    """A text that a message holds, with its end left out where it is longer than `most`."""
    return text if len(text) <= most else text[: most - 3] + "..."


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Turn what is raised, and is no error of archlab's own, into one message that begins so. Raises RequestError."""
    try:
        yield
    except ArchlabError:
        raise
    except Exception as error:
        raise RequestError(f"{what}: {in_short(error)}") from error


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known spelling closest to `word`, or None where nothing is close: cutoff 1 is the word itself."""
    import difflib  # for a mistake only

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def unknown_key(key: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that no schema has, with the nearest one."""
    names = sorted(known)
    error = ConfigError(key, "no such setting", valid=names, nearest=nearest(key, names))
    error.nearest_is_key = True
    return error
