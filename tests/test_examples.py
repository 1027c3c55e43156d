"""The examples: each keeps its contract, costs what its paper says, and is reached like archlab's own choices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import archlab
from archlab.bench.phases import loss_of
from archlab.cli.app import answer
from archlab.cost.activations import Training, kept
from archlab.cost.explain import explain
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.inside.contract import BASE, contract, spread_weights
from archlab.inside.kept import kept_by_autograd
from archlab.presets import model as preset
from archlab.workload import Workload

pytestmark = pytest.mark.usefixtures("own_choices")

EXAMPLES = Path(__file__).parent.parent / "examples"
BROUGHT = {
    "dyt": ("norm", "dyt"),
    "differential": ("attention", "diff"),
    "squared_relu": ("ffn", "relu2glu"),
    "multi_token": ("head", "mtp"),
    "short_conv": ("conv", "short"),
}
"""What each example brings."""


@pytest.fixture(autouse=True)
def examples(own_choices: None) -> None:
    for name in BROUGHT:
        archlab.load_plugin(EXAMPLES / f"{name}.py")


def spec_of(**blocks: Any) -> DecoderSpec:
    return resolve(BASE | {axis: BASE.get(axis, {}) | block for axis, block in blocks.items()}).spec


def gqa(*overrides: str) -> DecoderSpec:
    """The preset with other choices, `norm=dyt`; values are for the tests of the command line."""
    model = preset("gqa")
    for axis, _, name in (override.partition("=") for override in overrides):
        model = {**model, axis: {**model.get(axis, {}), "choice": name}}
    return resolve(model).spec


def test_each_file_is_tried_here() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(BROUGHT)


def test_dyt_is_one_short_file() -> None:
    assert len((EXAMPLES / "dyt.py").read_text().splitlines()) <= 40


@pytest.mark.parametrize(("axis", "name"), BROUGHT.values())
def test_each_keeps_its_contract(axis: str, name: str) -> None:
    assert [check for check in contract(axis, name) if not check["ok"]] == []


# --- what they cost ---------------------------------------------------------------------------------------------------


def test_dyt_has_a_scalar_and_two_vectors() -> None:
    """Zhu et al. 2025, algorithm 1: alpha, gamma and beta."""
    changed, base = archlab.parameters(gqa("norm=dyt")), archlab.parameters(gqa())
    assert changed.by_part["norms"] == (2 * 8 + 1) * (2 * 512 + 1)
    assert changed.total - base.total == (2 * 8 + 1) * (512 + 1)
    x = torch.randn(3, 5)
    norm = archlab.build(spec_of(norm={"choice": "dyt", "alpha": 0.8}, attention={"qk_norm": "none"})).final_norm
    x = torch.randn(3, 12)
    torch.testing.assert_close(norm(x), torch.tanh(0.8 * x))


def test_differential_attention_costs_two_softmaxes() -> None:
    """Ye et al. 2024, section 2.1: heads of 2 d features of queries, of keys and of values; four vectors of d."""
    spec, d_model, heads, width, layers = gqa("attention=diff"), 512, 8, 32, 8
    inner = 2 * heads * width
    counts = archlab.parameters(spec).by_part
    assert counts["attention"] == layers * (4 * d_model * inner + 4 * width)
    attention = spec.layers[0].attention
    assert attention.flops(1, 0) == 2 * 4 * d_model * inner
    scores, values = 2 * heads * width, 2 * heads * 2 * width
    assert attention.flops(0, 1) == attention.decode_flops(0, 1) == 2 * (scores + values)
    assert archlab.kv_cache(spec, 1, 1, "bf16").bytes == layers * 2 * inner * 2  # keys and values, two bytes each


def test_differential_attention_is_the_papers_formula() -> None:
    spec = spec_of(attention={"choice": "diff", "head_dim": 6}, position={"choice": "none"}, dropout={"choice": "none"})
    module = spread_weights(archlab.build(spec, dtype="fp64")).layers[0].attention
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = module.qkv(x).chunk(3, -1)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    q1, k1, q2, k2 = module.lambdas
    weight = torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + 0.8
    heads = []
    for head in range(4):
        at = [slice((2 * head + i) * 6, (2 * head + i + 1) * 6) for i in (0, 1)]
        first, second = ((q[..., s] @ k[..., s].mT / 6**0.5 + mask).softmax(-1) for s in at)
        y = (first - weight * second) @ v[..., 12 * head : 12 * (head + 1)]
        heads.append(0.2 * F.rms_norm(y, (12,), module.head_norm.weight, 1e-5))
    torch.testing.assert_close(module(x, archlab.Step()), module.o(torch.cat(heads, -1)))


def test_a_squared_relu_gate_costs_what_any_gate_does() -> None:
    ours, theirs = gqa(), gqa("ffn=relu2glu")
    assert archlab.parameters(theirs) == archlab.parameters(ours)
    assert archlab.flops(theirs, 1, 64, 8) == archlab.flops(ours, 1, 64, 8)
    assert theirs.counted == ()
    assert theirs.layers[0].share(2, 1).ffn.d_ff == 704
    ffn = archlab.build(spec_of(ffn={"choice": "relu2glu"}), dtype="fp64").eval().layers[0].ffn
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    gate, up = ffn.gate_up.weight.chunk(2)
    torch.testing.assert_close(ffn(x), (F.relu(x @ gate.T) ** 2 * (x @ up.T)) @ ffn.down.weight.T)


def test_multi_token_prediction_costs_parameters_and_a_training_step_only() -> None:
    """Of each further module: a projection of 2 d to d, two norms, a layer of 12 d^2, its biases and two LayerNorms."""
    d = 512
    layer = 3 * d * d + 3 * d + d * d + d + 2 * 4 * d * d + 4 * d + d + 2 * 2 * d
    plain, further = gqa(), gqa("head=mtp")
    assert archlab.parameters(further).by_part["lm_head"] == 2 * d * d + 2 * d + layer
    assert archlab.flops(further, 1, 64, 8).total == archlab.flops(plain, 1, 64, 8).total
    assert further.head.tied
    step = Training(2, 16, "fp32")
    assert sum(kept(further, step).values()) > sum(kept(plain, step).values())
    assert "head: mtp has a loss of its own, whose FLOPs no figure counts" in further.remarks


def test_multi_token_prediction_trains_on_tokens_further_ahead() -> None:
    decoder = archlab.build(spec_of(head={"choice": "mtp", "further": 2, "weight": 0.5}), dtype="fp64")
    ids = torch.randint(11, (2, 8))
    outputs = decoder(ids[:, :-1])
    states, embedding = (tensor.detach() for tensor in decoder.head.seen)
    loss = loss_of(outputs, ids[:, 1:], decoder)
    expected, targets = F.cross_entropy(outputs.flatten(0, 1), ids[:, 1:].flatten()), ids[:, 1:]
    for ahead, module in enumerate(decoder.head.further, 1):
        states = module(states[:, :-1], embedding[targets[:, ahead - 1 : -1]])
        expected = expected + 0.25 * F.cross_entropy((states @ embedding.T).flatten(0, 1), targets[:, ahead:].flatten())
    torch.testing.assert_close(loss, expected)


def test_a_short_convolution_costs_a_kernel_a_feature_and_keeps_all_but_one_of_its_inputs() -> None:
    spec, base = gqa("conv=short"), gqa()
    assert archlab.parameters(spec).by_part["conv"] == 8 * 512 * 4
    assert archlab.parameters(spec).total - archlab.parameters(base).total == 8 * 512 * 4
    assert archlab.flops(spec, 1, 64, 1).by_part["conv"] == 8 * 65 * 2 * 512 * 4
    for length in (1, 100):
        more = archlab.kv_cache(spec, 3, length, "bf16").bytes - archlab.kv_cache(base, 3, length, "bf16").bytes
        assert more == 3 * 8 * (4 - 1) * 512 * 2
    module = archlab.build(spec_of(conv={"choice": "short", "kernel": 3}), dtype="fp64").layers[0].conv
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    w = module.weight[:, 0]
    expected = x + torch.stack([sum(w[:, 2 - i] * x[:, t - i] for i in range(3) if t >= i) for t in range(5)], 1)
    torch.testing.assert_close(module(x, archlab.Step()), expected)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_all_of_them_together_keep_what_autograd_keeps(dtype: str) -> None:
    spec = spec_of(
        norm={"choice": "dyt"}, attention={"choice": "diff"}, ffn={"choice": "relu2glu"}, head={"choice": "mtp"},
        conv={"choice": "short"}, dropout={"choice": "classic"},
    )  # fmt: skip
    for recompute in ("none", "selective", "full"):
        decoder = archlab.build(spec, dtype=dtype)
        decoder.recompute = recompute
        paper = kept(spec, Training(2, 8, dtype, recompute=recompute))
        assert sum(size for what, size in paper.items() if what != "held") == kept_by_autograd(decoder, 2, 8)


# --- that they are reached --------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The JSON answer of a command that is given the examples once more."""
    flags = [word for name in BROUGHT for word in ("--plugin", str(EXAMPLES / f"{name}.py"))]
    code = answer([words[0], *flags, *words[1:], "--json"])
    out = capsys.readouterr().out
    assert code == 0, out
    return json.loads(out)


