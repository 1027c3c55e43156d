"""What is shown of a choice, worked out without torch, is what the modules do."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import archlab
from archlab.components.attention.show import heads, mask
from archlab.components.block import module as blocks
from archlab.components.block.show import Step, layout, steps
from archlab.components.ffn.activation import ACTIVATIONS, middle_of
from archlab.components.ffn.show import CURVES, largest_gap, middle
from archlab.components.head.show import shares
from archlab.components.locality import Locality
from archlab.components.norm.module import make_norm
from archlab.components.norm.show import normed
from archlab.components.position.module import Rotary, T5Bias, make_position
from archlab.components.position.show import ARROWS, bucket, rotation
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import replace
from archlab.meaning import Here, meaning
from archlab.paper.explain.asked import Asked
from archlab.registry import choices, module_class

WIDE = torch.float64


def swapped(axis: str, name: str, **options: object) -> DecoderSpec:
    """The small model with another choice."""
    changes = {f"model/{axis}": [name]} | {f"model.{axis}.{key}": [value] for key, value in options.items()}
    [point] = archlab.sweep("gqa", changes)
    return point.spec


def here(axis: str, name: str, **options: object) -> Here:
    model = Asked().with_choice(axis, name)
    spec = swapped(axis, name, **options)
    layer = spec.layers[0]
    return replace(model.here(layer, axis), spec={**layer.axes(), "head": spec.head}[axis])


# --- norms and activations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("layernorm", {}),
        ("layernorm", {"eps": 0.5}),
        ("rmsnorm", {"eps": 0.5}),
        ("rmsnorm", {"eps_place": "outside", "eps": 0.5}),
        ("none", {}),
    ],
)
def test_a_norm_of_a_few_numbers(name: str, options: dict[str, object]) -> None:
    x = (1.0, 2.0, 3.0, 6.0)
    norm = swapped("norm", name, **options).norm
    module = make_norm(norm, 4).to(WIDE)
    for parameter_name, parameter in module.named_parameters():
        nn.init.constant_(parameter, float(parameter_name == "weight"))
    torch.testing.assert_close(torch.tensor(normed(norm, x), dtype=WIDE), module(torch.tensor([x], dtype=WIDE))[0])


def test_the_curves_are_those_of_the_module() -> None:
    assert CURVES.keys() == ACTIVATIONS.keys()
    x = torch.linspace(-9, 9, 2001, dtype=WIDE)
    for name, curve in CURVES.items():
        found = torch.tensor([curve(value) for value in x.tolist()], dtype=WIDE)
        torch.testing.assert_close(found, ACTIVATIONS[name](x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["swiglu", "geglu", "geglu_tanh", "reglu", "swiglu_clamped"])
def test_gates_are_those_of_the_module(name: str) -> None:
    ffn = swapped("ffn", name).layers[0].ffn
    between = middle(ffn)
    gate, up = torch.meshgrid(*[torch.linspace(-9, 9, 37, dtype=WIDE)] * 2, indexing="ij")
    found = [between(g, u) for g, u in zip(gate.flatten().tolist(), up.flatten().tolist(), strict=True)]
    expected = middle_of(ffn)(torch.stack((gate.flatten(), up.flatten()), -1)).flatten()
    torch.testing.assert_close(torch.tensor(found, dtype=WIDE), expected, rtol=1e-12, atol=1e-12)


def test_the_largest_gap_of_two_curves() -> None:
    gap, at = largest_gap(lambda x: x * 0, lambda x: max(0.0, 1 - abs(x - 2.5)))
    assert (gap, at) == (1.0, 2.5)


# --- masks and heads --------------------------------------------------------------------------------------------------


def marks(locality: Locality, places: int, step: int) -> list[str]:
    """The mask drawn from the module's own: each place is a square of step x step tokens."""
    positions = torch.arange(places * step)
    squares = locality.visible(positions, positions).reshape(places, step, places, step).transpose(1, 2).flatten(2)
    found = torch.where(squares.all(-1), 2, torch.where(squares.any(-1), 1, 0))
    return [" ".join("·□■"[mark] for mark in row) for row in found.tolist()]


@settings(max_examples=60)
@given(st.sampled_from(["window", "chunk"]), st.integers(1, 200))
def test_a_mask_is_drawn_as_it_is(kind: str, limit: int) -> None:
    locality = Locality(**{kind: limit})
    drawn = mask(locality)
    told = re.search(r"([\d,]+) tokens a mark", drawn.about)
    step = int(told[1]) if told else 1
    assert list(drawn.lines)[:16] == marks(locality, 16, step)
    assert step == 1 or 2 * limit < 16 * step <= 3 * limit  # a window comes to its end within the drawing


def test_a_mask_without_a_limit() -> None:
    assert list(mask(Locality()).lines) == marks(Locality(), 8, 1)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(8, 2), (8, 8), (8, 1), (4, 4), (12, 4), (6, 2), (32, 8), (64, 1)])
def test_a_query_head_stands_over_what_it_reads(n_heads: int, n_kv_heads: int) -> None:
    name = "mha" if n_kv_heads == n_heads else "mqa" if n_kv_heads == 1 else "gqa"
    options = {"n_heads": n_heads, "head_dim": 64} | ({"n_kv_heads": n_kv_heads} if name == "gqa" else {})
    queries, joints, read = heads(swapped("attention", name, **options).layers[0].attention).lines
    size = n_heads // n_kv_heads
    groups = [found.span() for found in re.finditer(r"└[─┬]*┘|│", joints)]
    assert groups
    for kv, (start, end) in enumerate(groups):
        above = [int(number) for number in re.findall(r"\d+", queries[start:end])]
        if size <= 16:
            assert above == list(range(kv * size, (kv + 1) * size))
        assert (above[0], above[-1]) == (kv * size, (kv + 1) * size - 1)
        stem = joints.index("┬", start) if size > 1 else start
        assert read[stem] == str(kv)[0]


