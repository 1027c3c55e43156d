"""The command line's overrides, before Hydra sees them: sort, check the keys, let the specs be the schema.

Hydra's own check knows only the keys that some YAML happens to list. Here the spec classes are the schema, so a value
override is handed over in the form that always applies (`++key=value`), after its key was checked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab import hardware, presets
from archlab.budget import Budget
from archlab.decoder.resolve import ModelOptions
from archlab.errors import EMPTY, ConfigError, RequestError, UnknownFlag, is_folder, nearest, shortened, unknown_key
from archlab.options import Option, options_of
from archlab.quotes import is_unicode, quoted
from archlab.registry import AXES, Choice, axes, choices, is_axis, part_choices
from archlab.request import GROUPS, RunOptions

HYDRA_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
"""Settings of Hydra's where an empty text would be the folder one is in."""

FLAGS = {
    "--multirun": False, "-m": False, "--run": False, "-r": False, "--resolve": False, "--hydra-help": False,
    "--cfg": True, "-c": True, "--info": False, "-i": False, "--package": True, "-p": True,
    "--config-dir": True, "-cd": True, "--config-name": True, "-cn": True, "--config-path": True, "-cp": True,
}  # fmt: skip
"""Hydra's flags, and whether a value has to follow."""

KNOWN = (*FLAGS, "--json", "--debug", "--help")
"""Flags that every command has, or hands to Hydra."""

CONFIG_DIR = ("--config-dir", "-cd")
"""A folder of the user's own that is searched first; of one that may not be read Hydra would say nothing."""

CFG = ("job", "hydra", "all")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
WORDS = {"--cfg": CFG, "-c": CFG, "--info": INFO, "-i": INFO}
"""The values of a flag that has only these. `--info` needs none."""

SHOWS = ("--cfg", "-c", "--info", "-i", "--hydra-help")
"""Flags that make Hydra print something of its own and run nothing."""

_PLAIN_CHOICE = re.compile(r"(?P<key>[+~]?[A-Za-z_][\w/]*)=(?P<name>[\w.\- ]+)")
_VALUE = re.compile(r"^(?P<mode>\+\+|\+|~)?(?P<key>[^\s=/~+][^\s=/]*)(?P<rest>=.*)?$", re.DOTALL)


_PLACED = re.compile(r"\+{0,2}model/(?P<axis>\w+)=(?P<names>.*)", re.DOTALL)
"""What is chosen at a place. No preset has it among its defaults, so that it is put there by value."""

