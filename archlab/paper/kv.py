"""archlab kv: what the KV cache takes, by kind of layer, and by dtype, batch and context."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from archlab.components.attention.base import CachedTensor, State
from archlab.components.attention.latent import CACHES, LatentAttention
from archlab.components.locality import Locality
from archlab.cost.figures import show_indices
from archlab.cost.kv import ENGINES, LLAMA_CPP_PAD, PAGED, Engine, KVCacheCost, LayerCache, heads_per_device, kv_cache
from archlab.cost.storage import kv_storage
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.document import Chart, Column, Document, Explanation, Row, Table
from archlab.errors import ConfigError
from archlab.frozen import Frozen, replace
from archlab.request import Request
from archlab.units import show_bytes
from archlab.workload import few_contexts

T = TypeVar("T")
REQUIRED = "what the architecture needs: of each layer, the tokens that the next one can see"
ALLOCATED = "archlab's own cache: slots for the whole context at once, a ring of them where a layer sees only so far"
WINDOW = "W tokens, the current one included; transformers keeps W - 1 between steps"
HEADS = "sum over layers and kept tensors of heads x B of a head's row"
SLOTS = {
    "paged": "min(up(context), up(W) + block), up to whole blocks",
    "full_pages": "up(context) to whole blocks",
    "llama_cpp": f"up(min(context, W + micro-batch)) to {LLAMA_CPP_PAD}",
}
POINTS = 48
"""Contexts at which a curve is drawn."""


class Asked(Frozen):
    """A model and how its cache is kept; dtypes, batches and contexts in the order of the table."""

    spec: DecoderSpec
    contexts: Sequence[int]
    batches: Sequence[int]
    dtypes: Sequence[str]
    beams: int
    tp: int
    engine: Engine

    @property
    def longest(self) -> int:
        return max(self.contexts)

    @property
    def limited(self) -> bool:
        """Whether some layer sees only so far."""
        return any(locality.limit is not None for _, locality, _ in self.spec.cache_kinds)

    def cost(self, dtype: str | None = None, batch: int | None = None, context: int | None = None) -> KVCacheCost:
        """What the cache takes: in the first dtype, for the first batch, at the longest context unless said."""
        dtype, batch, context = dtype or self.dtypes[0], batch or self.batches[0], context or self.longest
        return kv_cache(self.spec, batch, context, dtype, beams=self.beams, tp=self.tp, engine=self.engine)

    def allocates(self, dtype: str) -> bool:
        """Whether archlab's own cache can be so."""
        return self.tp == 1 and kv_storage(dtype).plain


class Kind(Frozen):
    """Layers that keep the same: tensors of each token, states of a sequence. cache: of one of these layers."""

    attention: str
    n_heads: int
    tensors: Sequence[CachedTensor]
    states: tuple[tuple[tuple[str, str], State], ...]
    cache: LayerCache


def document(
    request: Request,
    batches: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    beams: int = 1,
    tp: int = 1,
    engine: Engine = PAGED,
    cache: str | None = None,
) -> Document:
    """The cache by kind of layer at the longest context, and by dtype, batch and context.

    batches, dtypes: default to the workload's; contexts are the workload's, or a few up to the model's. cache: of
    latent attention, `latent` or `expanded`. Raises ConfigError; RequestError beyond the positions' end.
    """
    spec, workload = with_cache(request.spec, cache), request.workload
    contexts = workload.contexts or few_contexts(spec)
    spec.check_length(max(contexts))
    names = [kv_storage(dtype).name for dtype in dtypes or (workload.cache_dtype,)]
    asked = Asked(spec, _once(contexts), _once(batches or (workload.batch,)), _once(names), beams, tp, engine)
    whole = asked.cost()
    kinds = _kinds(spec, whole)
    return Document(
        command="kv",
        model=spec.name,
        verdict=f"{whole.bytes_per_token:,} B a token, {show_bytes(whole.required)} required at {_point(whole)}",
        tables=[_layers(asked, kinds, whole), _totals(asked)],
        assumptions=_assumptions(asked),
        charts=[_chart(asked)],
        notes=[*request.notes, *_notes(asked)],
        explanations=_explanations(asked, kinds, whole),
    )


