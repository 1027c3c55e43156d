"""Options from a constructor: what of a class's arguments is an option, and of which kind.

Keyword-only arguments are options, their annotations the types, their defaults the defaults:
`alpha: Annotated[float, "slope before training"] = 0.5`. Without a text the class's docstring is looked through for
`alpha: slope before training.`
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

from archlab.errors import ConfigError, in_short
from archlab.frozen import MISSING, Field
from archlab.options import option

PLAIN = (int, float, bool, str, type(None))
TYPES = "int, float, bool, str, tuple[int, ...], tuple[float, ...], Literal[..], each also with | None"

Options = Mapping[str, tuple[Any, Field]]
"""By name: the type and the field of a spec."""


def options_from(kind: type, offered: Collection[str]) -> Options:
    """The options of a class. offered: what its constructor may ask for beside them. Raises ConfigError."""
    hints = _hints(kind)
    found = {}
    for name, asked in inspect.signature(kind).parameters.items():
        if asked.kind in (asked.VAR_POSITIONAL, asked.VAR_KEYWORD) or name in offered:
            continue
        if asked.kind is not asked.KEYWORD_ONLY:
            problem = f"{kind.__name__} asks for {name!r}, which nothing offers; options stand after a *, as keywords"
            raise ConfigError("", problem, valid=sorted(offered))
        found[name] = _option(kind, name, hints.get(name), asked.default)
    return found


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind.__init__, include_extras=True)
    except Exception as error:
        raise ConfigError("", f"the annotations of {kind.__name__} cannot be read: {in_short(error)}") from error


def _option(kind: type, name: str, hint: Any, default: Any) -> tuple[Any, Field]:
    given = MISSING if default is inspect.Parameter.empty else default
    hint, said = _taken_apart(type(given) if hint is None and given is not MISSING else hint)
    members = [inner for member in _members(hint) for inner in _literal(member)]
    valid = [
        value for member in _members(hint) if typing.get_origin(member) is typing.Literal for value in _args(member)
    ]
    if not members or not all(_is_plain(member) for member in members):
        raise ConfigError(
            "", f"{kind.__name__}: {name} is annotated {hint}, which is no type of options; valid: {TYPES}"
        )
    texts = [text for text in said if isinstance(text, str)]
    about = texts[0] if texts else _from_doc(kind.__doc__ or "", name)
    made: Field = option(given, about, valid=valid or None)
    for more in said:
        if isinstance(more, Field):
            told = {key: value for key, value in more.metadata.items() if value not in (None, "", ())}
            made = Field(given, None, {**made.metadata, **told})
    return functools.reduce(operator.or_, members), made


def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and what `Annotated` says of it."""
    return (hint.__origin__, hint.__metadata__) if hasattr(hint, "__metadata__") else (hint, ())


def _members(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _args(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint)


def _literal(hint: Any) -> list[Any]:
    """The types behind a Literal; any other as it is."""
    return list(dict.fromkeys(map(type, _args(hint)))) if typing.get_origin(hint) is typing.Literal else [hint]


def _is_plain(hint: Any) -> bool:
    return hint in PLAIN or (typing.get_origin(hint) is tuple and _args(hint) in ((int, ...), (float, ...)))


def _from_doc(doc: str, name: str) -> str:
    """`slope before training`, of a docstring that has `alpha: slope before training.`"""
    found = re.search(rf"\b{name}: ([^.\n]+)", doc)
    return found[1].strip() if found else ""
