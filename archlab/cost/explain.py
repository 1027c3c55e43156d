"""How the exact figures were got: the formula in symbols, the same with this model's numbers, what it assumes.

Nothing is written down twice: the closed forms themselves are run, over a spec of symbols.
"""

from __future__ import annotations

from archlab.cost.figures import exact_figures, parameter_counts
from archlab.cost.flops import CONVENTIONS, decode_parts, prefill_parts
from archlab.cost.params import parameters
from archlab.cost.symbols import Form, Symbolic, symbolic
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.document import Explanation
from archlab.units import dtype_bytes
from archlab.workload import Workload
from archlab.written import named, symbol


def explain(spec: DecoderSpec, workload: Workload) -> dict[str, Explanation]:
    """An explanation of each exact figure, by name."""
    forms = _forms(symbolic(spec), workload)
    figures = exact_figures(spec, workload)
    return {name: explanation(name, forms[name], figure.kind, figure.how) for name, figure in figures.items()}


def explanation(name: str, form: Form, kind: str, *assumptions: str) -> Explanation:
    """How a figure was got, from its written form."""
    value = form.value
    result = f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
    worked = result if form.numbers == result else f"{form.numbers} = {result}"
    return Explanation(name, kind, form.symbols, worked, assumptions)


def _forms(model: Symbolic, workload: Workload) -> dict[str, Form]:
    return {**_parameter_forms(model, workload), **_cache_forms(model, workload), **_flop_forms(model, workload)}


def _parameter_forms(model: Symbolic, workload: Workload) -> dict[str, Form]:
    counts, width = parameters(model), symbol(dtype_bytes(workload.weight_dtype), "bytes")
    forms: dict[str, Form] = {name: model.whole(count) for name, (count, _) in parameter_counts(counts).items()}
    return forms | {"weight_bytes": model.whole(named(counts.total, "params") * width)}


def _cache_forms(model: Symbolic, workload: Workload) -> dict[str, Form]:
    width, batch = symbol(dtype_bytes(workload.cache_dtype), "bytes"), symbol(workload.batch, "batch")
    each = [(layer, count * _kept_elements(layer)) for layer, count in model.layer_counts]
    forms: dict[str, Form] = {"kv_bytes_per_token": model.whole(sum(elements * width for _, elements in each))}
    for context in workload.kv_contexts(model):
        tokens = symbol(context, "context")
        held = sum(elements * layer.attention.locality.kept(tokens) * width * batch for layer, elements in each)
        held += sum(count * _state_elements(layer) * width * batch for layer, count in model.layer_counts)
        forms[f"kv_bytes.{context}"] = model.whole(held)
    return forms


def _kept_elements(layer: LayerSpec) -> int:
    """What one layer keeps of a token."""
    return sum(tensor.elements_per_token for tensor in layer.attention.cached())


def _state_elements(layer: LayerSpec) -> int:
    """What one layer keeps of a sequence however long it is."""
    return sum(state.elements for state in layer.states.values())


def _flop_forms(model: Symbolic, workload: Workload) -> dict[str, Form]:
    tokens = symbol(workload.prompt, "prompt")
    forms: dict[str, Form] = {"flops_decode_per_token": model.whole(sum(decode_parts(model, tokens + 1).values()))}
    for convention in CONVENTIONS:
        prompt = sum(prefill_parts(model, tokens, convention).values())
        forms[f"flops_prefill_per_token.{convention}"] = model.per(prompt, tokens)
    return forms
