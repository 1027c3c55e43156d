"""Positions as numbers added to the scores, against transformers' BLOOM, MPT, Falcon and T5; and a table's offset."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from archlab.components.attention.module import Step
from archlab.components.block.module import Block
from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.position.module import NoPosition, Table, make_position
from archlab.components.span import Span, TensorSpan
from archlab.errors import ConfigError
from archlab.options import read_options
from archlab.registry import choice

CPU = torch.device("cpu")


def position(name: str, n_heads: int = 4, **options: Any) -> Any:
    chosen = choice("position", name)
    sizes = {"context": 16, "d_model": 8, "n_heads": n_heads}
    return chosen.spec.resolve("position", name, read_options(chosen.spec, options), sizes)


def module(name: str, n_heads: int = 4, **options: Any) -> NoPosition:
    made = make_position(position(name, n_heads, **options), 8, 16).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 7, 8, 12, 16, 20, 32, 71, 112])
def test_alibi_slopes_are_those_of_bloom_mpt_and_falcon(n_heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt

    ours = torch.tensor(position("alibi", n_heads).slopes())
    two, float32 = torch.ones(1, 2, dtype=torch.int64), torch.float32
    assert torch.allclose(bloom(two, n_heads, float32)[:, 0, 1], ours, rtol=1e-6, atol=0)
    assert torch.allclose(falcon(two, n_heads, float32)[:, 0, 1], ours, rtol=2**-8, atol=0)  # Falcon's are bfloat16
    for max_bias in (8, 4, 16):
        ours = torch.tensor(position("alibi", n_heads, max_bias=max_bias).slopes())
        assert torch.allclose(-mpt(n_heads, 2, max_bias)[:, 0, 0], ours, rtol=1e-6, atol=0)
    assert position("alibi", n_heads, scale=0.25).slopes()[0] == position("alibi", n_heads).slopes()[0] / 4


def test_alibi_falls_with_distance() -> None:
    """Press et al. 2022, figure 3: with 8 heads the slopes are 1/2, 1/4, .., 1/256."""
    bias = module("alibi", 8).bias(torch.tensor([3]), torch.arange(4))
    assert bias[:, 0].tolist() == [[-3 / 2**i, -2 / 2**i, -1 / 2**i, 0.0] for i in range(1, 9)]


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (16, 64), (2, 9), (7, 100)])
def test_t5_buckets_are_those_of_its_decoder(n_buckets: int, max_distance: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(300)
    wanted = T5Attention._relative_position_bucket(-distance, False, n_buckets, max_distance)
    ours: Any = module("t5", n_buckets=n_buckets, max_distance=max_distance)
    assert torch.equal(ours.buckets(distance), wanted)
    assert ours.buckets(torch.tensor([-1, -200])).tolist() == [0, 0]


def test_t5_bias_is_that_of_its_decoder() -> None:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=20, is_decoder=True
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    ours: Any = module("t5", n_buckets=8, max_distance=20)
    ours.weight.data = theirs.relative_attention_bias.weight.data
    wanted = theirs.compute_bias(5, 25, past_seen_tokens=20)[0]
    mask = ours.mask(Span(20, 5), EVERYWHERE, CPU)
    seen = torch.arange(25) <= torch.arange(20, 25)[:, None]
    assert torch.equal(mask, wanted.masked_fill(~seen, -torch.inf))


def test_t5_refuses_a_distance_within_its_single_buckets() -> None:
    with pytest.raises(ConfigError, match="must be > 16"):
        position("t5", max_distance=16)


@pytest.mark.parametrize("locality", [EVERYWHERE, Locality(window=5), Locality(chunk=5)])
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_positions_as_a_tensor_give_what_numbers_give(name: str, locality: Locality) -> None:
    made = module(name, **({"n_buckets": 6, "max_distance": 9} if name == "t5" else {}))
    number, tensor = Span(8, 3), TensorSpan(torch.arange(8, 11), 16)
    found = []
    for span in (number, tensor):
        keys, mask = span.keys(CPU, locality), made.mask(span, locality, CPU)
        assert mask is not None
        found.append(
            {int(key): mask[..., index].tolist() for index, key in enumerate(keys) if mask[..., index].max() > -9}
        )
    assert found[0] == found[1] != {}


def test_alibi_slopes_survive_a_cast() -> None:
    made: Any = make_position(position("alibi", 6), 8, 16).bfloat16()
    assert made.tables[0].dtype == torch.float32
    assert made.tables[0].flatten().tolist() == pytest.approx(position("alibi", 6).slopes(), rel=1e-7)


def test_an_offset_skips_the_first_rows_as_opt_does() -> None:
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

    theirs, ours = OPTLearnedPositionalEmbedding(16, 8).double(), module("learned", offset=2)
    ours.load_state_dict(theirs.state_dict())
    wanted = theirs(torch.ones(1, 16, dtype=torch.int64), 5, position_ids=torch.arange(5, 8)[None])
    assert torch.equal(ours.embed(torch.zeros(1, 3, 8).double(), Span(5, 3)), wanted)
    assert position("learned", offset=2).params() == {"weight": 18 * 8}
    assert position("learned", offset=2).max_length == 16


def test_a_position_that_biases_without_a_bias_is_named() -> None:
    class Forgetful(NoPosition):
        biases = True

    with pytest.raises(NotImplementedError, match=r"Forgetful biases, and has no bias\(queries, keys\)"):
        Forgetful().mask(Span(0, 2), EVERYWHERE, CPU)


def test_what_a_base_leaves_to_its_kinds_is_named_where_one_has_it_not() -> None:
    class Bare(Table):
        pass

    class Idle(Block):
        pass

    with pytest.raises(NotImplementedError, match=r"^Bare has no compute\(rows, length\)$"):
        Bare(position("rope"), 8, 4)
    with torch.device("meta"), pytest.raises(NotImplementedError, match=r"^Bare has no shapes\(rows\)$"):
        Bare(position("rope"), 8, 4)
    with pytest.raises(NotImplementedError, match=r"^Idle has no forward\(x, step\)$"):
        Idle.__new__(Idle).forward(torch.zeros(1, 1, 4), Step())