def _once(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def with_cache(spec: DecoderSpec, cache: str | None) -> DecoderSpec:
    """The spec whose latent attention keeps its `latent`, or keys and values `expanded`. None: as the spec says."""
    if cache is None:
        return spec
    if not _latent(spec):
        raise ConfigError("cache", f"{spec.name} has no latent attention (mla) that could be kept {cache}", value=cache)
    if cache not in CACHES:
        raise ConfigError("cache", f"{cache!r} is not one of its values", value=cache, valid=CACHES)
    changed = {id(layer): _kept(layer, cache) for layer, _ in spec.layer_kinds}
    return replace(spec, layers=tuple(changed[id(layer)] for layer in spec.layers))


def _kept(layer: LayerSpec, cache: str) -> LayerSpec:
    if not isinstance(layer.attention, LatentAttention):
        return layer
    return replace(layer, attention=replace(layer.attention, cache=cache))


def _latent(spec: DecoderSpec) -> list[LatentAttention]:
    return [layer.attention for layer, _ in spec.layer_kinds if isinstance(layer.attention, LatentAttention)]


def _kinds(spec: DecoderSpec, cost: KVCacheCost) -> list[Kind]:
    """Layers that differ elsewhere alone, say in their FFN, are one kind here."""
    found: dict[tuple[Any, ...], Kind] = {}
    for (layer, _), (_, locality, tensors), cache in zip(
        spec.layer_kinds, spec.cache_kinds, cost.by_layer, strict=True
    ):
        shared = ", shared" if layer.attention.shares_kv else ""
        name, states = f"{layer.attention.choice}{_sees(locality)}{shared}", tuple(layer.states.items())
        kind = Kind(name, layer.attention.n_heads, tensors, states, cache)
        key = (name, kind.n_heads, tensors, states)
        same = found.setdefault(key, kind)
        if same is not kind:
            layers = tuple(sorted((*same.cache.layers, *cache.layers)))
            found[key] = replace(same, cache=replace(cache, layers=layers))
    return list(found.values())


def _sees(locality: Locality) -> str:
    if locality.limit is None:
        return ""
    return f", {'window' if locality.window is not None else 'chunk'} {locality.limit:,}"


def _point(cost: KVCacheCost) -> str:
    device = f" on each of {cost.tp} devices" if cost.tp > 1 else ""
    beams = f" x {cost.beams} beams" if cost.beams > 1 else ""
    return f"{cost.context:,} tokens{device} (batch {cost.batch}{beams}, {cost.dtype})"


def _engine_text(engine: Engine) -> str:
    llama_cpp = engine.kind == "llama_cpp"
    size = f"cells padded to {LLAMA_CPP_PAD}" if llama_cpp else f"whole blocks of {engine.block}"
    return f"{size}; {ENGINES[engine.kind]}"


def _columns(asked: Asked) -> tuple[Column, ...]:
    """The columns that both tables have."""
    return (
        Column(
            "kv_bytes_per_token", "B", "exact", "by how much a sequence grows while it is shorter than every window"
        ),
        Column("required", "B", "exact", REQUIRED),
        Column("allocated", "B", "exact", f"{ALLOCATED}; none in a dtype or with a tp that it does not have"),
        Column("engine", "B", "estimated", _engine_text(asked.engine)),
    )


def _layers(asked: Asked, kinds: Sequence[Kind], cost: KVCacheCost) -> Table:
    shared = (Column("heads_per_device", "1", "exact", "KV heads; copies where there are more devices than heads"),)
    columns = (
        Column("attention"),
        Column("layers", "1", "exact", "layers of this kind"),
        Column("n_kv_heads", "1", "exact", "heads of what is kept"),
        Column("queries_per_kv", "1", "exact", "query heads that read each of them: n_heads / n_kv_heads"),
        *(shared if asked.tp > 1 else ()),
        Column("tokens", "1", "exact", "that each sequence keeps in such a layer"),
        *_columns(asked),
        Column("keeps"),
        Column("at"),
    )
    return Table("layers", "By kind of layer", columns, [_layer_row(asked, kind) for kind in kinds], _point(cost))


def _layer_row(asked: Asked, kind: Kind) -> Row:
    count, heads = len(kind.cache.layers), max((tensor.heads for tensor in kind.tensors), default=0)
    there = max((heads_per_device(tensor, asked.tp) for tensor in kind.tensors), default=0)
    return {
        "attention": kind.attention,
        "keeps": _keeps(asked.spec, kind),
        "layers": count,
        "n_kv_heads": heads,
        "queries_per_kv": kind.n_heads // heads if 0 < heads <= kind.n_heads else None,
        **({"heads_per_device": there} if asked.tp > 1 else {}),
        "tokens": kind.cache.tokens if kind.tensors else 0,
        "kv_bytes_per_token": count * kind.cache.bytes_per_token,
        "required": count * kind.cache.required,
        "allocated": count * kind.cache.allocated if asked.allocates(asked.dtypes[0]) else None,
        "engine": count * kind.cache.engine,
        "at": show_indices(kind.cache.layers),
    }


def _keeps(spec: DecoderSpec, kind: Kind) -> str:
    """`key 8 x 128, value 8 x 128`, and what is kept once a sequence; of layers that share, whose they read."""
    once = [f"{axis} {name} {' x '.join(map(str, state.shape))} once" for (axis, name), state in kind.states]
    each = [f"{tensor.name} {tensor.heads} x {tensor.width}" for tensor in kind.tensors]
    kept = ", ".join([*each, *once]) or "nothing"
    read = sorted({spec.kv_sources[index] for index in kind.cache.layers} - set(kind.cache.layers))
    return f"{kept}: reads {'layer' if len(read) == 1 else 'layers'} {show_indices(read)}" if read else kept


def _totals(asked: Asked) -> Table:
    cluster = (
        Column("cluster", "B", "exact", "required, all devices together, copies counted"),
        Column("copies", "1", "exact", "cluster over what one device without tp requires"),
    )
    given = (Column("dtype"), Column("batch", "1"), Column("context", "tokens"))
    columns = (*given, *_columns(asked), *(cluster if asked.tp > 1 else ()))
    rows = [_total_row(asked, *point) for point in itertools.product(asked.dtypes, asked.batches, asked.contexts)]
    device = f"on each of {asked.tp} devices: " if asked.tp > 1 else ""
    about = f"{device}required by the architecture, allocated by archlab's own cache, set aside by an engine"
    return Table("totals", "All layers", columns, rows, about)


def _total_row(asked: Asked, dtype: str, batch: int, context: int) -> Row:
    cost = asked.cost(dtype, batch, context)
    row = {
        "dtype": cost.dtype,
        "batch": batch,
        "context": context,
        "kv_bytes_per_token": cost.bytes_per_token,
        "required": cost.required,
        "allocated": cost.allocated if asked.allocates(dtype) else None,
        "engine": cost.engine,
    }
    if asked.tp == 1:
        return row
    cluster, alone = cost.required * asked.tp, replace(asked, tp=1).cost(dtype, batch, context).required
    return row | {"cluster": cluster, "copies": cluster / alone if cluster % alone else cluster // alone}


def _assumptions(asked: Asked) -> Mapping[str, Any]:
    latent = _latent(asked.spec)
    return {
        "beams": asked.beams,
        "tp": asked.tp,
        "engine": asked.engine.kind,
        **asked.engine.sizes,
        **({"window": WINDOW} if asked.limited else {}),
        **({"cache": latent[0].cache} if latent else {}),
        **{name: kv_storage(name).about for name in asked.dtypes if not kv_storage(name).plain},
    }


def _notes(asked: Asked) -> Iterator[str]:
    spec = asked.spec
    if asked.longest > spec.context:
        yield f"{asked.longest:,} tokens are beyond the model's context of {spec.context:,}"
    if asked.beams > 1:
        yield "each beam keeps the whole sequence; an engine whose beams share blocks keeps less"
    if asked.tp > 1 and spec.vocab_size % asked.tp:
        rows = (
            f"vocab_size {spec.vocab_size:,} does not divide by tp = {asked.tp}; model.vocab_multiple={asked.tp} pads"
        )
        yield f"{rows} embedding and head, no part of the cache"
    read = [source for index, source in enumerate(spec.kv_sources) if index != source]
    if read:
        cost = asked.cost()
        kept = {index: kind.bytes_per_token for kind in cost.by_layer for index in kind.layers}
        alone = cost.bytes_per_token + sum(kept[source] for source in read)
        yield f"{len(read)} layers read what an earlier one keeps; with their own, {alone:,} B a token ({cost.dtype})"
    if _latent(spec):
        latent, expanded = (kv_cache(with_cache(spec, kept), 1, 1).bytes_per_token for kept in CACHES)
        yield f"{latent:,} B a token as latents, {expanded:,} B expanded: {expanded / latent:.1f} times as much (bf16)"


def _chart(asked: Asked) -> Chart:
    """What is required, over the context: a curve a dtype, or a batch, or beside what it would be without windows."""
    contexts = _spread(max(1, min(asked.contexts) // 8), asked.longest)
    curves = {
        name: [(context, asked.cost(dtype, batch, context).required) for context in contexts]
        for name, dtype, batch in _curves(asked)
    }
    if len(curves) == 1 and asked.limited:
        cost = asked.cost()
        flat, once = (cost.batch * cost.beams * size for size in (cost.bytes_per_token, _state(cost)))
        curves["without windows"] = [(context, context * flat + once) for context in contexts]
    return Chart("Growth", "context", "required", curves, log_x=True, log_y=True, unit="B")


def _curves(asked: Asked) -> list[tuple[str, str, int]]:
    """The name, the dtype and the batch of each curve."""
    if len(asked.dtypes) > 1:
        return [(dtype, dtype, asked.batches[0]) for dtype in asked.dtypes]
    if len(asked.batches) > 1:
        return [(f"batch {batch}", asked.dtypes[0], batch) for batch in asked.batches]
    return [("required", asked.dtypes[0], asked.batches[0])]


def _spread(low: int, high: int) -> list[int]:
    """Contexts from low to high, evenly by their logarithm."""
    return sorted({round(low * (high / low) ** (step / (POINTS - 1))) for step in range(POINTS)})


def _explanations(asked: Asked, kinds: Sequence[Kind], cost: KVCacheCost) -> list[Explanation]:
    state = " + B a sequence" if _state(cost) else ""
    of_layers = f"batch x beams x sum over layers of {{}} x B a token{state}"
    kept, rings = of_layers.format("min(context, W)"), _sum(cost, kinds, "tokens")
    slots, blocks = of_layers.format(SLOTS[asked.engine.kind]), _sum(cost, kinds, "slots")
    shared = (f"one of {asked.tp} devices: n_kv_heads / tp, at least one",) if asked.tp > 1 else ()
    rests = (*(("every beam keeps the whole sequence",) if asked.beams > 1 else ()), *shared)
    window = (WINDOW,) if asked.limited else ()
    per_token = _per_token(asked, kinds), cost.bytes_per_token
    allocated = _explained("allocated", "exact", kept, rings, cost.allocated, ALLOCATED, *rests)
    return [
        _explained("kv_bytes_per_token", "exact", HEADS, *per_token, _dtype_text(cost), *shared),
        _explained("required", "exact", kept, rings, cost.required, *window, *rests),
        *([allocated] if asked.allocates(cost.dtype) else []),
        _explained("engine", "estimated", slots, blocks, cost.engine, _engine_text(asked.engine), *rests),
    ]


def _explained(figure: str, kind: str, formula: str, numbers: str, result: int, *assumptions: str) -> Explanation:
    return Explanation(figure, kind, formula, f"{numbers} = {result:,} B", assumptions)


def _dtype_text(cost: KVCacheCost) -> str:
    storage = kv_storage(cost.dtype)
    return f"{storage.name}: {storage.about or f'{storage.bits // 8} B an element'}"


def _per_token(asked: Asked, kinds: Sequence[Kind]) -> str:
    """`22 x (1 x 512 B + 1 x 512 B) + 4 x (..)`: layers, heads on a device, bytes of a head's row."""
    storage = kv_storage(asked.dtypes[0])
    rows = [
        [f"{heads_per_device(t, asked.tp)} x {storage.bytes(t.width, t.width):,} B" for t in kind.tensors]
        for kind in kinds
    ]
    counted = zip(kinds, rows, strict=True)
    return " + ".join(f"{len(kind.cache.layers)} x ({' + '.join(row) or '0 B'})" for kind, row in counted)


def _state(cost: KVCacheCost) -> int:
    """What all layers keep of a sequence however long it is."""
    return sum(kind.state * len(kind.layers) for kind in cost.by_layer)


def _sum(cost: KVCacheCost, kinds: Sequence[Kind], tokens: str) -> str:
    """`batch x beams x (layers x tokens x B + ..)`."""
    caches = [kind.cache for kind in kinds]
    parts = [f"{len(held.layers)} x {getattr(held, tokens):,} x {held.bytes_per_token:,} B" for held in caches]
    parts += [f"{len(held.layers)} x {held.state:,} B" for held in caches if held.state]
    return f"{cost.batch} x {cost.beams} x ({' + '.join(parts)})"