_CHOSEN = re.compile(r"model\.(\w+)\.choice=")
"""The same as Hydra is given it."""


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags with their values, and overrides: Hydra 1.3 takes overrides on one side of its flags only."""
    flags, overrides, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(word)
            continue
        flag, joined, value = word.partition("=")
        if flag not in FLAGS:
            raise UnknownFlag(flag, KNOWN)
        flags += _flag(flag, value if joined else None, rest)
    return flags, overrides


def _flag(flag: str, value: str | None, rest: list[str]) -> list[str]:
    """A flag as Hydra is to have it, with its value, taken from `rest` where it is not joined by `=`."""
    words = WORDS.get(flag)
    if value is None and words is INFO:
        value = rest.pop(0) if rest and rest[0] in INFO else INFO[0]
    elif value is None and FLAGS[flag]:
        if not rest or rest[0].startswith("-"):
            raise RequestError(f"{flag} needs a value" + (f"; valid: {', '.join(words)}" if words else ""))
        value = rest.pop(0)
    elif value is not None and words is None and not FLAGS[flag]:
        raise RequestError(f"{flag} has no value, but {value!r} was given")
    if words is not None and value not in words:
        raise ConfigError(flag, f"{value!r} is not one of its values", value=value, valid=words)
    if value is None:
        return [flag]
    if flag in CONFIG_DIR:
        is_folder(Path(value))
    return [f"{flag}={value}"] if words is not None else [flag, value]


def shown_by_hydra(arguments: Sequence[str]) -> str | None:
    """The flag, if any, that makes Hydra print something of its own instead of a run. Raises RequestError."""
    flags, _ = split(arguments)
    return next((name for name in (flag.partition("=")[0] for flag in flags) if name in SHOWS), None)


BUDGET_WORDS = {"kv": "kv_bytes_per_token", "flops": "flops_per_token"}
"""Budgets that `archlab size` calls in short."""


def split_budget(words: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """The settings of a budget written without `budget.`, and the overrides among them. Raises ConfigError."""
    settings: dict[str, Any] = {}
    overrides = []
    for word in words:
        key, joined, value = word.partition("=")
        key = key.removeprefix("budget.")
        name = BUDGET_WORDS.get(key, key)
        if not joined or "." in key or "/" in key or key in options_of(RunOptions):
            overrides.append(word)
            continue
        if name not in options_of(Budget):
            raise unknown_key(key, [*BUDGET_WORDS, *options_of(Budget)])
        if name in settings:
            raise ConfigError(key, "is given twice", value=value)
        settings[name] = int(value) if name == "multiple" and re.fullmatch(r"[+-]?\d{1,18}", value) else value
    return settings, overrides


def of_task(overrides: Iterable[str]) -> list[str]:
    """The overrides as a record keeps them: without the force that `normalise` gave them, and without a cluster."""
    plain = (text.removeprefix("++") for text in overrides if not text.startswith("cluster="))
    return [_CHOSEN.sub(r"model/\1=", text, count=1) if _CHOSEN.match(text) else text for text in plain]


def typed_keys(overrides: Iterable[str]) -> set[str]:
    """The dotted keys that were set, choices of groups left out: `model.attention.n_heads`, `seed`."""
    found = set()
    for override in overrides:
        match = _VALUE.match(override)
        if match and match["rest"] is not None and match["mode"] != "~":
            found.add(match["key"])
    return found


def normalise(overrides: Iterable[str]) -> list[str]:
    """The overrides as Hydra is to have them. Raises RequestError for what is none, ConfigError for an unknown key."""
    return [_normalise(override) for override in overrides]


SEARCH_PATH = "hydra.searchpath="


def one_search_path(overrides: Sequence[str]) -> list[str]:
    """The overrides with all lists of folders to search as one: of several Hydra takes one alone."""
    lists = [text.removeprefix(SEARCH_PATH) for text in overrides if text.startswith(f"{SEARCH_PATH}[")]
    if len(lists) < 2:
        return list(overrides)
    folders = ",".join(filter(None, (text.strip()[1:-1] for text in lists)))
    return [*(text for text in overrides if not text.startswith(f"{SEARCH_PATH}[")), f"{SEARCH_PATH}[{folders}]"]


def _normalise(override: str) -> str:
    if not is_unicode(override) and not override.startswith("hydra."):  # a folder may have any name
        raise RequestError(f"{_shown(override)} is no text in UTF-8; in a locale such as C only ASCII is read")
    override = _with_quotes(override)
    placed = _PLACED.fullmatch(override)
    if placed and placed["axis"] not in AXES and is_axis(placed["axis"]):
        return _parse(f"++model.{placed['axis']}.choice={placed['names']}")[0]
    if override.startswith("-"):
        raise UnknownFlag(override.partition("=")[0], KNOWN)
    checked = _checked_key(override)  # first, for it needs no Hydra
    read, parsed = _parse(override)
    if not parsed.key_or_group:
        raise RequestError(f"{_shown(override)} names no setting")
    _check_text(parsed)
    _check_keys(parsed)
    _check_searched(parsed)
    _check_group(parsed, "=" in override)
    return checked if read == override else read


def _check_text(parsed: Any) -> None:
    """Raise ConfigError for an empty text, alone or swept: some take it for nothing, some for the folder one is in.

    Of Hydra's own settings most may be empty.
    """
    key, value = parsed.key_or_group, parsed.value()
    if parsed.is_delete() or (key.startswith("hydra.") and key not in HYDRA_FOLDERS):
        return
    for each in getattr(value, "list", [value]):
        text = getattr(each, "text", each)  # in quotes, where it is swept
        if isinstance(text, str) and not text.strip():
            raise ConfigError(key, EMPTY, value=text)


def _check_keys(parsed: Any) -> None:
    """Raise ConfigError where a block in the value, however deep, gives a key twice: Hydra would keep the last one."""
    if "{" not in parsed.input_line:
        return
    from antlr4 import CommonTokenStream, InputStream  # type: ignore[import-untyped]
    from antlr4.tree.Trees import Trees  # type: ignore[import-untyped]
    from hydra.grammar.gen.OverrideLexer import OverrideLexer
    from hydra.grammar.gen.OverrideParser import OverrideParser

    tree = OverrideParser(CommonTokenStream(OverrideLexer(InputStream(parsed.input_line)))).override()
    for block in Trees.descendants(tree):
        if isinstance(block, OverrideParser.DictContainerContext):
            keys = [pair.dictKey().getText().strip() for pair in block.dictKeyValuePair()]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise ConfigError(parsed.key_or_group, f"the key {twice!r} is given twice", value=twice)


def _check_searched(parsed: Any) -> None:
    """Raise RequestError for a folder to search that may not be read."""
    folders = parsed.value() if parsed.input_line.startswith(SEARCH_PATH) else None
    for folder in folders if isinstance(folders, list) else ():
        is_folder(Path(str(folder).removeprefix("file://")))


def _with_quotes(override: str) -> str:
    """The constraints of a sweep in the quotes that Hydra wants around a comparison, and that a shell takes off."""
    key, _, value = override.partition("=")
    if key != "constraints" or not re.search("[<>]", value) or re.search("['\"$]", value):
        return override
    inner = value.strip().removeprefix("[").removesuffix("]")
    return f"{key}=[{','.join(quoted(item.strip()) for item in inner.split(','))}]"


def _parse(override: str) -> tuple[str, Any]:
    """Hydra's reading of an override. The name of a choice that Hydra reads in quotes only is put in quotes."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    try:
        parsed = OverridesParser.create().parse_override(override)
        parsed.value()  # its functions (`int`, `range`) are called here
        return override, parsed
    except Exception as error:
        choice = _PLAIN_CHOICE.fullmatch(override)
        if choice and "'" not in override and _is_group(choice["key"].lstrip("+~")):
            quoted = f"{choice['key']}='{choice['name']}'"
            with contextlib.suppress(Exception):
                return quoted, OverridesParser.create().parse_override(quoted)
        raise RequestError(
            f"{_shown(override)} cannot be read as an override: {_why(error)}; "
            "put quotes around a value that is no plain word, and quotes of the shell around both: 'key=\"a value\"'"
        ) from None