# --- layouts ----------------------------------------------------------------------------------------------------------


def norm(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt()


def attention(x: Tensor) -> Tensor:
    return torch.sin(3 * x) + x.flip(-1)


def ffn(x: Tensor) -> Tensor:
    return torch.cos(2 * x) * 0.7


PARTS = {"norm": norm, "attention": attention, "ffn": ffn}


def walk(found: list[Step], x: Tensor, r: float, b: float) -> Tensor:
    """A layer as its steps say it is."""
    for step in found:
        shared = x
        for part in step.shared:
            shared = PARTS[part](shared)
        added = torch.zeros_like(x)
        for branch in step.branches:
            y = shared
            for part in branch:
                y = PARTS[part](y)
            added = added + y
        x = r * x + b * added
        for part in step.after:
            x = PARTS[part](x)
    return x


LAYOUTS = [(name, {}) for name in choices("block")] + [("parallel", {"n_norms": 2})]


@pytest.mark.parametrize(("name", "options"), LAYOUTS)
def test_a_layout_is_that_of_the_module(name: str, options: dict[str, object]) -> None:
    r, b = 0.5, -0.3
    block = swapped("block", name, residual_scale=r, branch_scale=b, **options).block
    module = SimpleNamespace(
        residual_scale=r,
        branch_scale=b,
        attend=lambda x, step: attention(x),
        feed=lambda x, step: ffn(x),
        shared=options.get("n_norms", 1) == 1,
    )
    module.add = lambda x, branch: blocks.Block.add(module, x, branch)
    for norm_name in block.norm_names:
        setattr(module, norm_name, norm)
    x = torch.randn(2, 3, 8, dtype=WIDE, generator=torch.Generator().manual_seed(0))
    expected = module_class("block", block).forward(module, x, None)
    torch.testing.assert_close(walk(steps(block), x, r, b), expected)


def test_how_layouts_are_drawn() -> None:
    drawn = {name: next(iter(layout(here("block", name)))).lines for name in choices("block")}
    assert drawn["pre_norm"] == [
        "x ─┬─> rmsnorm ─> gqa ──+ ─> y",
        "   └────────────────────┘",
        "y ─┬─> rmsnorm ─> swiglu ──+ ─> out",
        "   └───────────────────────┘",
    ]
    assert drawn["post_norm"][0] == "x ─┬─> gqa ──+ ─> rmsnorm ─> y"
    assert drawn["sandwich"][2] == "y ─┬─> rmsnorm ─> swiglu ─> rmsnorm ──+ ─> out"
    assert drawn["res_post_norm"][0] == "x ─┬─> gqa ─> rmsnorm ──+ ─> y"
    assert drawn["parallel"] == [
        "x ─┬─> rmsnorm ─┬─> gqa ─────+ ─> out",
        "   │            └─> swiglu ──┤",
        "   └─────────────────────────┘",
    ]


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (64, 1000), (2, 3), (7, 50)])
def test_buckets_are_those_of_the_module(n_buckets: int, max_distance: int) -> None:
    spec = swapped("position", "t5", n_buckets=n_buckets, max_distance=max_distance).position
    distances = torch.arange(2 * max_distance)
    module = make_position(spec, 64, 16)
    assert isinstance(module, T5Bias)
    assert [bucket(spec, distance) for distance in distances.tolist()] == module.buckets(distances).tolist()


ROTARY = [name for name in choices("position") if hasattr(choices("position")[name].spec, "amplitude")]


@pytest.mark.parametrize("name", ROTARY)
def test_arrows_point_where_the_tables_turn(name: str) -> None:
    """An arrow is the eighth of a turn nearest to the angle whose cosine and sine the module holds."""
    context = 8192
    found = here("position", name)
    spec = replace(found, context=context)
    table, angles, _ = rotation(spec)
    module = make_position(found.spec, 64, context)
    assert isinstance(module, Rotary)
    cos, sin = module.to(WIDE).tables
    for line in angles.lines:
        pair, arrows = int(line.split()[1]), line.split()[2:]
        eighths = torch.atan2(sin[:32, pair], cos[:32, pair]) * 4 / torch.pi
        assert arrows == [ARROWS[round(eighth) % 8] for eighth in eighths.tolist()]
    for row in table.rows:
        turned = torch.atan2(sin[1, row["pair"]], cos[1, row["pair"]]).item()
        assert row["radians"] == pytest.approx(turned, rel=1e-6)


# --- heads of the model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["gpt2", "qwen3-8b", "phi-2"])
def test_a_share_is_that_of_the_model_with_that_vocabulary(preset: str) -> None:
    model = Asked(preset).own()
    [table] = shares(model.here(model.spec.layers[0], "head"))
    assert len(table.rows) == 4 if preset == "phi-2" else 3
    for row in table.rows:
        size = int(str(row["tokens"]).replace(",", ""))
        points = archlab.sweep(preset, {"model/head": ["tied", "untied"], "model.vocab_size": [size]})
        for point in points:
            counts, head = archlab.parameters(point.spec), point.spec.head
            matrices = counts.by_part["embedding"] + head.params().get("weight", 0)
            assert row[head.choice] == pytest.approx(100 * matrices / counts.total, rel=1e-12)


def test_every_choice_shows_something_or_nothing_of_the_model_without_failing() -> None:
    for axis in ("norm", "position", "attention", "ffn", "dropout", "head", "block"):
        for name in choices(axis):
            model = Asked().with_choice(axis, name)
            layer = model.kinds(axis, name)[0][0]
            for part in meaning(axis, name).shows(model.here(layer, axis)):
                assert part.title
