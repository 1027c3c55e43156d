"""What is counted on a module is what the closed form of the same thing says: twins of archlab's own choices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archlab
from archlab.components.dropout.spec import Dropout
from archlab.cost.activations import Training, kept
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, Unsaid
from archlab.inside.contract import BASE, contract

pytestmark = pytest.mark.usefixtures("own_choices")

MODEL = BASE | {"d_model": 24, "attention": {"choice": "mha", "n_heads": 4, "head_dim": 6}}


def bring(axis: str, module: Any, name: str = "twin") -> None:
    archlab.component(axis, name, summary="for a test")(module)


def spec_of(**blocks: Any) -> DecoderSpec:
    return resolve(MODEL | {axis: MODEL.get(axis, {}) | block for axis, block in blocks.items()}).spec


def costs(spec: DecoderSpec) -> dict[str, Any]:
    """All that is costed of a model: FLOPs full and causal, what training keeps with and without its scores."""
    run = [archlab.flops(spec, 2, 5, 3, convention) for convention in ("full", "causal")]
    trained = [kept(spec, Training(2, 9, "bf16", recompute=recompute)) for recompute in ("none", "selective")]
    return {
        "params": archlab.parameters(spec).by_part,
        "flops": [(one.prefill, one.decode, one.by_part) for one in run],
        "cache": archlab.kv_cache(spec, 3, 8, "fp32").bytes,
        "kept": [sum(size for purpose, size in one.items() if purpose != "held") for one in trained],
    }


class Norm(nn.Module):
    def __init__(self, features: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.features, self.eps = features, eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.features,), self.weight, self.eps)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, dropout: Dropout, *, d_ff: int = 20) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = nn.Dropout(dropout.ffn)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.dropout(self.down(F.silu(gate) * up))


class MultiHead(archlab.Attending):
    def __init__(
        self, d_model: int, n_heads: int, dropout: Dropout, *, head_dim: int = 6, window: int | None = None
    ) -> None:
        super().__init__(dropout=dropout)
        self.head_dim = head_dim
        self.qkv = nn.Linear(d_model, 3 * n_heads * head_dim, bias=False)
        self.o = nn.Linear(n_heads * head_dim, d_model, bias=False)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        q, k, v = (t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = step.turned(q), step.turned(k)
        k, v = step.with_earlier(key=k, value=v)
        return self.finish(self.attend(q, k, v, step, 1 / math.sqrt(self.head_dim)))


class Untied(nn.Module):
    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Tied(nn.Module):
    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        return F.linear(x, embedding)


class PreNorm(archlab.Block):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        x = self.add(x, self.attend(self.attention_norm(x), step))
        return self.add(x, self.feed(self.ffn_norm(x), step))


class Sandwich(archlab.Block):
    norms = ("attention_norm", "attention_post_norm", "ffn_norm", "ffn_post_norm")

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        x = self.add(x, self.attention_post_norm(self.attend(self.attention_norm(x), step)))
        return self.add(x, self.ffn_post_norm(self.feed(self.ffn_norm(x), step)))


class Learned(archlab.NoPosition):
    def __init__(self, d_model: int, context: int) -> None:
        super().__init__()
        self.max_length = context
        self.weight = nn.Parameter(torch.zeros(context, d_model))

    def embed(self, x: Tensor, span: Any) -> Tensor:
        return x + span.rows(self.weight)


class Rotary(archlab.NoPosition):
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def rotation(self, span: Any) -> archlab.Rotation:
        frequencies = 10_000.0 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        angles = span.positions(frequencies.device)[:, None] * frequencies
        return archlab.Rotation(angles.cos(), angles.sin(), interleaved=False)


class PerHeadBias(archlab.NoPosition):
    """A trained number a head and distance: T5 with a bucket for each of 8 distances."""

    biases = True

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, n_heads))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.weight[(queries[:, None] - keys).clamp(0, 7)].permute(2, 0, 1)


TWINS = [
    ("norm", Norm, "rmsnorm", {}),
    ("ffn", SwiGLU, "swiglu", {}),
    ("attention", MultiHead, "mha", {}),
    ("attention", MultiHead, "mha", {"window": 3}),
    ("head", Untied, "untied", {}),
    ("head", Tied, "tied", {}),
    ("block", PreNorm, "pre_norm", {}),
    ("block", Sandwich, "sandwich", {}),
    ("position", Learned, "learned", {}),
    ("position", Rotary, "rope", {}),
]


@pytest.mark.parametrize(("axis", "module", "own", "options"), TWINS)
def test_a_twin_costs_what_archlabs_own_choice_costs(axis: str, module: Any, own: str, options: dict[str, Any]) -> None:
    bring(axis, module)
    ours, theirs = (spec_of(**{axis: {"choice": name, **options}}) for name in (own, "twin"))
    assert costs(theirs) == costs(ours)
    assert ours.counted == ()
    assert theirs.counted[0][:2] == (axis, "twin")
    assert theirs.head.tied == ours.head.tied
    assert theirs.max_length == ours.max_length


@pytest.mark.parametrize("twin", [("attention", MultiHead), ("block", Sandwich), ("position", PerHeadBias)])
def test_a_twin_keeps_its_contract(twin: tuple[str, Any]) -> None:
    bring(*twin)
    assert [check for check in contract(twin[0], "twin") if not check["ok"]] == []


def test_every_head_has_a_norm_of_its_own_where_that_is_asked_for() -> None:
    bring("norm", Norm)
    shared, own = (
        spec_of(norm={"choice": "twin"}, attention={"choice": "mha", "qk_norm": how}) for how in ("head", "per_head")
    )
    heads, width = 4, 6
    more = archlab.parameters(own).total - archlab.parameters(shared).total
    assert more == 2 * 2 * (heads - 1) * width  # two layers, queries and keys
    decoder = archlab.build(own, dtype="fp64")
    decoder.layers[0].attention.q_norm.norms[1].weight.data.mul_(2)
    x = torch.randn(1, 1, heads, width, dtype=torch.float64)
    expected = F.rms_norm(x, (width,), eps=1e-6)
    expected[:, :, 1] *= 2
    torch.testing.assert_close(decoder.layers[0].attention.q_norm(x), expected)


# --- states -----------------------------------------------------------------------------------------------------------


class Linear(nn.Module):
    """Linear attention: a state instead of a cache. Katharopoulos et al. 2020, equations 18 to 20."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.width = d_model // n_heads
        self.qkv, self.o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        q, k, v = (t.unflatten(-1, (-1, self.width)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = F.elu(step.turned(q)) + 1, F.elu(step.turned(k)) + 1
        outer = k.unsqueeze(-1) * v.unsqueeze(-2)
        summed = step.recall("summed", outer.new_zeros(outer[:, :, 0].shape)).unsqueeze(2) + outer.cumsum(2)
        step.carry(summed=summed[:, :, -1])
        y = (q.unsqueeze(-2) @ summed).squeeze(-2)
        return self.o(y.transpose(1, 2).flatten(2))


def test_an_attention_that_carries_a_state_has_no_cache_that_grows() -> None:
    bring("attention", Linear, "linear")
    spec = spec_of(attention={"choice": "linear", "n_heads": 4})
    assert archlab.kv_cache(spec, 3, 100, "fp32").bytes == 3 * 2 * (4 * 6 * 6) * 4  # sequences, layers, state, bytes
    assert archlab.kv_cache(spec, 1, 1).bytes_per_token == 0
    assert [check for check in contract("attention", "linear") if not check["ok"]] == []


@pytest.mark.parametrize("static", [False, True])
def test_a_state_begins_anew_when_the_cache_does(static: bool) -> None:
    bring("attention", Linear, "linear")
    decoder = archlab.build(spec_of(attention={"choice": "linear", "n_heads": 4}), dtype="fp64").eval()
    from archlab.decoder.cache import KVCache

    ids = torch.randint(11, (2, 6))
    cache = KVCache(decoder.spec, 2, 8, torch.float64, static=static)
    with torch.no_grad():
        wanted = decoder(ids)
        for _ in range(2):
            cache.reset()
            rows = [decoder(part, cache) for part in ids.split([1, 3, 2], 1)]
            torch.testing.assert_close(torch.cat(rows, 1), wanted)


class Classes(nn.Module):
    """Archlab's own classification head: two classes, a bias each."""

    last_token_only = True

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(2, d_model)), nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def test_a_head_of_one_row_a_sequence() -> None:
    bring("head", Classes)
    ours, theirs = spec_of(head={"choice": "classification"}), spec_of(head={"choice": "twin"})
    assert costs(theirs) == costs(ours)
    assert archlab.build(theirs)(torch.zeros(3, 4, dtype=torch.int64)).shape == (3, 2)


@pytest.mark.slow
def test_a_compiler_traces_through_all_of_it() -> None:
    from archlab.decoder.cache import KVCache

    for axis, module in (
        ("attention", Linear),
        ("head", Tied),
        ("norm", Norm),
        ("block", PreNorm),
        ("position", Learned),
    ):
        bring(axis, module)
    archlab.place("shift", before="ffn")
    bring("shift", Shift)
    spec = spec_of(**{axis: {"choice": "twin"} for axis in ("attention", "head", "norm", "block", "position", "shift")})
    decoder = archlab.build(spec, dtype="fp64").eval()
    compiled = torch.compile(decoder, fullgraph=True, backend="eager")
    ids, cache = torch.randint(11, (2, 7)), KVCache(spec, 2, 8, torch.float64)
    with torch.no_grad():
        rows = [compiled(part, cache) for part in ids.split([4, 1, 1, 1], 1)]
        torch.testing.assert_close(torch.cat(rows, 1), decoder(ids))


class Shift(nn.Module):
    """Half of each feature's value at the token before."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        before = torch.cat((step.recall("last", x.new_zeros(x[:, :1].shape)), x[:, :-1]), 1)
        step.carry(last=x[:, -1:])
        return (x + before) / 2


# --- what does not do what its axis asks for --------------------------------------------------------------------------


class Narrow(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x)


class Mixing(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2)) @ self.up(x)


class Cubic(Mixing):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        scores = x @ x.transpose(1, 2)
        return scores @ scores @ self.up(x)


class Raises(Narrow):
    def forward(self, x: Tensor) -> Tensor:
        return self.missing(x)


class Flat(MultiHead):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        step.with_earlier(key=x)
        return x


class Growing(MultiHead):
    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        step.recall("last", x[:, :1])
        step.carry(last=x)
        return x


@pytest.mark.parametrize(
    ("axis", "module", "said"),
    [
        ("ffn", Narrow, "model/ffn: twin: its forward gives [2, 8, 3], not [2, 8, 24]"),
        (
            "norm",
            type("NarrowNorm", (nn.Module,), {"forward": lambda self, x: x[..., :1]}),
            "[2, 8, 1], not [2, 8, 24]",
        ),
        ("ffn", Mixing, "its FLOPs grow with the square of the tokens, as of attention alone they may"),
        ("attention", Cubic, "are no sum of tokens and pairs; its Spec has to state flops"),
        (
            "ffn",
            Raises,
            "model/ffn: twin: its forward fails: AttributeError: 'Raises' object has no attribute 'missing'",
        ),
        ("attention", Flat, "it keeps key [2, 8, 24]; [batch, heads, tokens, width] is asked for"),
        ("attention", Growing, "it carries last [2, 8, 24], where it began with [2, 1, 24]"),
    ],
)
def test_a_module_that_does_otherwise_is_one_message(axis: str, module: Any, said: str) -> None:
    bring(axis, module)
    block = {"choice": "twin", **({"n_heads": 4} if axis == "attention" else {})}
    with pytest.raises(ConfigError) as error:
        costs(spec_of(**{axis: block}, position={"choice": "none"}))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_devices_cannot_share_what_nobody_said_how() -> None:
    bring("attention", MultiHead)
    layer = spec_of(attention={"choice": "twin"}).layers[0]
    assert layer.share(1, 1) == layer
    with pytest.raises(Unsaid, match="twin does not say its share"):
        layer.share(2, 1)


def test_an_attention_that_forgets_says_so() -> None:
    class Forgets(nn.Module):
        def __init__(self, d_model: int) -> None:
            super().__init__()

        def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
            return x

    bring("attention", Forgets)
    spec = spec_of(attention={"choice": "twin", "n_heads": 4}, position={"choice": "none"})
    assert "attention: twin keeps nothing of earlier tokens between decode steps" in spec.remarks


class Running(nn.Module):
    """A linear attention that works out its state apart from its output, so that training lets go of the state."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.width = d_model // n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x: Tensor, step: archlab.Step) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = step.turned(q).sigmoid(), step.turned(k).sigmoid()
        earlier = step.recall("sum", k.new_zeros(*k.shape[:2], self.width, self.width))
        y = (q @ k.mT).tril() @ v + q @ earlier
        step.carry(sum=earlier + k.mT @ v)
        return self.o(y.transpose(1, 2).flatten(2))


def test_what_only_a_decode_step_reads_is_not_kept_for_training() -> None:
    bring("attention", Running, "running")
    assert [check for check in contract("attention", "running") if not check["ok"]] == []
