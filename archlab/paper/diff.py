"""archlab diff: what changes, part by part, from one model to another or when a choice is swapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archlab.cost.explain import explain, explanation
from archlab.cost.figures import PAIRS, exact_figures
from archlab.cost.flops import decode_parts, prefill_parts
from archlab.cost.symbols import number, per, short_indices, symbolic, whole
from archlab.decoder.describe import composition, differences
from archlab.decoder.spec import DecoderSpec
from archlab.document import Column, Document, Explanation, Later, Table
from archlab.frozen import Frozen, derived, replace
from archlab.hardware import Hardware
from archlab.request import Request
from archlab.workload import few_contexts

if TYPE_CHECKING:
    from archlab.cost.roofline import Bound

Figures = Mapping[str, Any]
SIDES = ("before", "after")

TABLES = {
    "parameters": ("Parameters", "parameters", "exact", ("params",)),
    "memory": ("Memory", "B", "exact", ("weight_bytes", "kv_")),
    "flops": ("FLOPs per token", "FLOP/token", "exact", ("flops_",)),
    "bound": ("Bound", "tok/s", "bound", ("bound_",)),
}
"""Each table's title, its unit, its kind, and what the names of its figures begin with."""


class Side(Frozen):
    """One of the two: a request, the device that bounds it, if any, and the contexts that both are costed at."""

    name: str
    asked: Request
    device: Hardware | None
    contexts: tuple[int, ...]

    @derived
    def bounds(self) -> dict[str, Bound]:
        """What the device bounds, by name; nothing where there is none."""
        if self.device is None:
            return {}
        from archlab.paper.bounds import bounds  # for a device only

        return bounds(self.asked, self.device, self.contexts)

    @derived
    def figures(self) -> dict[str, Any]:
        """Every figure by name; None where it is not known."""
        return figures(self.asked, self.contexts) | {name: found.tok_s for name, found in self.bounds.items()}


def document(before: Request, after: Request, names: Sequence[str]) -> Document:
    """What changes. names: what to call the two. Raises RequestError for a context that one of them cannot place.

    A device that only one of the two requests names bounds both.
    """
    both = (before, after)
    said = next((asked.workload.contexts for asked in both if asked.workload.contexts), None)
    contexts = tuple(said or few_contexts(min((before.spec, after.spec), key=lambda spec: spec.reach)))
    for asked in both:
        asked.spec.check_length(max(contexts))
    device = before.hardware or after.hardware
    sides = [Side(name, asked, asked.hardware or device, contexts) for name, asked in zip(SIDES, both, strict=True)]
    old, new = (side.figures for side in sides)
    tables = [_choices(before.spec, after.spec), *(_table(name, old, new) for name in TABLES)]
    return Document(
        command="diff",
        model=" -> ".join(names),
        tables=[_with_binds(table, sides) for table in tables if table.rows],
        verdict=_verdict(old, new, max(contexts)),
        assumptions={**_same(sides), "contexts": list(contexts), "multiply-add": "2 FLOPs"},
        notes=[f"{name}: {note}" for name, asked in zip(names, both, strict=True) for note in asked.notes],
        explanations=Later(lambda: [made for side in sides for made in _explained(side)]),
    )


def _same(sides: Sequence[Side]) -> dict[str, Any]:
    """What both are costed at; of what differs, both."""
    one, other = (_costed_at(side) for side in sides)
    return {name: value if value == other[name] else f"{value} -> {other[name]}" for name, value in one.items()}


def _costed_at(side: Side) -> dict[str, Any]:
    workload = side.asked.workload
    device = {} if side.device is None else {"hardware": side.device.name}
    return {"batch": workload.batch, "dtype": workload.weight_dtype, "kv_dtype": workload.cache_dtype, **device}


# --- the figures ------------------------------------------------------------------------------------------------------


DENSE = "params.ffn.dense"


def figures(asked: Request, contexts: Sequence[int]) -> dict[str, Any]:
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


def _explained(side: Side) -> Iterator[Explanation]:
    spec, workload = side.asked.spec, replace(side.asked.workload, contexts=side.contexts)
    made = explain(spec, workload)
    for name in side.figures:
        if not name.startswith(("flops_", "bound_")):
            yield replace(made.get(name, made["params.ffn"]), figure=name, model=side.name)
    how = "matmul FLOPs, 2 a multiply-add; an embedding lookup is 0"
    for name, form in _flops(symbolic(spec), side.contexts).items():
        counted = next((pairs for kind, pairs in PAIRS.items() if kind in name), "the last token of its context")
        yield replace(explanation(name, form, "exact", how, counted), model=side.name)
    if side.device is not None:
        from archlab.paper.bounds import explained

        for name, found in side.bounds.items():
            yield replace(explained(name, found, side.device), model=side.name)


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
    title, unit, kind, begin = TABLES[name]
    names = [figure for figure in dict.fromkeys([*old, *new]) if figure.startswith(begin)]
    rows = [_row(figure, old, new) for figure in names if _tells(figure, old, new)]
    shown = [row for row in rows if row["change"] != 0]
    if len(shown) < len(rows):
        shown.append({"figure": f"{len(rows) - len(shown)} without change", "change": 0, "percent": 0})
    columns = [Column(side, unit, kind) for side in (*SIDES, "change")]
    return Table(name, title, [Column("figure"), *columns, Column("percent", "%", kind, "change / before")], shown)


def _with_binds(table: Table, sides: Sequence[Side]) -> Table:
    """Of bounds, the ceiling that is reached first as well."""
    if table.name != "bound":
        return table
    rows = [{**row, "binds": _binds(row["figure"], sides)} for row in table.rows]
    return replace(table, rows=rows, columns=[*table.columns, Column("binds")], about="no prediction")


def _binds(figure: str, sides: Sequence[Side]) -> str | None:
    """`memory`, or `memory -> compute`."""
    found = [side.bounds[figure].binds or "-" for side in sides if figure in side.bounds]
    return " -> ".join(dict.fromkeys(found)) or None


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
        f"bound_decode_tok_s.{context}": f"decode bound at {context:,}",
    }
    both = [name for name, text in said.items() if text and old.get(name) and new.get(name)]
    changed = [name for name in both if old[name] != new[name]]
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
