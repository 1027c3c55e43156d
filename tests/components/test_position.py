"""Positions: tables against transformers, against the right answers of public bug reports, and against every cast."""

from __future__ import annotations

import copy
import math
import pickle
import random
from typing import Any

import pytest
import torch
from torch import nn

from archlab.components.position.module import NoPosition, Rotation, make_position
from archlab.components.position.spec import Position, Rope, YarnRope
from archlab.components.span import Span, TensorSpan
from archlab.errors import ConfigError
from archlab.options import read_options
from archlab.registry import choice


def position(name: str, *, context: int = 64, d_model: int = 32, **options: Any) -> Any:
    """The resolved spec of a position choice."""
    chosen = choice("position", name)
    sizes = {"context": context, "d_model": d_model}
    return chosen.spec.resolve("position", name, read_options(chosen.spec, options), sizes)


def rotation(spec: Position, head_dim: int, length: int, context: int = 64, dtype: Any = torch.float64) -> Rotation:
    module = make_position(spec, head_dim, context).to(dtype)
    module.reach(length)
    turned = module.rotation(Span(0, length))
    assert turned is not None
    return turned


# --- against transformers


def random_scaling(kind: str, draw: random.Random, pairs: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One random scaling: as rope_parameters, and as our options."""
    if kind == "default":
        return {}, {}
    if kind in ("linear", "dynamic"):
        factor = draw.choice([1.0, 2.0, 4.5])
        return {"factor": factor}, {"factor": factor}
    original = draw.choice([16, 64, 2048])
    theirs: dict[str, Any] = {"original_max_position_embeddings": original}
    ours: dict[str, Any] = {"original_context": original}
    same: dict[str, Any] = {"factor": draw.choice([2.0, 8.0, 40.0])}
    if kind == "yarn":
        same |= {"beta_fast": draw.choice([32.0, 8.0]), "beta_slow": draw.choice([1.0, 2.0])}
        same |= draw.choice([{}, {"attention_factor": 1.0}, {"mscale": 0.7, "mscale_all_dim": 1.3}])
        same |= draw.choice([{}, {"truncate": False}])
    elif kind == "llama3":
        same |= {"low_freq_factor": draw.choice([1.0, 2.0]), "high_freq_factor": draw.choice([4.0, 8.0])}
    else:
        same = {name: [draw.uniform(1, 8) for _ in range(pairs)] for name in ("short_factor", "long_factor")}
        same |= draw.choice([{}, {"attention_factor": 1.3}])
    return theirs | same, ours | same


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
@pytest.mark.parametrize("seed", range(8))
def test_tables_are_those_of_transformers(kind: str, seed: int) -> None:
    models = pytest.importorskip("transformers.models.llama")
    ropes = pytest.importorskip("transformers.modeling_rope_utils")
    draw = random.Random(seed)
    head_dim, context = draw.choice([8, 16, 64, 128]), draw.choice([64, 256, 4096])
    base, length = draw.choice([100.0, 1e4, 5e5]), draw.choice([16, 64, 300, 5000])
    theirs, ours = random_scaling(kind, draw, head_dim // 2)
    config = models.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=context,
        rope_parameters={"rope_type": kind, "rope_theta": base, **theirs},
    )
    plain = models.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters
    wanted, amplitude = plain(config) if kind == "default" else ropes.ROPE_INIT_FUNCTIONS[kind](config, "cpu", length)
    name = {"default": "rope", "dynamic": "ntk"}.get(kind, kind)
    spec = position(name, context=context, base=base, **ours)
    given = torch.tensor(spec.frequencies(head_dim, length), dtype=torch.float64)
    assert torch.allclose(given, wanted.double(), rtol=2e-6, atol=0)  # theirs is float32
    assert spec.amplitude() == pytest.approx(float(amplitude), rel=1e-12)
    tables = rotation(spec, head_dim, length, context)
    angles = torch.outer(torch.arange(length).double(), given)
    assert torch.allclose(tables.cos, angles.cos() * amplitude, rtol=0, atol=1e-12)
    assert torch.allclose(tables.sin, angles.sin() * amplitude, rtol=0, atol=1e-12)


# --- public cases


@pytest.mark.parametrize(
    ("head_dim", "base", "original", "ramp", "kept", "divided"),
    [(64, 1e4, 131_072, (22, 35), 23, 0), (128, 1e6, 32_768, (23, 40), 24, 24)],
)
def test_c01_yarn_ramp_is_rounded_outward_and_clamped_at_the_width(
    head_dim: int, base: float, original: int, ramp: tuple[int, int], kept: int, divided: int
) -> None:
    spec = position("yarn", base=base, factor=4, original_context=original)
    plain = Rope.frequencies(spec, head_dim, 1)
    ratios = [p / w for p, w in zip(plain, spec.frequencies(head_dim, 1), strict=True)]
    assert spec.ramp(head_dim) == ramp
    assert sum(ratio == pytest.approx(1, rel=1e-12) for ratio in ratios) == kept
    assert sum(ratio == pytest.approx(4, rel=1e-12) for ratio in ratios) == divided
    assert spec.amplitude() == pytest.approx(1.138629, abs=1e-6)


def test_c01_yarn_ramp_without_rounding() -> None:
    spec = position("yarn", factor=4, original_context=131_072, truncate=False)
    assert spec.ramp(64) == pytest.approx((22.513, 34.555), abs=1e-3)


def test_c03_an_explicit_attention_factor_is_used_as_it_stands() -> None:
    assert position("yarn", factor=64, attention_factor=1.0).amplitude() == 1.0
    assert position("yarn", factor=64).amplitude() == pytest.approx(1.415888, abs=1e-6)
    module = rotation(position("yarn", factor=64, attention_factor=1.0), 16, 8)
    assert module.cos[0].tolist() == [1.0] * 8


@pytest.mark.parametrize(("factor", "amplitude"), [(2, 1.069315), (4, 1.138629), (8, 1.207944)])
def test_c06_the_explicit_factor_wins_over_the_ratio_of_lengths(factor: float, amplitude: float) -> None:
    spec: YarnRope = position("yarn", context=131_072, original_context=32_768, factor=factor)
    slowest = Rope.frequencies(spec, 128, 1)[-1]
    assert spec.frequencies(128, 1)[-1] == pytest.approx(slowest / factor)
    assert spec.amplitude() == pytest.approx(amplitude, abs=1e-6)
    said = f"factor {factor} holds, though the context is 4 times the original"
    assert spec.remarks() == (() if factor == 4 else (said,))


def test_c06_nothing_is_said_where_no_ratio_is_given() -> None:
    assert position("yarn", context=32_768, original_context=32_768, factor=4).remarks() == ()


def test_c08_the_scale_stays_outside_the_power() -> None:
    given = position("linear", factor=4).frequencies(64, 1)
    assert given == pytest.approx([1 / (4 * 10_000 ** (2 * i / 64)) for i in range(32)])


def test_c09_llama3_bands() -> None:
    spec = position("llama3", base=500_000.0, factor=32, original_context=8192)
    plain = Rope.frequencies(spec, 64, 1)
    ratios = [p / w for p, w in zip(plain, spec.frequencies(64, 1), strict=True)]
    assert ratios[:15] == pytest.approx([1] * 15)
    assert ratios[15:18] == pytest.approx([1.6513, 3.2923, 9.6667], abs=1e-4)
    assert ratios[18:] == pytest.approx([32] * 14)


@pytest.mark.parametrize(("length", "base"), [(100, 10_000), (2048, 10_000), (4096, 30_527.7), (8192, 72_195.9)])
def test_c11_dynamic_ntk_base(length: int, base: float) -> None:
    spec = position("ntk", context=2048, factor=2)
    assert spec.frequencies(128, length)[1] ** -64 == pytest.approx(base, abs=0.05)
    fixed = position("ntk", context=2048, factor=2, rope_length=length)
    assert fixed.frequencies(128, 1) == spec.frequencies(128, length)


def test_c14_half_of_the_head_is_rotated() -> None:
    turned = rotation(position("rope", fraction=0.5), 128, 9)
    x = torch.randn(2, 3, 9, 128, dtype=torch.float64)
    assert turned.cos.shape == (9, 32)
    assert torch.equal(turned(x)[..., 64:], x[..., 64:])
    assert (turned(x)[..., 1:, :64] != x[..., 1:, :64]).all()


def test_c16_the_two_layouts_differ_by_a_permutation_of_features() -> None:
    q, k = torch.randn(2, 7, 16, dtype=torch.float64)
    half, interleaved = (rotation(position("rope", layout=layout), 16, 7) for layout in ("half", "interleaved"))
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    scores = interleaved(q) @ interleaved(k).T
    assert torch.allclose(half(q[:, order]) @ half(k[:, order]).T, scores, rtol=0, atol=1e-12)
    assert not torch.allclose(half(q) @ half(k).T, scores, rtol=0, atol=0.1)
    assert torch.equal(half(q)[0], q[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_c17_angles_are_never_in_half_precision(dtype: torch.dtype) -> None:
    turned = rotation(position("rope"), 32, 2048, 2048, dtype)
    angle = 1857 * 10_000 ** (-2 / 32)
    assert angle == pytest.approx(1044.2678, abs=1e-4)
    assert turned.cos.dtype == torch.float32
    assert turned.cos[1857, 1].item() == pytest.approx(math.cos(angle), abs=1e-7)
    assert turned.sin[1857, 1].item() == pytest.approx(math.sin(angle), abs=1e-7)


@pytest.mark.parametrize(("width", "sines"), [(29, 15), (127, 64), (8, 4)])
def test_c19_an_odd_width_has_one_sine_column_more(width: int, sines: int) -> None:
    module = make_position(position("sinusoidal", d_model=width), 1, 64).double()
    table = module.embed(torch.zeros(1, 64, width, dtype=torch.float64), Span(0, 64))[0]
    assert table[:, 0::2].shape[1] == sines
    for column in range(width):
        wave = math.sin if column % 2 == 0 else math.cos
        assert table[5, column].item() == pytest.approx(wave(5 * 10_000 ** (-2 * (column // 2) / width)), abs=1e-12)


# --- the numbers of the study notes


def test_frequencies_of_known_heads() -> None:
    minimind = position("rope", base=1e6).frequencies(96, 1)
    assert minimind[:3] == pytest.approx([1, 0.7499, 0.5623], abs=5e-5)
    assert minimind[47] == pytest.approx(1.334e-6, rel=5e-4)
    assert position("rope").frequencies(128, 1)[:3] == pytest.approx([1, 0.866, 0.750], abs=5e-4)


def test_scores_depend_on_the_distance_alone() -> None:
    turned = rotation(position("rope", base=100.0), 4, 64)  # frequencies 1 and 0.1
    q = turned(torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64).expand(64, 4))
    assert (q[3] @ q[4]).item() == pytest.approx(1.5353, abs=5e-5)
    assert (q[50] @ q[57]).item() == pytest.approx(1.5187, abs=5e-5)
    assert (q[50] @ q[51]).item() == pytest.approx((q[0] @ q[1]).item(), abs=1e-12)


# --- tables that no cast can touch


def tables(module: NoPosition) -> tuple[torch.Tensor, ...]:
    found: tuple[torch.Tensor, ...] = module.tables  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("name", ["rope", "sinusoidal"])
def test_tables_survive_every_move(name: str) -> None:
    spec = position(name)
    wide = tables(make_position(spec, 8, 64).double())
    moves = {
        "bfloat16": lambda m: m.to(torch.bfloat16),
        "half and back": lambda m: m.half().float(),
        "device and dtype": lambda m: m.to("cpu", torch.float16),
        "copy": lambda m: copy.deepcopy(m.bfloat16()),
        "pickle": lambda m: pickle.loads(pickle.dumps(m.half())),
        "from the meta device": lambda m: m.to("meta").to_empty(device="cpu").bfloat16(),
        "double and back": lambda m: m.double().float(),
    }
    for move, apply in moves.items():
        moved = tables(apply(nn.Sequential(make_position(spec, 8, 64)))[0])
        assert [t.dtype for t in moved] == [torch.float32] * len(wide), move
        assert all(torch.equal(t, w.float()) for t, w in zip(moved, wide, strict=True)), move


def test_tables_on_the_meta_device_have_no_storage_but_grow() -> None:
    with torch.device("meta"):
        module = make_position(position("rope"), 8, 64)
    module.reach(100)
    assert [(t.device.type, t.shape) for t in tables(module)] == [("meta", (100, 4))] * 2


def test_tables_are_no_state() -> None:
    assert not make_position(position("rope"), 8, 64).state_dict()


def test_tables_grow_with_the_run_and_keep_their_rows() -> None:
    module = make_position(position("rope"), 8, 64)
    before = tables(module)[0].clone()
    module.reach(200)
    assert torch.equal(tables(module)[0][:64], before)
    assert tables(module)[0].shape == (200, 4)


def test_tables_grown_while_generating_can_be_trained_with() -> None:
    module = make_position(position("rope"), 8, 4)
    with torch.inference_mode():
        module.reach(9)
    turned = module.rotation(Span(0, 9))
    assert turned is not None
    turned(torch.ones(9, 8, requires_grad=True)).sum().backward()


def test_a_length_dependent_table_follows_the_run_both_ways() -> None:
    module = make_position(position("ntk", context=16, factor=2), 8, 16)
    short = tables(module)[0].clone()
    module.reach(64)
    long = tables(module)[0].clone()
    module.reach(16)
    assert not torch.equal(long[:16], short)
    assert torch.equal(tables(module)[0][:16], short)


@pytest.mark.parametrize("name", ["rope", "sinusoidal", "learned"])
def test_positions_as_a_tensor_give_what_numbers_give(name: str) -> None:
    module = make_position(position(name), 8, 64)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    number, tensor = Span(5, 3), TensorSpan(torch.arange(5, 8), 64)
    x = torch.randn(2, 3, 32)
    assert torch.equal(module.embed(x, number), module.embed(x, tensor))
    one, other = module.rotation(number), module.rotation(tensor)
    if one is not None and other is not None:
        assert torch.equal(one.cos, other.cos)
        assert torch.equal(one.sin, other.sin)


def test_embeddings_keep_the_dtype_of_the_model() -> None:
    x = torch.zeros(1, 4, 32, dtype=torch.bfloat16)
    assert make_position(position("sinusoidal"), 8, 64).bfloat16().embed(x, Span(0, 4)).dtype == torch.bfloat16


def test_what_turns_needs_something_to_turn() -> None:
    with pytest.raises(ConfigError, match="yarn turns queries and keys, and this attention has none to turn"):
        position("yarn", factor=4.0, original_context=64).check_head(0)


@pytest.mark.parametrize(("fraction", "head_dim"), [(1.0, 7), (0.5, 6), (0.1, 8)])
def test_an_odd_rotary_size_is_refused(fraction: float, head_dim: int) -> None:
    with pytest.raises(ConfigError, match="even number"):
        position("rope", fraction=fraction).check_head(head_dim)
