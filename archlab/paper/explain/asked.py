"""The model that something is explained in: as it is, and with a choice put in the place of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from archlab.compose import request
from archlab.cost.params import parameters
from archlab.cost.parts import makes
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import RequestError
from archlab.frozen import Frozen, field, replace
from archlab.hardware import Hardware
from archlab.meaning import Here
from archlab.overrides import typed_keys
from archlab.request import Request, read_request
from archlab.units import dtype_bytes

DEFAULT_MODEL = "gqa"
MOST_TOKENS = 2048
"""Tokens that a decoded one sees, unless said otherwise."""


class Asked(Frozen):
    """A model source with overrides, settings of the workload, and a device where there is one.

    tokens: that a decoded one sees, itself among them; None for a few.
    """

    source: str | Path = DEFAULT_MODEL
    overrides: Sequence[str] = ()
    tokens: int | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    hardware: Hardware | None = None

    @classmethod
    def given(cls, words: Sequence[str], **settings: Any) -> Self:
        """What a command line asks for: the last `model=` is the source, the other words change it.

        Raises RequestError for a word that sets nothing.
        """
        for word in words:
            if "=" not in word and not word.startswith(("-", "~")):
                raise RequestError(f"{word!r} sets nothing; the model is named by model={word}")
        named = [word for word in words if word.startswith("model=")]
        source = named[-1].removeprefix("model=") if named else DEFAULT_MODEL
        return cls(source, [word for word in words if word not in named], **settings)

    def own(self, axis: str = "") -> Model:
        """The model as it is; axis: without the options that were set there, which may be those of another choice."""
        return self._model([word for word in self.overrides if not _sets_option(word, axis)])

    def with_choice(self, axis: str, name: str) -> Model:
        """The model with another choice, with the options that were set for it. Raises ConfigError: it cannot be."""
        if not any(_sets_option(word, axis) for word in self.overrides):
            return self.own().with_choice(axis, name)
        others = [word for word in self.overrides if not word.startswith(f"model/{axis}=")]
        return self._model([*others, f"model/{axis}={name}"])

    def _model(self, overrides: Sequence[str]) -> Model:
        asked = request(self.source, overrides, **self.workload)
        typed = frozenset(typed_keys(overrides))
        prompt = asked.workload.prompt if "workload.prompt" in typed else None
        tokens = self.tokens or prompt or min(MOST_TOKENS, asked.spec.reach)
        asked.spec.check_length(tokens)
        workload = replace(asked.workload, prompt=tokens, contexts=(tokens,))
        placed = replace(asked, workload=workload, hardware=self.hardware)
        return Model(" ".join((asked.spec.name, *overrides)), placed, typed)


def _sets_option(word: str, axis: str) -> bool:
    """Whether an override sets an option of a choice on the axis."""
    return bool(axis) and word.lstrip("+").startswith(f"model.{axis}.")


class Model(Frozen):
    """One model at one workload. name: of its source, with what was changed; typed: the keys that the user set."""

    name: str
    asked: Request
    typed: frozenset[str]

    @property
    def spec(self) -> DecoderSpec:
        return self.asked.spec

    @property
    def tokens(self) -> int:
        return self.asked.workload.prompt

    @property
    def width(self) -> int:
        """Bytes of a cached element."""
        return dtype_bytes(self.asked.workload.cache_dtype)

    def with_choice(self, axis: str, name: str) -> Model:
        """The same with another choice on an axis. Raises ConfigError where it cannot be, RequestError: too long."""
        config, model = self.asked.config, self.asked.config["model"]
        swapped = {**config, "model": {**model, axis: {**model.get(axis, {}), "choice": name}}}
        kept = [key for key in self.typed if not key.startswith(f"model.{axis}.")]
        made = read_request(swapped, kept)
        made.spec.check_length(self.tokens)
        placed = replace(made, workload=self.asked.workload, hardware=self.asked.hardware)
        return Model(f"{self.name} model/{axis}={name}", placed, self.typed)

    def kinds(self, axis: str, name: str) -> list[tuple[LayerSpec, tuple[int, ...]]]:
        """The kinds of layer that make a choice, each with its indices; for the head, which is in none, the first."""
        if axis == "head":
            return [self.spec.layer_kinds[0]] if self.spec.head.choice == name else []
        return [(layer, indices) for layer, indices in self.spec.layer_kinds if makes(layer, axis, name)]

    def here(self, layer: LayerSpec, axis: str) -> Here:
        """A layer's choice on an axis, where it stands."""
        spec, axes = self.spec, {**layer.axes(), "head": self.spec.head}
        return Here(
            spec=axes[axis],
            axes=axes,
            d_model=spec.d_model,
            n_layers=spec.n_layers,
            vocab_size=spec.vocab_size,
            context=spec.context,
            params=parameters(spec).total,
            batch=self.asked.workload.batch,
            tokens=self.tokens,
            width=self.width,
        )
