"""archlab flops: what a token costs: part by part, decoded, trained, and by the conventions that people name.

The figures are got by name from one function; over a spec of symbols it gives their formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from archlab.cost.conventions import CONVENTIONS
from archlab.cost.explain import explanation
from archlab.cost.flops import decode_parts, prefill_parts
from archlab.cost.symbols import divided, inverted, number, per, percent, scaled, symbolic, whole
from archlab.decoder.spec import DecoderSpec
from archlab.document import Column, Document, Explanation, Later, Table
from archlab.frozen import Frozen
from archlab.hardware import Hardware
from archlab.request import Request
from archlab.units import show_flops
from archlab.workload import few_contexts

Figures = Mapping[str, Any]
HOW = "matmul FLOPs, 2 a multiply-add; an embedding lookup is 0"
PAIRS = {"full": "every query-key pair", "causal": "the pairs that see each other"}
TOKEN = "FLOP/token"
SECONDS_A_DAY = 86_400

PREFILL = (
    Column("part"),
    *(Column(side, "FLOP", "exact", f"{HOW}; {pairs}, one sequence") for side, pairs in PAIRS.items()),
    *(Column(f"{side}_per_token", TOKEN, "exact", f"{HOW}; {pairs}") for side, pairs in PAIRS.items()),
)
CONVENTION = (
    Column("convention"),
    Column("forward", TOKEN, "exact", "of a prompt"),
    Column("trained", TOKEN, "exact", "forward and backward"),
    Column("sequence", "FLOP", "exact", "trained x the tokens of a sequence"),
)
OF_A_RUN = {
    "training": Column("training", "FLOP", "exact", "trained x the tokens trained on"),
    "peak_tok_s": Column("peak_tok_s", "tok/s", "bound", "peak / trained: what a rate is divided by for its MFU"),
    "device_days": Column("device_days", "days", "bound", "training / peak: at an MFU of 100 %"),
}
"""Columns that a training run or a device adds."""
OF = (
    *(Column(f"of_{side}", "%", "exact", f"trained, as a share of `{side}`") for side in PAIRS),
    Column("formula"),
    Column("counts"),
)
ATTENTION = (
    Column("context", "tokens"),
    *(
        Column(f"scores_{side}", TOKEN, "exact", f"scores and values, trained; {pairs}")
        for side, pairs in PAIRS.items()
    ),
    Column("6n", TOKEN, "exact", "6 N, N as 6n_no_lookup counts it"),
    *(Column(f"share_{side}", "%", "exact", f"scores_{side} / 6n") for side in PAIRS),
)


class Run(Frozen):
    """What is costed. trained_on: tokens of a whole training run; peak: dense FLOP/s of the device; each if known."""

    prompt: int
    contexts: Sequence[int]
    trained_on: int | None = None
    peak: int | None = None


def document(asked: Request, trained_on: int | None = None) -> Document:
    """What the workload's prompt costs. trained_on: tokens of a whole training run. Raises RequestError: too long."""
    spec, workload, device = asked.spec, asked.workload, asked.hardware
    contexts = sorted({workload.prompt, *(workload.contexts or few_contexts(spec))})
    spec.check_length(contexts[-1])
    peak = None if device is None else device.peak(workload.weight_dtype)
    run = Run(workload.prompt, contexts, trained_on, peak)
    found = figures(spec, run)
    tables = [_prefill_table(found, run, workload.batch, spec.head.last_token_only), _decode_table(found, contexts)]
    tables += [_convention_table(found), _attention_table(found, contexts)]
    return Document(
        command="flops",
        model=spec.name,
        tables=[table for table in tables if table.rows],
        verdict=_verdict(found, run, device),
        assumptions=_assumptions(asked, run),
        notes=[*asked.notes, *_notes(asked, run)],
        explanations=Later(lambda: _explanations(figures(symbolic(spec), run))),
    )


