"""A spec whose numbers are symbols, so that a closed form run over it says its formula.

A symbol is an option's name (`d_model`, `expert.d_ff` for one of a block of options); the layers of one kind are
`n_layers[0-2]`, all of them `n_layers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archlab.cost.figures import show_indices
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import derived, replace, values_of
from archlab.options import Spec, inherited_of
from archlab.written import Factor, Quotient, Written, over, ratio, summed, symbol, terms_of

Form = Written | Quotient


class Symbolic(DecoderSpec):
    """A spec of symbols."""

    @derived
    def layer_counts(self) -> tuple[tuple[LayerSpec, int], ...]:
        return tuple((layer, self._count(indices)) for layer, indices in self.layer_kinds)

    @derived
    def _counted(self) -> dict[Factor, tuple[int, ...]]:
        """The layers that a factor counts."""
        return {_only_factor(self._count(indices)): indices for _, indices in self.layer_kinds}

    def _count(self, indices: Sequence[int]) -> Written:
        every = len(indices) == len(self.layers)
        return symbol(len(indices), "n_layers" if every else f"n_layers[{short_indices(indices)}]")

    def whole(self, number: int) -> Written:
        """A sum over the kinds of layer, those that cost the same counted together."""
        found: dict[Any, list[int]] = {}
        for count, factors in terms_of(number).values():
            layers = [index for factor in factors for index in self._counted.get(factor, ())]
            rest = tuple(factor for factor in factors if factor not in self._counted)
            found.setdefault((count, bool(layers), rest), []).extend(layers)
        terms = (
            (count, (_only_factor(self._count(sorted(layers))), *rest) if layered else rest)
            for (count, layered, rest), layers in found.items()
        )
        return summed(number, terms)

    def per(self, number: int, unit: Written) -> Quotient:
        """The same for each of so many of something."""
        return over(self.whole(number), unit)


def _only_factor(number: Written) -> Factor:
    ((_, (factor,)),) = number.terms.values()
    return factor


def short_indices(indices: Sequence[int]) -> str:
    """Layers by their indices; of many runs the first and the last."""
    runs = show_indices(indices).split(",")
    return ",".join(runs if len(runs) <= 4 else [*runs[:2], "..", runs[-1]])


def symbolic(spec: DecoderSpec) -> Symbolic:
    """The spec with each whole number as a symbol. Equal layers stay one object."""
    layers = {id(layer): layer.with_axes(_parts(layer.axes())) for layer, _ in spec.layer_kinds}
    own = _parts(values_of(spec))
    return Symbolic(**own | {"layers": tuple(layers[id(layer)] for layer in spec.layers)})


def _parts(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _symbolic(name, value) for name, value in values.items()}


def _symbolic(name: str, value: Any, under: str = "") -> Any:
    """A number as a symbol, but for zero, which adds nothing; a choice with its options as symbols, below `under`."""
    if isinstance(value, Spec):
        return replace(value, **_options(value, under))
    return symbol(value, under + name) if value and type(value) is int else value


def _options(spec: Spec, under: str) -> dict[str, Any]:
    """What the model gives to a choice keeps the model's name; a block of options names its own after itself."""
    given, options = inherited_of(type(spec)), {}
    for name, value in values_of(spec).items():
        inside = f"{under}{name}." if isinstance(value, Spec) else under
        options[name] = _symbolic(name, value, "" if name in given else inside)
    return options


# --- the same figures over a spec and over its symbols ----------------------------------------------------------------


def number(model: DecoderSpec, value: int, name: str) -> int:
    """A number of the workload; over symbols by its name."""
    return symbol(value, name) if isinstance(model, Symbolic) else value


def whole(model: DecoderSpec, count: int) -> Any:
    """A sum over the layers; over symbols its form."""
    return model.whole(count) if isinstance(model, Symbolic) else count


def per(model: DecoderSpec, count: int, unit: int) -> Any:
    """A sum for each of so many of something; over symbols its form."""
    return model.per(count, unit) if isinstance(model, Symbolic) and isinstance(unit, Written) else ratio(count, unit)


def scaled(factor: int, name: str, figure: Any) -> Any:
    """A figure times a factor; over symbols its form, with the factor's name."""
    if not isinstance(figure, Form):
        return factor * figure
    return Quotient(f"{name} ({figure.symbols})", f"{factor:,} x ({figure.numbers})", factor * figure.value)


def divided(figure: Any, by: int, name: str) -> Any:
    """A figure over a number; over symbols its form, the number by its name."""
    if not isinstance(figure, Form):
        return figure / by
    return Quotient(f"({figure.symbols}) / {name}", f"({figure.numbers}) / {by:,}", figure.value / by)


def inverted(number: int, name: str, figure: Any) -> Any:
    """A number over a figure; over symbols its form, the number by its name."""
    if not isinstance(figure, Form):
        return number / figure
    return Quotient(f"{name} / ({figure.symbols})", f"{number:,} / ({figure.numbers})", number / figure.value)


def percent(part: Any, of: Any) -> Any:
    """A figure as a share of another; over symbols its form."""
    if not isinstance(part, Form):
        return 100 * part / of
    texts = (f"100 ({part.symbols}) / ({of.symbols})", f"100 x ({part.numbers}) / ({of.numbers})")
    return Quotient(*texts, 100 * part.value / of.value)
