"""Parameters: exact, by closed form, equal to the built module. Unique tensors: a tied head adds nothing."""

from __future__ import annotations

from archlab.decoder.spec import DecoderSpec, LayerSpec, check_spec
from archlab.frozen import Frozen, remembered

PARTS = ("embedding", "positions", "attention", "ffn", "norms", "lm_head", "other")

DEFINITIONS = {
    "total": "every parameter once; a tied head is the embedding's tensor and adds 0",
    "active": "what one token uses: total, less the experts that it is not routed to",
    "non_embedding": "total less the token and position tables; an untied head stays",
}


class Parameters(Frozen):
    """Parameter counts of a model. `by_part` and `by_layer` each add up to `total`, with `outside` for the latter.

    ffn_detail: what `ffn` is made of: `dense`, `router`, `routed_experts`, `shared_experts`, as far as there are any.
    """

    total: int
    active: int
    non_embedding: int
    by_part: dict[str, int]
    ffn_detail: dict[str, int]
    by_layer: list[LayerParameters]
    outside: int
    tied: bool


def parts(spec: DecoderSpec) -> tuple[str, ...]:
    """What parameters are counted under: the parts that every model has, and its places."""
    return (*PARTS, *(placed.axis for placed in spec.layers[0].placed))


class LayerParameters(Frozen):
    """One kind of layer: where it stands, how many there are, and the parameters of one such layer by part."""

    layers: tuple[int, ...]
    count: int
    by_part: dict[str, int]

    @property
    def each(self) -> int:
        return sum(self.by_part.values())

    @property
    def total(self) -> int:
        return self.count * self.each


def parameters(spec: DecoderSpec) -> Parameters:
    """The exact parameter counts of a spec. Raises RequestError for what is none."""
    check_spec(spec)
    by_layer = [
        LayerParameters(indices, count, layer_parameters(layer))
        for (layer, count), (_, indices) in zip(spec.layer_counts, spec.layer_kinds, strict=True)
    ]
    by_part = dict.fromkeys(parts(spec), 0)
    by_part["embedding"] = spec.vocab_size * spec.d_model
    by_part["positions"] = sum(sum(position.params().values()) for position, _ in spec.position_kinds)
    outer_norms = spec.block.final_norm + spec.block.embedding_norm
    by_part["norms"] = outer_norms * sum(spec.norm.params(spec.d_model).values())
    by_part["lm_head"] = sum(spec.head.params().values())
    outside = sum(by_part.values())
    for kind in by_layer:
        for part, count in kind.by_part.items():
            by_part[part] += kind.count * count
    total = sum(by_part.values())
    return Parameters(
        total=total,
        active=total - sum(count * layer.ffn.idle_params for layer, count in spec.layer_counts),
        non_embedding=total - by_part["embedding"] - by_part["positions"],
        by_part=by_part,
        ffn_detail=_ffn_detail(spec),
        by_layer=by_layer,
        outside=outside,
        tied=spec.head.tied,
    )


def _ffn_detail(spec: DecoderSpec) -> dict[str, int]:
    detail: dict[str, int] = {}
    for layer, count in spec.layer_counts:
        for role, params in layer.ffn.detail().items():
            detail[role] = detail.get(role, 0) + count * params
    return detail


@remembered
def layer_parameters(layer: LayerSpec) -> dict[str, int]:
    """Parameters of one layer by part; query and key norms count under norms."""
    norms = len(layer.block.norm_names) * sum(layer.norm.params(layer.attention.d_model).values())
    beside = {part: count for part, choice in layer.beside.items() if (count := choice.n_params)}
    return {
        "attention": layer.attention.n_params - layer.attention.n_norm_params,
        "ffn": layer.ffn.n_params,
        "norms": norms + layer.attention.n_norm_params,
        **beside,
    }