def _assumptions(asked: Request, run: Run) -> dict[str, Any]:
    assumed = {"batch": asked.workload.batch, "context": run.prompt, "multiply-add": "2 FLOPs"}
    assumed["backward"] = "2 x forward"
    if run.trained_on is not None:
        assumed["trained_on"] = run.trained_on
    if asked.hardware is None or run.peak is None:
        return assumed
    peak = f"{run.peak / 1e12:,.1f} TFLOP/s, dense {asked.workload.weight_dtype}"
    return assumed | {"hardware": asked.hardware.name, "peak": peak, "source": asked.hardware.source}


def _notes(asked: Request, run: Run) -> Iterator[str]:
    if asked.hardware is not None and run.peak is None:
        yield f"no time on {asked.hardware.name}: no dense {asked.workload.weight_dtype} peak of it is known"


def _verdict(found: Figures, run: Run, device: Hardware | None) -> str:
    full, causal, trained = (show_flops(found[name]) for name in ("forward.full", "forward.causal", "trained.full"))
    text = f"{full} a token of {run.prompt:,}, {causal} causal; {trained} trained"
    if "training.full" in found:
        text += f"; {found['training.full']:.4g} FLOPs in all"
    if "device_days.causal" in found and device is not None:
        text += f", at least {found['device_days.causal']:,.4g} days of one {device.name} (causal)"
    return text


def _explanations(forms: Figures) -> list[Explanation]:
    return [explanation(name, form, _kind(name), *_assumed(name)) for name, form in forms.items()]


def _kind(name: str) -> str:
    column = OF_A_RUN.get(name.partition(".")[0])
    return "exact" if column is None else column.kind


def _assumed(name: str) -> Iterable[str]:
    """What the figure of this name rests on."""
    first, _, rest = name.partition(".")
    if rest in CONVENTIONS and first in (*(column.name for column in CONVENTION), *OF_A_RUN):
        return (CONVENTIONS[rest].says, *(["backward = 2 x forward"] if first != "forward" else []))
    return (HOW, *(pairs for side, pairs in PAIRS.items() if side in name.replace("_", ".").split(".")))


# --- the figures ------------------------------------------------------------------------------------------------------


def figures(spec: DecoderSpec, run: Run) -> dict[str, Any]:
    """Every figure of the answer by name; over a spec of symbols, its form."""
    tokens = number(spec, run.prompt, "prompt")
    found = _prefill(spec, tokens)
    for context in run.contexts if not spec.head.last_token_only else ():  # such a head makes no tokens
        found |= _decode(spec, context)
    for name in CONVENTIONS:
        found |= _convention(spec, tokens, name, run)
    for context in run.contexts:
        found |= _attention(spec, context)
    return found


def _prefill(spec: DecoderSpec, tokens: int) -> dict[str, Any]:
    """`ffn.full`, .., `total.causal` of a sequence; `ffn.full.per_token`, .., `flops_prefill_per_token.causal`."""
    found = {}
    for side in PAIRS:
        parts = prefill_parts(spec, tokens, side)
        for part, flop in (*parts.items(), ("total", sum(parts.values()))):
            found[f"{part}.{side}"] = whole(spec, flop)
            found[_per_token(part, side)] = per(spec, flop, tokens)
    return found


def _per_token(part: str, side: str) -> str:
    return f"flops_prefill_per_token.{side}" if part == "total" else f"{part}.{side}.per_token"


def _decode(spec: DecoderSpec, context: int) -> dict[str, Any]:
    """`decode.2048.ffn`, .., `decode.2048`."""
    parts = decode_parts(spec, number(spec, context, "context"))
    found = {f"decode.{context}.{part}": whole(spec, flop) for part, flop in parts.items() if part != "embedding"}
    return found | {f"decode.{context}": whole(spec, sum(parts.values()))}


