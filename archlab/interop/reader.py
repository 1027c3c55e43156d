"""Read a Hugging Face config.json as what it is, data of unknown origin: bounded, typed, and nothing left unread."""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from archlab.decoder.spec import MAX_LAYERS
from archlab.errors import ConfigError, RequestError, is_folder
from archlab.interop.harmless import HARMLESS, OFF, changes_nothing
from archlab.options import MOST

FILE = "config.json"
MAX_BYTES = 4 << 20
REQUIRED: Any = object()
"""In place of a default: the field must be there. In place of what null means: null is refused."""

ALIASES = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "kv_n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
    "layer_norm_eps": ("layer_norm_epsilon", "norm_epsilon"),
    "hidden_act": ("activation_function", "activation"),
    "attention_dropout": ("attn_pdrop",),
    "residual_dropout": ("resid_pdrop", "hidden_dropout", "dropout"),
    "embedding_dropout": ("embd_pdrop", "emb_pdrop"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("experts_per_token",),
    "sliding_window": ("sliding_window_size",),
    "sliding_window_pattern": ("_sliding_window_pattern",),
}
"""The same field by the names that families and years gave it."""


def find_config(path: Path) -> Path:
    """The config.json that a path is or holds. Raises RequestError."""
    if not is_folder(path):
        return path
    file = path / FILE
    if not os.path.lexists(file):  # a link that leads nowhere is there, and is refused as what it is
        raise RequestError(f"{path}: no {FILE} in this folder")
    return file


def refuse_itself(path: str, output: str | None) -> None:
    """Raise RequestError where what is written would take the place of the file that is read."""
    source = os.path.join(path, FILE) if os.path.isdir(path) else path
    if output is None or not os.path.isfile(source) or not os.path.isfile(output):
        return
    if os.path.samefile(source, output):
        raise RequestError(f"{output}: is the file that is read; name another for what is written")


