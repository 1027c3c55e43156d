"""The candidates behind one interface. Each imports its own library when it is made.

`fresh(batch, length)` empties the KV cache; `step(ids, last_only)` runs ids [B, n] after what is cached and gives
logits; `rewind(length)` forgets what is cached beyond `length` tokens; `plain(ids)` runs without a cache.
"""

from __future__ import annotations

from typing import Any

import torch
from shapes import Shape
from torch import Tensor, nn


class Candidate:
    module: nn.Module

    def ready(self, *rows: int, train: bool = False) -> None:
        """Be ready for passes of so many rows, batch x tokens each, with or without gradients; not timed."""

    def fresh(self, batch: int, length: int) -> None:
        raise NotImplementedError

    def rewind(self, length: int) -> None:
        raise NotImplementedError

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        raise NotImplementedError

    def plain(self, ids: Tensor) -> Tensor:
        raise NotImplementedError


class Archlab(Candidate):
    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        import archlab

        choices = {key: [value] for key, _, value in (override.partition("=") for override in shape.overrides)}
        (point,) = archlab.sweep(shape.preset, choices)  # as `archlab.load`, without Hydra's 9 MiB
        self.module, self.dtype = archlab.build(point.spec, dtype=str(dtype).removeprefix("torch.")), dtype
        self.ready_for: tuple[Any, ...] = ()

    def ready(self, *rows: int, train: bool = False) -> None:
        if (rows, train) != self.ready_for:
            self.ready_for = rows, train
            self.module.tune(*rows, pack=self.dtype.itemsize == 2 and not train, train=train)

    def fresh(self, batch: int, length: int) -> None:
        from archlab.decoder.cache import KVCache

        self.cache = KVCache(self.module.spec, batch, length, self.dtype)

    def rewind(self, length: int) -> None:
        self.cache.reset()
        self.cache.advance(length)

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        return self.module(ids, self.cache, last_only=last_only)

    def plain(self, ids: Tensor) -> Tensor:
        return self.module(ids)


class ByHand(Candidate):
    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        from reference import Reference

        self.shape, self.dtype, self.module = shape, dtype, Reference(shape).to(dtype)

    def fresh(self, batch: int, length: int) -> None:
        shape = self.shape
        self.cache = torch.zeros(shape.n_layers, 2, batch, shape.n_kv_heads, length, shape.head_dim, dtype=self.dtype)
        self.held = 0

    def rewind(self, length: int) -> None:
        self.held = length

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        logits = self.module(ids, self.cache, self.held, last_only)
        self.held += ids.shape[1]
        return logits

    def plain(self, ids: Tensor) -> Tensor:
        return self.module(ids, None, 0, False)


class HuggingFace(Candidate):
    """LlamaForCausalLM or GPT2LMHeadModel of transformers, with its DynamicCache or StaticCache."""

    static = False
    compiled = False

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

        if shape.preset == "gpt2":
            undropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
            self.module = GPT2LMHeadModel(GPT2Config(**undropped))
        else:
            config = LlamaConfig(
                hidden_size=shape.d_model,
                num_hidden_layers=shape.n_layers,
                num_attention_heads=shape.n_heads,
                num_key_value_heads=shape.n_kv_heads,
                head_dim=shape.head_dim,
                intermediate_size=shape.d_ff,
                vocab_size=shape.vocab_size,
                max_position_embeddings=shape.context,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            )
            self.module = LlamaForCausalLM(config)
        self.module = self.module.to(dtype)
        self.decode = torch.compile(self.module, fullgraph=False) if self.compiled else self.module

    def fresh(self, batch: int, length: int) -> None:
        from transformers import DynamicCache, StaticCache

        made = {"config": self.module.config}
        self.cache: Any = StaticCache(**made, max_cache_len=length) if self.static else DynamicCache(**made)
        self.held = 0

    def rewind(self, length: int) -> None:
        if self.static:
            for layer in self.cache.layers:
                layer.cumulative_length.fill_(length)
        else:
            if self.held > length:
                self.cache.crop(length - self.held)
        self.held = length

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        run = self.decode if ids.shape[1] == 1 else self.module
        more = {"logits_to_keep": 1} if last_only else {}
        at = torch.arange(self.held, self.held + ids.shape[1])[None]
        self.held += ids.shape[1]
        return run(ids, past_key_values=self.cache, use_cache=True, position_ids=at, **more).logits

    def plain(self, ids: Tensor) -> Tensor:
        return self.module(ids, use_cache=False).logits