def _convention(spec: DecoderSpec, tokens: int, name: str, run: Run) -> dict[str, Any]:
    """`forward.palm` and `trained.palm` per token, `sequence.palm`; `training.palm`, .. of a run, on a device."""
    cost = CONVENTIONS[name].cost(spec, tokens)
    trained = per(spec, cost.trained, tokens)
    found = {f"forward.{name}": per(spec, cost.forward, tokens), f"trained.{name}": trained}
    found[f"sequence.{name}"] = whole(spec, cost.trained)
    if run.peak is not None:
        found[f"peak_tok_s.{name}"] = inverted(run.peak, "peak", trained)
    if run.trained_on is not None:
        found[f"training.{name}"] = training = scaled(run.trained_on, "tokens", trained)
        if run.peak is not None:
            found[f"device_days.{name}"] = divided(divided(training, run.peak, "peak"), SECONDS_A_DAY, "86,400 s")
    return found


def _attention(spec: DecoderSpec, context: int) -> dict[str, Any]:
    """`scores_full.8192`, `6n.8192`, `share_full.8192`, ..: of a trained token."""
    tokens = number(spec, context, "context")
    n = per(spec, CONVENTIONS["6n_no_lookup"].cost(spec, tokens).trained, tokens)
    found = {f"6n.{context}": n}
    for side in PAIRS:
        scores = per(spec, 3 * prefill_parts(spec, tokens, side)["attention.scores"], tokens)
        found |= {f"scores_{side}.{context}": scores, f"share_{side}.{context}": percent(scores, n)}
    return found


# --- the tables -------------------------------------------------------------------------------------------------------


def _prefill_table(found: Figures, run: Run, batch: int, one_row: bool) -> Table:
    parts = [name.removesuffix(".full.per_token") for name in found if name.endswith(".full.per_token")]
    rows = [{"part": part, **_sides(found, part, 1)} for part in (*parts, "total")]
    if batch > 1:
        rows.append({"part": f"total of {batch:,} sequences", **_sides(found, "total", batch)})
    outputs = "one row of outputs" if one_row else "logits of all positions"
    return Table("prefill", "Prefill", PREFILL, rows, f"a sequence of {run.prompt:,} tokens, {outputs}")


def _sides(found: Figures, part: str, batch: int) -> dict[str, Any]:
    sequences = {side: batch * found[f"{part}.{side}"] for side in PAIRS}
    return sequences | {f"{side}_per_token": found[_per_token(part, side)] for side in PAIRS}


def _decode_table(found: Figures, contexts: Sequence[int]) -> Table:
    decoded = {name: figure for name, figure in found.items() if name.startswith("decode.")}
    parts = list(dict.fromkeys(name.split(".", 2)[2] for name in decoded if name.count(".") > 1))
    rows = [
        {"context": context, **{part: decoded[f"decode.{context}.{part}"] for part in parts}}
        | {"total": decoded[f"decode.{context}"]}
        for context in contexts
        if decoded
    ]
    columns = [Column("context", "tokens"), *(Column(part, TOKEN, "exact", HOW) for part in (*parts, "total"))]
    return Table("decode", "Decode", columns, rows, "the last token of a context, those before it cached")


def _convention_table(found: Figures) -> Table:
    added = [column for name, column in OF_A_RUN.items() if f"{name}.full" in found]
    rows = [_convention_row(name, found) for name in CONVENTIONS]
    return Table("conventions", "By convention", [*CONVENTION, *added, *OF], rows, "each a total of its own")


def _convention_row(name: str, found: Figures) -> dict[str, Any]:
    about = {"convention": name, "formula": CONVENTIONS[name].formula, "counts": CONVENTIONS[name].says}
    columns = (*(column.name for column in CONVENTION[1:]), *OF_A_RUN)
    costs = {column: found[f"{column}.{name}"] for column in columns if f"{column}.{name}" in found}
    return about | costs | {f"of_{side}": 100 * costs["trained"] / found[f"trained.{side}"] for side in PAIRS}


def _attention_table(found: Figures, contexts: Sequence[int]) -> Table:
    names = [column.name for column in ATTENTION[1:]]
    rows = [{"context": context} | {name: found[f"{name}.{context}"] for name in names} for context in contexts]
    return Table("attention", "Attention beside 6 N", ATTENTION, rows, "a trained token")