def read_json(file: Path, limit: int = MAX_BYTES) -> dict[str, Any]:
    """A JSON object of at most `limit` bytes, no NaN or infinity in it. Raises RequestError, one line."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise RequestError(f"{file}: is not a file")
        with file.open("rb") as stream:
            raw = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        raise RequestError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > limit:
        raise RequestError(f"{file}: has more than {limit >> 20} MiB; no config is that long")
    return _parse(file, raw)


def _parse(file: Path, raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig")
        body = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise RequestError(f"{file}: is nested too deeply") from None
    except ValueError as error:
        raise RequestError(f"{file}: is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestError(f"{file}: is {_kind(body)}, not an object with settings")
    return body


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; JSON lets a name stand twice in it, and readers differ in which they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{show(counts.most_common(1)[0][0])} stands in it twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{show(text)} is out of range")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def show(value: Any) -> str:
    """A value of unknown origin, in one short line."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Fields:
    """The settings of one config; each read is typed, and `finish` refuses what nobody read.

    A field that is not there gets the family's default. null is refused unless the caller says what it means.
    where: the name that they stand under, empty for the whole file.
    """

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self.raw, self.where = raw, where
        self.asked: dict[str, None] = {}

    def path(self, key: str) -> str:
        """A field's key, after the name that it stands under."""
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, problem: str, **more: Any) -> ConfigError:
        """The refusal of a field's value."""
        return ConfigError(self.path(key), problem, **more)

    def unmodelled(self, key: str, value: Any, modelled: Sequence[Any] = ()) -> ConfigError:
        """The refusal of a setting that would change the architecture in a way that archlab does not have."""
        name = key if key.isidentifier() and len(key) <= 60 else show(key)
        valid = [show(m) for m in modelled] or None
        return self.wrong(name, f"I do not model {name} = {show(value)}", value=show(value), valid=valid)

    def instead(self, **values: Any) -> Fields:
        """These fields with others in place of some; what is read of them counts as read here."""
        fields = Fields({**self.raw, **values}, self.where)
        fields.asked = self.asked
        return fields

    def without(self, *names: str) -> Fields:
        """These fields less some that no code of the family reads, for all that they are aliases elsewhere."""
        fields = Fields({name: value for name, value in self.raw.items() if name not in names}, self.where)
        fields.asked = self.asked
        self.asked.update(dict.fromkeys(names))
        return fields

    def spelled(self, name: str) -> str:
        """The name by which the config has this field: its own, or an alias. Two that disagree are refused."""
        names = [name, *ALIASES.get(name, ())]
        self.asked.update(dict.fromkeys(names))
        given = [n for n in names if self.raw.get(n) is not None] or [n for n in names if n in self.raw]
        for other in given[1:]:
            if self.raw[other] != self.raw[given[0]]:
                problem = f"{show(self.raw[other])} is not {given[0]} = {show(self.raw[given[0]])}; they are one thing"
                raise self.wrong(other, problem)
        return given[0] if given else name

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.raw.get(self.spelled(name)) is not None

    def get(self, name: str, default: Any = REQUIRED, null: Any = REQUIRED) -> tuple[str, Any]:
        """The field's spelling and its raw value, the default, or what null means."""
        key = self.spelled(name)
        if key not in self.raw:
            if default is REQUIRED:
                raise self.wrong(key, "is missing")
            return key, default
        value = self.raw[key]
        if value is not None:
            return key, value
        if null is REQUIRED and default is not None:
            raise self.wrong(key, "is null")
        return key, None if null is REQUIRED else null

    def whole(self, name: str, default: Any = REQUIRED, null: Any = REQUIRED, ge: int = 1, le: int = MOST) -> Any:
        """A whole number from ge to le."""
        key, value = self.get(name, default, null)
        if key not in self.raw or self.raw[key] is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"{show(value)} is not a whole number")
        if not ge <= value <= le:
            raise self.wrong(key, f"{show(value)} is not from {ge:,} to {le:,}")
        return value

    def number(self, name: str, default: Any = REQUIRED, null: Any = REQUIRED) -> Any:
        """A finite number, as a float."""
        key, value = self.get(name, default, null)
        if key not in self.raw or self.raw[key] is None:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e30:
            raise self.wrong(key, f"{show(value)} is not a number that can be used")
        return float(value)

    def positive(self, name: str, default: Any = REQUIRED, null: Any = REQUIRED) -> Any:
        """A number above 0."""
        value = self.number(name, default, null)
        if value is not None and value <= 0:
            raise self.wrong(self.spelled(name), f"{show(value)} is not above 0")
        return value

    def flag(self, name: str, default: Any = REQUIRED, null: Any = REQUIRED) -> Any:
        """true or false."""
        key, value = self.get(name, default, null)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, f"{show(value)} is not true or false")
        return value

    def word(self, name: str, valid: Sequence[str], default: Any = REQUIRED, null: Any = REQUIRED) -> Any:
        """One of the words that archlab models."""
        key, value = self.get(name, default, null)
        if value is not None and (not isinstance(value, str) or value not in valid):
            raise self.wrong(key, f"I do not model {key} = {show(value)}", valid=valid)
        return value

    def items(self, name: str, kind: Any, length: Any = None) -> Any:
        """A list of that many items of a type; None where it is not there."""
        key, value = self.get(name, None, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(_is(item, kind) for item in value):
            raise self.wrong(key, f"{show(value)} is not a list of {kind.__name__}")
        if length is not None and len(value) != length:
            raise self.wrong(key, f"has {len(value)} items, not {length}")
        return value

    def block(self, name: str) -> Fields | None:
        """The settings nested under a name; None where there are none."""
        key, value = self.get(name, None, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, f"{show(value)} is not an object")
        return Fields(value, self.path(key))

    def only(self, name: str, *modelled: Any) -> None:
        """Read a field of which archlab models just these values; not being there is fine too."""
        key, value = self.get(name, modelled[0], None)
        if key in self.raw and not any(value is m or (value == m and type(value) is type(m)) for m in modelled):
            raise self.unmodelled(key, value, modelled)

    def layers(self, default: Any) -> int:
        """num_hidden_layers, bounded before anything is made as long as that."""
        count: int = self.whole("num_hidden_layers", default, le=MAX_LAYERS)
        return count

    def finish(self, harmless: Mapping[str, str] = HARMLESS, model: Mapping[str, Any] | None = None) -> None:
        """Raise ConfigError for a field that was not read and could change the architecture.

        harmless: more fields that cannot. model: what was read, where the fields are those of a whole model.
        """
        for key, value in self.raw.items():
            known = key in self.asked or key in harmless or key in HARMLESS
            if not known and not changes_nothing(key, self.raw, model):
                raise self.unmodelled(key, value, OFF.get(key, ()))


def _is(item: Any, kind: Any) -> bool:
    if isinstance(item, bool):
        return kind is bool
    return isinstance(item, int | float if kind is float else kind) and (kind is str or abs(item) < 1e30)