def _why(error: Exception) -> str:
    """What Hydra's parser says, in one line without its pointer to the manual."""
    text = " ".join(re.sub(r"See https?://\S+( for details)?", "", str(error)).split())
    text = re.sub(r"^Error parsing override '.*?' (?=\S)", "", text)
    return shortened(text) if text else type(error).__name__


def _shown(override: str) -> str:
    return shortened(override if override.isprintable() and override.strip() else repr(override))


def _is_group(key: str) -> bool:
    return "/" in key or (not key.startswith(".") and (presets.conf_dir() / key).is_dir())


def _check_group(parsed: Any, has_value: bool) -> None:
    """Refuse what Hydra has no message for: a group that is set to anything but the name of a choice."""
    key = parsed.key_or_group
    if key.startswith("hardware/") or (key == "hardware" and "/" in parsed.input_line):
        problem = "a file of your own is a choice by its name: --config-dir DIR with DIR/hardware/NAME.yaml"
        raise ConfigError("hardware", problem, value=parsed.input_line)
    if parsed.is_delete() and key in ("model", "hydra"):
        raise ConfigError(key, "cannot be left out")
    if not _is_group(key) or not has_value:
        return
    from hydra.core.override_parser.types import ChoiceSweep, Glob, QuotedString

    value = parsed.value()
    words = value.list if isinstance(value, ChoiceSweep) else [value]
    if key.startswith("hydra/") and isinstance(value, list):
        words = value
    for word in words:
        if not isinstance(word, str | QuotedString | Glob):
            text = shortened(parsed.input_line.partition("=")[2])
            quotes = f"; as a name it goes in quotes, '{key}=\"{word}\"'" if isinstance(word, int | float) else ""
            problem = f"{text} is no name of a choice{quotes}"
            raise ConfigError(key, problem, value=text, valid=_group_choices(key))