class HuggingFaceStatic(HuggingFace):
    static = True

    def plain(self, ids: Tensor) -> Tensor:
        raise NotImplementedError("trains as hf-dynamic does")


class HuggingFaceCompiled(HuggingFaceStatic):
    compiled = True


class LitGPT(Candidate):
    """Its learned positions do not exist: GPT-2's shape runs with rotary ones."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        from litgpt.config import Config
        from litgpt.model import GPT

        llama = shape.preset != "gpt2"
        self.config = Config(
            name=shape.preset,
            block_size=shape.context,
            n_embd=shape.d_model,
            n_layer=shape.n_layers,
            n_head=shape.n_heads,
            n_query_groups=shape.n_kv_heads,
            head_size=shape.head_dim,
            intermediate_size=shape.d_ff,
            vocab_size=shape.vocab_size,
            padded_vocab_size=shape.vocab_size,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=not llama,
            lm_head_bias=False,
            norm_class_name="RMSNorm" if llama else "LayerNorm",
            mlp_class_name="LLaMAMLP" if llama else "GptNeoxMLP",
            gelu_approximate="tanh",
            rope_base=1000000,
        )
        self.module, self.dtype = GPT(self.config), dtype
        self.module.lm_head.weight = self.module.transformer.wte.weight
        self.module = self.module.to(dtype)

    def fresh(self, batch: int, length: int) -> None:
        self.module.max_seq_length = length
        self.module.set_kv_cache(batch_size=batch, max_seq_length=length, dtype=self.dtype)
        self.held = 0

    def rewind(self, length: int) -> None:
        self.held = length

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        at = torch.arange(self.held, self.held + ids.shape[1])
        self.held += ids.shape[1]
        return self.module(ids, at, input_pos_maxp1=self.held)

    def plain(self, ids: Tensor) -> Tensor:
        self.module.clear_kv_cache()
        self.module.max_seq_length = self.config.block_size
        return self.module(ids)


class XTransformers(Candidate):
    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        from x_transformers import Decoder, TransformerWrapper

        llama = shape.preset != "gpt2"
        gated = {"ff_no_bias": True, "ff_swish": True, "ff_glu": True, "use_rmsnorm": True}
        options: dict[str, Any] = {**gated, "rotary_pos_emb": True, "rotary_emb_dim": shape.head_dim} if llama else {}
        layers = Decoder(
            dim=shape.d_model,
            depth=shape.n_layers,
            heads=shape.n_heads,
            attn_kv_heads=shape.n_kv_heads,
            attn_dim_head=shape.head_dim,
            attn_flash=True,
            ff_mult=shape.d_ff / shape.d_model,
            **options,
        )
        self.module = TransformerWrapper(
            num_tokens=shape.vocab_size,
            max_seq_len=shape.context,
            attn_layers=layers,
            tie_embedding=True,
            use_abs_pos_emb=not llama,
        ).to(dtype)

    def fresh(self, batch: int, length: int) -> None:
        self.cache, self.held, self.cut = None, 0, None

    def rewind(self, length: int) -> None:
        if self.cut is None:
            self.cut = self.cache  # its caches are new tensors each step: the prompt's is still whole
        self.cache, self.held, self.seen = self.cut, length, self.prompt

    def step(self, ids: Tensor, last_only: bool) -> Tensor:
        if self.cache is None:
            self.prompt = self.seen = ids
        else:
            self.seen = torch.cat((self.seen, ids), 1)
        logits, self.cache = self.module(self.seen, return_intermediates=True, cache=self.cache)
        return logits

    def plain(self, ids: Tensor) -> Tensor:
        return self.module(ids)


CANDIDATES: dict[str, type[Candidate]] = {
    "archlab": Archlab,
    "by-hand": ByHand,
    "hf-dynamic": HuggingFace,
    "hf-static": HuggingFaceStatic,
    "hf-static-compiled": HuggingFaceCompiled,
    "litgpt": LitGPT,
    "x-transformers": XTransformers,
}
