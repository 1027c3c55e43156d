"""archlab diff: what changes, part by part, from one model to another or when a choice is swapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from archlab.cost.explain import explain, explanation
from archlab.cost.figures import PAIRS, exact_figures
from archlab.cost.flops import decode_parts, prefill_parts
from archlab.cost.symbols import number, per, short_indices, symbolic, whole
from archlab.decoder.describe import composition, differences
from archlab.decoder.spec import DecoderSpec
from archlab.document import Column, Document, Explanation, Later, Table
from archlab.frozen import replace
from archlab.request import Request
from archlab.workload import few_contexts

Figures = Mapping[str, Any]
SIDES = ("before", "after")

TABLES = {
    "parameters": ("Parameters", "parameters", ("params",)),
    "memory": ("Memory", "B", ("weight_bytes", "kv_")),
    "flops": ("FLOPs per token", "FLOP/token", ("flops_",)),
}
"""Each table's title, its unit, and what the names of its figures begin with."""


def document(before: Request, after: Request, names: Sequence[str]) -> Document:
    """What changes. names: what to call the two. Raises RequestError for a context that one of them cannot place."""
    sides = (before, after)
    asked = next((side.workload.contexts for side in sides if side.workload.contexts), None)
    contexts = asked or few_contexts(min((before.spec, after.spec), key=lambda spec: spec.context))
    for side in sides:
        side.spec.check_length(max(contexts))
    old, new = (figures(side, contexts) for side in sides)
    tables = [_choices(before.spec, after.spec), *(_table(name, old, new) for name in TABLES)]
    return Document(
        command="diff",
        model=" -> ".join(names),
        tables=[table for table in tables if table.rows],
        verdict=_verdict(old, new, max(contexts)),
        assumptions={**_workload(*sides), "contexts": list(contexts), "multiply-add": "2 FLOPs"},
        notes=[f"{name}: {note}" for name, side in zip(names, sides, strict=True) for note in side.notes],
        explanations=Later(lambda: [*_explained("before", before, contexts), *_explained("after", after, contexts)]),
    )


def _workload(before: Request, after: Request) -> dict[str, Any]:
    """What both are costed at; of what differs, both."""
    of = {"batch": "batch", "dtype": "weight_dtype", "kv_dtype": "cache_dtype"}
    sides = {name: (getattr(before.workload, key), getattr(after.workload, key)) for name, key in of.items()}
    return {name: one if one == other else f"{one} -> {other}" for name, (one, other) in sides.items()}


# --- the figures ------------------------------------------------------------------------------------------------------


DENSE = "params.ffn.dense"


def figures(asked: Request, contexts: Sequence[int]) -> dict[str, float]:
    """The exact figures by name, the FLOPs at each context; of its layers only their sums."""
    exact = exact_figures(asked.spec, replace(asked.workload, contexts=tuple(contexts)))
    kept = {name: figure.value or 0 for name, figure in exact.items() if _is_kept(name)}
    if not any(name.startswith("params.ffn.") for name in kept):  # beside a mixture: all of it is dense
        kept[DENSE] = kept["params.ffn"]
    return kept | _flops(asked.spec, contexts)


def _is_kept(name: str) -> bool:
    return not name.startswith(("params.layers.", "flops_"))


def _flops(spec: DecoderSpec, contexts: Sequence[int]) -> dict[str, Any]:
    """Of a prompt, and of the last token of a context; over a spec of symbols, their forms."""
    lengths = {context: number(spec, context, "context") for context in contexts}
    found = {
        f"flops_prefill_per_token.{side}.{context}": per(spec, sum(prefill_parts(spec, tokens, side).values()), tokens)
        for side in PAIRS
        for context, tokens in lengths.items()
    }
    for context, tokens in lengths.items() if not spec.head.last_token_only else ():  # such a head makes no tokens
        found[f"flops_decode_per_token.{context}"] = whole(spec, sum(decode_parts(spec, tokens).values()))
    return found


def _explained(side: str, asked: Request, contexts: Sequence[int]) -> Iterator[Explanation]:
    made = explain(asked.spec, replace(asked.workload, contexts=tuple(contexts)))
    for name in figures(asked, contexts):
        if not name.startswith("flops_"):
            yield replace(made.get(name, made["params.ffn"]), figure=name, model=side)
    how = "matmul FLOPs, 2 a multiply-add; an embedding lookup is 0"
    for name, form in _flops(symbolic(asked.spec), contexts).items():
        counted = next((pairs for kind, pairs in PAIRS.items() if kind in name), "the last token of its context")
        yield replace(explanation(name, form, "exact", how, counted), model=side)


