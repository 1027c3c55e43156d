"""Which experiments there are, what each asks and what may be set on it. Torch-free; the module of its name runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from archlab.document import Column, Document, Row, Table
from archlab.errors import ConfigError, RequestError, UnknownFlag, nearest, unknown_key
from archlab.frozen import Frozen
from archlab.options import Option, option, options_of, read_plain
from archlab.units import read_tokens

DEFAULT_MODEL = "minimind"
LONG, FARTHEST = 1025, 2**17 + 1
"""What sizes that an experiment runs stay below, and positions, so that none takes minutes or all of the memory."""
SEED = ("seed",)
TIMED = ("seed", "device")
READ = ("seed", "weights")
"""Settings of a run that experiments take as `archlab build` does: all, those with a clock, those that read weights."""


class Rope(Frozen):
    """What may be set on `lab rope`."""

    bases: tuple[float, ...] | None = option(None, "bases to compare; null: the model's own, 1e4 and 1e6", gt=1)
    positions: tuple[int, ...] = option((0, 1, 50), "positions that a vector is turned to", ge=0, lt=FARTHEST)
    distances: tuple[int, ...] | None = option(None, "distances of the scores; null: powers of two", ge=0, lt=FARTHEST)
    contexts: tuple[int, ...] | None = option(None, "contexts looked at; null: a few around the model's", ge=1)


class Order(Frozen):
    """What may be set on `lab order`."""

    tokens: int = option(16, "tokens that are shuffled", ge=2, lt=LONG)
    layers: int = option(2, "layers that the model is cut to", ge=1, lt=LONG)


class Residual(Frozen):
    """What may be set on `lab residual`."""

    scales: tuple[float, ...] = option((1.0, 0.1, 0.0), "factors of the skip path", ge=0)
    layers: int | None = option(None, "layers; null: the model's, as far as memory holds them", ge=1, lt=LONG)
    tokens: int = option(64, "tokens of the sequence", ge=2, lt=LONG)


class Norm(Frozen):
    """What may be set on `lab norm`."""

    layers: int | None = option(8, "layers that the model is cut to, or made of; null: the model's", ge=1, lt=LONG)
    tokens: int = option(32, "tokens of the sequence", ge=2, lt=LONG)
    gain: float = option(1.0, "weights have a standard deviation of gain / sqrt(inputs)", gt=0)


class Cache(Frozen):
    """What may be set on `lab cache`."""

    prompt: int = option(1, "tokens before the first new one", ge=1)
    new: int = option(16, "tokens that are generated, with and without the cache", ge=1, lt=LONG)
    contexts: tuple[int, ...] = option((16, 64, 256), "lengths at which one step is timed", ge=1)
    lengths: tuple[int, ...] = option((100, 1000), "more lengths that are counted, not run", ge=1)


class Heads(Frozen):
    """What may be set on `lab heads`."""

    context: int | None = option(None, "tokens cached before the timed one; null: 1024, or what positions reach", ge=1)
    batch: int = option(4, "sequences at once", ge=1)


class Flash(Frozen):
    """What may be set on `lab flash`."""

    lengths: tuple[int, ...] | None = option(None, "tokens of the sequence; null: 256 to 2048, by doubling", ge=2)
    contexts: tuple[int, ...] = option((2048, 4096, 32768), "lengths at which the scores are counted", ge=1)
    dtype: str = option("fp16", "of the scores that are counted", valid=("bf16", "fp16", "fp32", "fp64"))
    block: int = option(32, "keys of a block, where the online softmax is watched", ge=1)
    keys: int = option(256, "keys that it goes through", ge=1, lt=FARTHEST)


class Activation(Frozen):
    """What may be set on `lab activation`."""

    points: tuple[float, ...] = option((-2.0, -1.0, 0.0, 1.0, 2.0), "where values and slopes are told")
    gates: tuple[float, ...] = option((2.0, -2.0), "gate values of the gated choices")
    up: float = option(3.0, "what they are multiplied with")
    steps: int = option(10, "steps of training, for the dead units", ge=0, lt=LONG)
    rate: float = option(1.0, "learning rate of these steps", gt=0)


class Dropout(Frozen):
    """What may be set on `lab dropout`."""

    p: float = option(0.1, "the rate at places where the model has none", ge=0, lt=1)
    tokens: int = option(64, "tokens of the sequence", ge=2, lt=LONG)


class Softmax(Frozen):
    """What may be set on `lab softmax`."""

    logits: tuple[float, ...] = option((2.0, 1.0, 0.0), "whose probabilities are told")
    temperatures: tuple[float, ...] = option((1.0, 0.5, 2.0), "they are divided by", gt=0)
    large: tuple[float, ...] = option((1000.0, 1000.1, 1000.2), "logits that overflow")
    samples: int = option(4096, "queries and keys of which scores are made", ge=2, lt=8193)


class Extrapolation(Frozen):
    """What may be set on `lab extrapolation`."""

    trained: int = option(340, "tokens of the training sequences", ge=2)
    lengths: tuple[int, ...] = option((2048, 8192), "tokens that the model is then run at", ge=2)


class Width(Frozen):
    """What may be set on `lab width`."""

    widths: tuple[int, ...] | None = option(None, "values of d_ff; null: the rule's before and after rounding", ge=1)
    tokens: int = option(256, "tokens of a prefill and of a training step", ge=1)
    seconds: float = option(2.0, "budget of the clock for each kind of work", gt=0)


class Tying(Frozen):
    """What may be set on `lab tying`."""

    vocabs: tuple[int, ...] = option((6400, 50257, 151936), "vocabulary sizes", ge=1)


class Attention(Frozen):
    """What may be set on `lab attention`."""

    layer: int = option(0, "the layer that is looked at", ge=0)
    head: int = option(0, "its head", ge=0)
    tokens: int = option(24, "tokens of the sequence", ge=2, lt=65)
    ids: tuple[int, ...] | None = option(None, "token ids; null: random ones", ge=0)


class Experiment(Frozen):
    """One experiment: its name, what it asks in a line, the class of its settings, and those of a run that it takes."""

    name: str
    question: str
    settings: type[Frozen]
    of_the_run: tuple[str, ...] = SEED


EXPERIMENTS = {
    each.name: each
    for each in (
        Experiment("rope", "Which pairs wrap, and from which context on does the base matter?", Rope),
        Experiment("order", "Does the model know the order of its tokens, and from what?", Order),
        Experiment("residual", "What reaches the last layer, and what comes back to the first?", Residual),
        Experiment("norm", "How do activations grow with depth, for each norm and placement?", Norm),
        Experiment("cache", "What does the KV cache save in generation, and is it of use in training?", Cache, TIMED),
        Experiment("heads", "What do fewer KV heads save, at one shape and at equal parameters?", Heads, TIMED),
        Experiment("flash", "Explicit softmax or fused: same output, which memory, how fast?", Flash, TIMED),
        Experiment("activation", "What do the activations look like, and which units die?", Activation),
        Experiment("dropout", "What does dropout change at each place, and what not?", Dropout),
        Experiment("softmax", "What do temperature, size and scaling of the logits do?", Softmax),
        Experiment("extrapolation", "Which angles leave the range that was seen in training?", Extrapolation),
        Experiment("width", "What does a d_ff that is not rounded cost?", Width, TIMED),
        Experiment("tying", "Tied or untied: what share of the model is the vocabulary?", Tying),
        Experiment("attention", "Which keys does a head's query look at?", Attention, READ),
    )
}
"""All of them, in the order of the help."""


def find(name: str) -> Experiment:
    """The experiment of that name. Raises ConfigError with those there are."""
    if name not in EXPERIMENTS:
        near = nearest(name, EXPERIMENTS)
        raise ConfigError("lab", f"no experiment {name!r}", value=name, valid=EXPERIMENTS, nearest=near)
    return EXPERIMENTS[name]


def sort(experiment: Experiment, words: Iterable[str]) -> tuple[str, Any, list[str]]:
    """The model's source, the experiment's settings and the overrides among `key=value` words. Raises RequestError.

    A key without a dot or a slash is a setting of the experiment, `model`, or one of the run.
    """
    known = options_of(experiment.settings)
    heads = ("model", "budget", *experiment.of_the_run)
    source, given, overrides = DEFAULT_MODEL, {}, []
    for word in words:
        key, joined, value = word.partition("=")
        if key == "model" and joined:
            source = value
        elif key in known and joined:
            given[key] = _value(known[key], value)
        elif joined and re.split(r"[./]", key.lstrip("+~"))[0] in heads:
            overrides.append(word)
        else:
            raise _stray(word, experiment)
    return source, read_plain(experiment.settings, given, ""), overrides


def _stray(word: str, experiment: Experiment) -> RequestError:
    """The error for a word that is neither a setting nor an override of the model."""
    key, joined, _ = word.partition("=")
    if key.startswith("-"):
        return UnknownFlag(key, [])
    if not joined:
        return ConfigError("lab", f"{word!r} is no setting", value=word, nearest=f"model={word}")
    return unknown_key(key, [*options_of(experiment.settings), "model", *experiment.of_the_run])


def _value(opt: Option, text: str) -> Any:
    """What a word says, as the option has it: a list where it takes one, `8k` where it takes whole numbers."""
    if text in ("null", "") and type(None) in opt.types:
        return None
    if tuple in opt.types:
        return [_item(opt, opt.item, item.strip()) for item in text.strip("[]()").split(",")]
    kind = next((kind for kind in (int, float) if kind in opt.types), str)
    return _item(opt, kind, text)


def _item(opt: Option, kind: type, text: str) -> Any:
    if kind is int:
        return int(text) if text.lstrip("-").isdigit() else read_tokens(text, opt.name)
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(opt.name, f"{text!r} is not a finite number", value=text) from None


def document() -> Document:
    """The list of experiments, and of what may be set on each."""
    rows = [{"experiment": each.name, "asks": each.question} for each in EXPERIMENTS.values()]
    asks = Table("experiments", "Experiments", (Column("experiment"), Column("asks")), rows)
    heads = (Column("experiment"), Column("setting"), Column("what"))
    settings = Table("settings", "Settings", heads, [row for each in EXPERIMENTS.values() for row in _settings(each)])
    note = f"archlab lab NAME, then model=PRESET ({DEFAULT_MODEL} without), settings as key=value, and overrides"
    return Document("lab", "", [asks, settings], notes=[note])


def _settings(experiment: Experiment) -> Iterator[Row]:
    for name, opt in options_of(experiment.settings).items():
        yield {"experiment": experiment.name, "setting": f"{name}={_shown(opt)}", "what": opt.help}


def _shown(opt: Option) -> str:
    """The default as it would be typed."""
    items = opt.default if isinstance(opt.default, tuple) else (opt.default,)
    return ",".join("null" if item is None else f"{item:g}" if isinstance(item, float) else str(item) for item in items)