def test_components_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    axes = command(capsys, "components")["axes"]
    for example, (axis, name) in BROUGHT.items():
        assert Path(axes[axis][name]["origin"]).stem == example
        assert axes[axis][name]["source"]
    assert axes["norm"]["dyt"]["options"]["alpha"]["help"] == "slope at 0 before training"
    assert axes["attention"]["diff"]["counted"] == ["parameters", "FLOPs", "KV cache", "what training keeps"]
    assert "origin" not in axes["norm"]["rmsnorm"]


def test_diff_shows_what_they_change(capsys: pytest.CaptureFixture[str]) -> None:
    found = command(capsys, "diff", "gqa", "model/norm=dyt", "model/conv=short", "model.conv.kernel=3")
    settings = {row["setting"]: (row["before"], row["after"]) for row in found["tables"]["choices"]["rows"]}
    assert settings["norm"] == ("rmsnorm", "dyt")
    assert settings["conv"] == ("none", "short")
    assert settings["conv.kernel"] == (None, 3)
    assert any("counted on the module" in note for note in found["notes"])


@pytest.mark.parametrize(
    "words", [("kv",), ("flops",), ("memory", "--train"), ("roofline", "hardware=h200"), ("shapes",)]
)
def test_every_command_takes_them(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    found = command(capsys, words[0], "gqa", *words[1:])
    assert found["command"] == words[0]


def test_each_is_explained_by_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    told = {name: command(capsys, "explain", f"{axis}/{name}") for axis, name in BROUGHT.values()}
    assert all(found["texts"]["what"] and found["texts"]["source"] for found in told.values())
    assert "section 2.1" in told["diff"]["texts"]["source"]
    rows = {row["figure"]: row["in all"] for row in told["short"]["tables"]["cost"]["rows"]}
    assert rows == {"params": 8 * 512 * 4, "state_bytes": 8 * 3 * 512 * 2, "flops": 8 * 2 * 512 * 4}
    place = command(capsys, "explain", "conv")
    assert place["texts"]["what"] == "A place of others: its choice stands before attention in every layer."
    assert [row["choice"] for row in place["tables"]["choices"]["rows"]] == ["none", "short"]


def test_a_figure_says_that_it_was_counted(capsys: pytest.CaptureFixture[str]) -> None:
    figures = command(capsys, "compare", "gqa", "model/conv=short")["points"][0]["figures"]
    for name in ("params", "params.conv", "kv_bytes_per_token", "kv_bytes.4096", "flops_decode_per_token"):
        assert figures[name]["kind"] == "exact"
        assert "conv short counted on the module" in figures[name]["how"]
    assert "counted" not in figures["params.attention"]["how"]


def test_explanations_come_to_the_figures() -> None:
    spec = gqa("conv=short", "norm=dyt", "attention=diff")
    figures = {name: made.worked for name, made in explain(spec, Workload()).items()}
    assert figures["kv_bytes.4096"].endswith(f"= {archlab.kv_cache(spec, 1, 4096, 'bf16').bytes:,}")
    assert figures["params"].endswith(f"= {archlab.parameters(spec).total:,}")


def test_a_sweep_in_python_and_layers_that_differ() -> None:
    points = list(archlab.sweep("gqa", {"model/conv": ["none", "short"], "model/norm": ["rmsnorm", "dyt"]}))
    totals = [archlab.parameters(point.spec).total for point in points]
    dyt, conv = 17 * 513, 8 * 512 * 4
    assert [total - totals[0] for total in totals] == [0, dyt, conv, dyt + conv]
    layers = [{"conv": {"choice": "short"}}, {"norm": {"choice": "dyt"}, "repeat": 3}]
    spec = resolve({**preset("gqa"), "layers": layers}).spec
    assert archlab.parameters(spec).total - totals[0] == 2 * 512 * 4 + 6 * 2 * 513


def test_a_plugin_may_stand_anywhere_on_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    flag, chosen = ("--plugin", str(EXAMPLES / "dyt.py")), ("gqa", "model/norm=dyt")
    lines = ([*flag, "kv", *chosen], ["kv", *flag, *chosen], ["kv", *chosen, "=".join(flag)])
    told = {(answer(line), capsys.readouterr().out) for line in lines}
    assert len(told) == 1
    assert next(iter(told))[0] == 0
    assert answer(["kv", "gqa", "--plugin", "--explain", "all"]) == 2
    assert "--plugin needs a file or a module, not --explain" in capsys.readouterr().err


def test_an_export_names_what_no_family_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["export", "--plugin", str(EXAMPLES / "dyt.py"), "gqa", "model/norm=dyt"]) == 2
    assert "norm/dyt is of a plugin" in capsys.readouterr().err
    assert answer(["export", "gqa"]) == 0
