"""The real model: a torch module built from a DecoderSpec, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from archlab.components.attention.module import SharedKV, Step
from archlab.components.attention.sight import Sight
from archlab.components.block.module import Block, scaled
from archlab.components.linear import Embedding
from archlab.components.norm.module import make_norm
from archlab.components.position.module import NoPosition, make_position
from archlab.components.span import Span, TensorSpan
from archlab.components.tape import RECOMPUTE
from archlab.decoder.cache import KVCache
from archlab.decoder.generate import Generative
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.decoder.tune import tune, unpack
from archlab.errors import ConfigError, RequestError
from archlab.registry import module_class


class Decoder(Generative):
    """A decoder-only language model. `archlab.build` makes one and sets its weights.

    positions: the distinct position modules, the model's own first; layers with the same choice share one.
    """

    positions: Sequence[NoPosition]

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = Embedding(spec.vocab_size, spec.d_model)
        self.shared_kv = spec.shared_kv
        positions, self.position_of = _positions(spec)
        self.positions = nn.ModuleList(positions)  # type: ignore[assignment]
        self.embedding_norm = make_norm(spec.norm, spec.d_model) if spec.block.embedding_norm else nn.Identity()
        self.embedding_dropout = nn.Dropout(spec.dropout.embedding)
        self.layers = nn.ModuleList(_layer(layer, spec.d_model) for layer in spec.layers)
        self.final_norm = make_norm(spec.norm, spec.d_model) if spec.block.final_norm else nn.Identity()
        self.output_dropout = nn.Dropout(spec.dropout.output)
        self.head = module_class("head", spec.head)(spec.head)
        self._recompute = "none"
        self._localities = [layer.attention.locality for layer in spec.layers]
        _ = spec.max_length  # as the localities, worked out before torch.compile traces a pass

    @property
    def recompute(self) -> str:
        """What a backward pass works out again instead of keeping it.

        `none`; `selective`: the attention's scores (Korthikanti et al. 2022, section 5); `full`: each layer, from its
        input (Chen et al. 2016). A pass into a KV cache or without gradients is as ever.
        """
        return self._recompute

    @recompute.setter
    def recompute(self, what: str) -> None:
        if what not in RECOMPUTE:
            raise ConfigError("recompute", f"{what!r} is not one of its values", value=what, valid=RECOMPUTE)
        self._recompute = what

    def forward(self, ids: Tensor, cache: KVCache | None = None, last_only: bool = False) -> Tensor:
        """Token ids [B, n] -> logits [B, n, V], or [B, 1, V] with last_only; a task head gives [B, n_outputs].

        cache: holds the tokens before these, and these afterwards; `cache.reset()` starts anew. Raises RequestError,
        before anything is launched, where the run is longer than the positions or the cache go.
        """
        span = self._span(ids, cache)
        x = self._embed(ids, span)
        again = self.recompute if cache is None and torch.is_grad_enabled() else "none"
        for layer, step in zip(self.layers, self._steps(span, cache, ids, again == "selective"), strict=True):
            x = checkpoint(layer, x, step, use_reentrant=False) if again == "full" else layer(x, step)
        if cache is not None:
            cache.advance(ids.shape[1])
        one_row = self.spec.head.last_token_only
        x = self.final_norm(x[:, -1:] if last_only or one_row else x)
        y: Tensor = self.head(self.output_dropout(x), self.embedding.weight)
        return y[:, 0] if one_row else y

    def tune(self, *rows: int, pack: bool = False, train: bool = False) -> dict[str, str]:
        """Find the quickest products on this CPU, for each number of rows that a pass has: batch x tokens.

        A decode step has a row a sequence. pack: weights may lie as oneDNN reads them, which nothing but inference can
        use until `unpack`; what moves, casts or loads them unpacks them itself. A tied head has a copy, which is let go
        when the embedding changes; as autograd, it is not told of what is written through `.data`. train: for passes
        with gradients, for which weights are unpacked. Returns what was found; nothing on another device, or where the
        decoder is compiled. Raises RequestError for no number of rows, and for pack with train.
        """
        if self._compiled_call_impl is not None:
            return {}
        return tune(self, self.embedding.weight, rows, pack, train)

    def unpack(self) -> None:
        """Have all weights as they were before `tune`, to the bit."""
        unpack(self)

    def _span(self, ids: Tensor, cache: KVCache | None) -> Span | TensorSpan:
        if ids.dim() != 2 or 0 in ids.shape:
            raise RequestError(f"ids are {list(ids.shape)}, not [batch, tokens] with one token or more")
        batch, count = ids.shape
        if cache is not None and cache.batch != batch:
            raise RequestError(f"the KV cache holds {cache.batch} sequences; {batch} were given")
        span = Span(0, count) if cache is None else cache.span(count)
        end = span.end if isinstance(span, Span) else span.length
        self.spec.check_length(end)
        for position in self.positions:
            position.reach(count if cache is None else cache.length)
        return span

    def _embed(self, ids: Tensor, span: Span | TensorSpan) -> Tensor:
        """Token and position embedding, [B, n, d_model]; dropout once, on the sum."""
        x = scaled(self.embedding(ids), self.spec.block.embedding_scale)
        return self.embedding_dropout(self.embedding_norm(self.positions[0].embed(x, span)))

    def _steps(
        self, span: Span | TensorSpan, cache: KVCache | None, ids: Tensor, recompute: bool = False
    ) -> Iterator[Step]:
        """What each layer's attention is told of this pass, layer by layer; angles and sights are made once a kind.

        Keys and values that layers share are let go when the next layer of their kind has its own.
        """
        rotations = [position.rotation(span) for position in self.positions]
        sights: dict[Any, Sight] = {}
        shared: dict[int | None, SharedKV] = {}
        for index, (layer, kind, kv) in enumerate(zip(self.spec.layers, self.position_of, self.shared_kv, strict=True)):
            if kv is not None and not layer.attention.shares_kv:
                shared[kv] = SharedKV()
            locality = self._localities[index]
            key = (kind if self.positions[kind].biases else None, locality)
            if key not in sights:
                sights[key] = Sight(self.positions[kind], span, locality, ids.device)
            memory = None if cache is None else cache.layer(index, span)
            yield Step(rotations[kind], sights[key], memory, recompute, shared.get(kv))


def _layer(spec: LayerSpec, width: int) -> Block:
    attention = module_class("attention", spec.attention)(spec.attention, spec.dropout)
    ffn = module_class("ffn", spec.ffn)(spec.ffn, spec.dropout)
    layer: Block = module_class("block", spec.block)(spec.block, spec.norm, width, attention, ffn)
    for placed in spec.placed:
        if not placed.idle:
            layer.put(placed.place, module_class(placed.axis, placed)(placed))
    return layer


def _positions(spec: DecoderSpec) -> tuple[list[NoPosition], list[int]]:
    """The distinct position modules, the model's own first, and which of them each layer asks."""
    modules = [make_position(position, width, spec.context) for position, width in spec.position_kinds]
    asked = [spec.position_kinds.index(layer.position_kind) for layer in spec.layers]
    return modules, asked
