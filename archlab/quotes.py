"""Text in the quotes of an override, and back: what a shell leaves of `'model="one, two"'`."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPED = re.compile(rf"({_QUOTED.pattern}|\$\{{[^}}]+\}})|\\([\\()\[\]{{}}:=, \t])", re.DOTALL)
"""What Hydra's grammar takes as it stands, text in quotes and interpolations, or what comes after a backslash."""


def is_unicode(text: str) -> bool:
    """Whether a word of the command line was read as text; bytes that are none stand in it as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def quoted(text: str) -> str:
    """Text as a value that Hydra's parser reads back as it is."""
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"


def unescaped(text: str) -> str:
    """An override without the backslashes that Hydra puts before what its grammar reads otherwise: `$\\{seed\\}`.

    In quotes and in interpolations a backslash is one.
    """
    return _ESCAPED.sub(lambda found: found[1] or found[2], text)


def unquoted(value: str) -> str:
    """The text of a value, in quotes or not, as Hydra reads it.

    In quotes a backslash counts as one unless a quote comes after it, or the end.
    """
    if not _QUOTED.fullmatch(value):
        return unescaped(value)
    mark = value[0]
    return re.sub(rf"(\\+)({mark}|$)", lambda found: "\\" * (len(found[1]) // 2) + found[2], value[1:-1])
