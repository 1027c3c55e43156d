"""What an experiment is given: a model and settings; and the ways to the modules that it tries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from archlab import host
from archlab.bench.device import Device, pick
from archlab.budget import last_within
from archlab.components.head.spec import LanguageHead
from archlab.cost.params import parameters
from archlab.decoder.build import build, init_weights
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import merge, resolve
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import RequestError
from archlab.frozen import Frozen, derived, replace
from archlab.request import Request
from archlab.units import dtype_bytes, show_bytes, show_count

MOST = 100_000_000
"""Parameters above which a tried model is cut: drawing more takes longer than anything that is looked at."""
ROWS = 1024
"""Rows of the vocabulary that a cut model keeps: tokens are random, and no more of them are drawn."""
COPIES = 3
"""What is held beside each parameter at most: its gradient, and what is made of both on the way."""


class Setup(Frozen):
    """What an experiment is given. request: the model; settings: of the experiment's own class."""

    request: Request
    settings: Any

    @property
    def spec(self) -> DecoderSpec:
        return self.request.spec

    @property
    def seed(self) -> int:
        return self.request.run.seed

    @derived
    def device(self) -> Device:
        """Where things are timed."""
        return pick(self.request.run.device)

    def within(self, most: int) -> int:
        """So many tokens, or as many as positions reach."""
        return min(most, self.spec.max_length or most)

    def swapped(self, sizes: Mapping[str, Any] | None = None, **blocks: str | Mapping[str, Any]) -> DecoderSpec:
        """The model with other choices on some axes, by name or with options. Raises ConfigError where it cannot be.

        `swapped(norm="rmsnorm", position={"choice": "yarn", "factor": 4.0})`. What a choice lacks is dropped. sizes:
        of the model itself, `{"context": 8192}`.
        """
        model = {**self.request.config["model"], **(sizes or {})}
        for axis, block in blocks.items():
            model[axis] = merge(model[axis], {"choice": block} if isinstance(block, str) else block)
        return resolve(model).spec

    def random(self) -> torch.Generator:
        """A fresh source of random numbers, on the CPU, the same for a seed."""
        return torch.Generator().manual_seed(self.seed)

    def ids(self, spec: DecoderSpec, batch: int, tokens: int) -> Tensor:
        """Random token ids [batch, tokens], as many as positions reach. Raises RequestError."""
        spec.check_length(tokens)
        return torch.randint(spec.vocab_size, (batch, tokens), generator=self.random())


class Tried(Frozen):
    """The model that is tried, and what it has of the one that was asked for, in words."""

    spec: DecoderSpec
    what: str

    def also(self, spec: DecoderSpec) -> DecoderSpec:
        """Another model, cut as this one was."""
        return with_layers(_with_rows(spec, self.spec.vocab_size), self.spec.n_layers)


def cut(
    spec: DecoderSpec,
    layers: int | None = None,
    dtype: str = "fp32",
    most: int = MOST,
    at_once: int = 1,
    copies: int = COPIES,
) -> Tried:
    """The model with `layers` layers (None: its own), or what memory and time allow of it.

    First the vocabulary is cut, then the layers from the last on. More layers than it has repeat its own. at_once: how
    many such modules are held together; copies: 1 where nothing is asked for gradients. Raises RequestError where not
    even one layer fits, with what it needs and what there is.
    """
    asked = with_layers(spec, layers or spec.n_layers)
    room = host.available_memory() // 2
    each = copies * dtype_bytes(dtype) * at_once
    limit = min(most, room // each)
    if parameters(asked).total <= limit:
        return Tried(asked, _what(asked, asked, spec))
    few = _with_rows(asked, ROWS)
    fitting = last_within(lambda n: Fraction(parameters(with_layers(few, n)).total), Fraction(limit), few.n_layers)
    small = with_layers(few, max(1, fitting))
    needed = each * parameters(small).total
    if needed > room:
        problem = f"one layer of {spec.name} with all that is held beside it takes {show_bytes(needed)}"
        raise RequestError(f"{problem}, and {show_bytes(room)} may be taken here; a smaller d_model fits")
    return Tried(small, _what(small, asked, spec))


def _with_rows(spec: DecoderSpec, most: int) -> DecoderSpec:
    """The model with so many rows of the vocabulary, or as many as it has."""
    rows = min(most, spec.vocab_size)
    head = replace(spec.head, vocab_size=rows) if isinstance(spec.head, LanguageHead) else spec.head
    return replace(spec, vocab_size=rows, tokenizer_vocab=rows, head=head)


def _what(small: DecoderSpec, asked: DecoderSpec, spec: DecoderSpec) -> str:
    """`all 8 layers`; `3 of 61 layers, 1,024 of 129,280 rows of the vocabulary, 90.12 M random parameters`."""
    whole = max(asked.n_layers, spec.n_layers)
    layers = f"all {whole:,}" if small.n_layers == whole else f"{small.n_layers:,} of {whole:,}"
    rows = f", {small.vocab_size:,} of {spec.vocab_size:,} rows of the vocabulary"
    cut_rows = rows if small.vocab_size != spec.vocab_size else ""
    return f"{layers} layers{cut_rows}, {show_count(parameters(small).total)} random parameters"


def with_layers(spec: DecoderSpec, layers: int) -> DecoderSpec:
    """The model with its first layers, or with all of them again and again."""
    if layers == spec.n_layers:
        return spec
    return replace(spec, layers=tuple(itertools.islice(itertools.cycle(spec.layers), layers)))


def each_layer(spec: DecoderSpec, change: Callable[[LayerSpec], LayerSpec]) -> DecoderSpec:
    """The model with every layer changed; equal layers stay one object."""
    changed = {id(layer): change(layer) for layer, _ in spec.layer_kinds}
    return replace(spec, layers=tuple(changed[id(layer)] for layer in spec.layers))


def variant(decoder: Decoder, spec: DecoderSpec, seed: int) -> Decoder:
    """The module of another spec, on the same weights where modules of one class have a tensor of one shape in both.

    Others are drawn. What is compared then differs in nothing but what was changed.
    """
    weight = decoder.embedding.weight
    made = build(spec, weight.device, weight.dtype, seed=None)
    held, own = decoder.state_dict(), made.state_dict()
    shared = {name: held[name] for name, tensor in own.items() if name in held and held[name].shape == tensor.shape}
    shared = {name: tensor for name, tensor in shared.items() if _owner(decoder, name) is _owner(made, name)}
    made.load_state_dict(shared, strict=False, assign=True)
    init_weights(made, seed, [name for name in own if name not in shared])
    return made


def _owner(decoder: Decoder, name: str) -> type[nn.Module]:
    """The class of the module that a tensor belongs to."""
    return type(decoder.get_submodule(name.rpartition(".")[0]))