def _group_choices(key: str) -> list[str] | None:
    """What may be chosen in a group; None where it is not known here."""
    axis = key.removeprefix("model/")
    if key == "model":
        return presets.names()
    if axis != key and is_axis(axis):
        return list(choices(axis))
    return None if "/" in key else sorted(file.stem for file in (presets.conf_dir() / key).glob("*.yaml")) or None


def _checked_key(override: str) -> str:
    match = _VALUE.match(override)
    if match is None or match["rest"] is None or match["key"].split(".")[0] == "hydra":
        return override
    key, rest, mode = match["key"], match["rest"], match["mode"] or ""
    if key == "experiment":  # a group that is listed, whose choices are the user's own; + adds nothing
        return f"{key}{rest}"
    if mode == "~" or "@" in key:
        return override
    if "." in key or mode:
        check_key(key, rest[1:])
    return f"++{key}{rest}" if "." in key else override


def check_key(key: str, value: str = "") -> None:
    """Raise ConfigError, with the nearest spelling, for a dotted key that nothing knows."""
    head, *tail = key.split(".")
    if head == "model":
        _check_model_key(tail, value)
    elif head in GROUPS:
        _check_option(tail, options_of(GROUPS[head]), head)
    elif head == "hardware":
        hardware.check_key(".".join(tail))
    elif head not in options_of(RunOptions) or tail:
        if head not in options_of(RunOptions):
            raise unknown_key(head, ["model", *GROUPS, "hardware", *options_of(RunOptions)])
        raise ConfigError(key, "is a value and has nothing below it")


def _check_model_key(tail: list[str], value: str) -> None:
    own = options_of(ModelOptions)
    is_own = bool(tail) and tail[0] not in own and is_axis(tail[0])
    if not tail or (is_own and tail[1:] in ([], ["choice"])):
        axis = tail[0] if tail else ""
        if value.startswith("{"):
            return
        name = f"model.{axis}" if axis else "model"
        near = nearest(value, choices(axis)) if axis else None
        chosen = f"model/{axis}={near or value}" if axis else f"model={value}"
        raise ConfigError(name, "is chosen, not set", value=value, nearest=chosen)
    if is_own:
        _check_option(tail[1:], _options_of_any(choices(tail[0])), f"model.{tail[0]}")
    elif tail[0].split("[")[0] != "layers":
        _check_option(tail, own, "model", [*own, *axes(), "layers"])


def _options_of_any(known: Mapping[str, Choice]) -> dict[str, Option]:
    """The options that one of these choices has."""
    return {name: opt for choice in known.values() for name, opt in options_of(choice.spec).items()}


def _check_option(
    tail: list[str], known: Mapping[str, Option], prefix: str, valid: Iterable[str] | None = None
) -> None:
    if not tail or tail[0] not in known:
        raise unknown_key(tail[0] if tail else "", valid or known).under(prefix)
    below, opt = tail[1:], known[tail[0]]
    if below and opt.part is not None and below != ["choice"]:
        below_known = _options_of_any(part_choices(opt))
        _check_option(below, below_known, f"{prefix}.{tail[0]}", ["choice", *below_known])
    elif below and opt.part is None:
        raise ConfigError(f"{prefix}.{tail[0]}", "is a value and has nothing below it")