# --- the tables -------------------------------------------------------------------------------------------------------


def _choices(before: DecoderSpec, after: DecoderSpec) -> Table:
    """Sizes, choices and options that differ, of the models and of their layers."""
    described = [composition(spec) for spec in (before, after)]
    changed = differences(described) | _layer_differences(described)
    rows = [{"setting": key, **dict(zip(SIDES, values, strict=True))} for key, values in changed.items()]
    return Table("choices", "Choices", [Column("setting"), *map(Column, SIDES)], rows)


def _layer_differences(described: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Options in which some layers of one model, and not those of the other, are not like its others."""
    found = [dict(_layer_options(model)) for model in described]
    changed = {}
    for key in dict.fromkeys(key for options in found for key in options):
        axis, _, option = key.partition(": ")[2].partition(".")
        own = [model["axes"][axis].get(option) for model in described]
        values = [options.get(key, value) for options, value in zip(found, own, strict=True)]
        if values[0] != values[1] or not all(key in options for options in found):
            changed[key] = values
    return changed


def _layer_options(model: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`layers 0-4: attention.window` and its value, where it is not the model's own."""
    for kind in model["layer_kinds"]:
        for axis, described in kind["axes"].items():
            for option, value in described.items():
                if model["axes"][axis].get(option) != value:
                    yield f"layers {short_indices(kind['layers'])}: {axis}.{option}", value


def _table(name: str, old: Figures, new: Figures) -> Table:
    """The figures that change, and how many there are that do not."""
    title, unit, begin = TABLES[name]
    names = [figure for figure in dict.fromkeys([*old, *new]) if figure.startswith(begin)]
    rows = [_row(figure, old, new) for figure in names if _tells(figure, old, new)]
    shown = [row for row in rows if row["change"] != 0]
    if len(shown) < len(rows):
        shown.append({"figure": f"{len(rows) - len(shown)} without change", "change": 0, "percent": 0})
    columns = [Column(side, unit, "exact") for side in (*SIDES, "change")]
    return Table(name, title, [Column("figure"), *columns, Column("percent", "%", "exact", "change / before")], shown)


def _tells(figure: str, old: Figures, new: Figures) -> bool:
    """Whether it is there at all, and is no total that repeats another."""
    if figure == "params_active":
        return _is_sparse(old) or _is_sparse(new)
    if figure == DENSE:
        return any(side.get(figure, 0) != side["params.ffn"] for side in (old, new))
    return bool(old.get(figure) or new.get(figure))


def _row(figure: str, old: Figures, new: Figures) -> dict[str, Any]:
    """A part that a model lacks has no parameters; any other figure that it lacks it has not."""
    before, after = (side.get(figure, 0 if figure.startswith("params.") else None) for side in (old, new))
    change = None if before is None or after is None else after - before
    percent = 100 * change / before if before and change is not None else None
    return {"figure": figure, "before": before, "after": after, "change": change, "percent": percent}


# --- the verdict ------------------------------------------------------------------------------------------------------


def _verdict(old: Figures, new: Figures, context: int) -> str:
    """What it comes to, in a sentence."""
    said = {
        f"kv_bytes.{context}": f"KV cache at {context:,}",
        "params": "parameters",
        "weight_bytes": "weights" if old["params"] == new["params"] else "",
        "params_active": "active parameters" if _is_sparse(old) or _is_sparse(new) else "",
        f"flops_decode_per_token.{context}": f"decode FLOPs at {context:,}",
    }
    changed = [name for name in said if name in old and name in new and old[name] != new[name] and said[name]]
    return ", ".join(f"{said[name]} {_change(old[name], new[name])}" for name in changed) or NOTHING


NOTHING = "nothing that is costed changes"


def _is_sparse(found: Figures) -> bool:
    return bool(found["params_active"] != found["params"])


def _change(before: float, after: float) -> str:
    """`4.00x smaller`, `+12.1 %`."""
    if after >= 2 * before:
        return f"{after / before:,.2f}x larger"
    if before >= 2 * after:
        return f"{before / after:,.2f}x smaller"
    percent = 100 * (after - before) / before
    return f"{percent:+.1f} %" if abs(percent) >= 0.1 else f"{percent:+.1g} %"
