"""What explain answers: the numbers of the study notes, words beside them, and the model's own choice beside another.

STUDY holds the numbers of the notes on which archlab's users learn how such models are built (two lines of MiniMind's
code and Qwen3-8B are their examples), each with the question that shows it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console
from worked import evaluate

import archlab
from archlab import presets, registry
from archlab.components.ffn.spec import FFN, FeedForward
from archlab.components.norm.spec import RMSNorm
from archlab.compose import preset_users
from archlab.document import Document
from archlab.errors import ConfigError, RequestError
from archlab.frozen import replace
from archlab.hardware import hardware
from archlab.paper.explain import document
from archlab.paper.explain.asked import Asked
from archlab.paper.explain.words import with_numbers
from archlab.registry import AXES, choices, register
from archlab.report.document import print_document
from archlab.subjects import names

Rows = list[dict[str, Any]]


def ask(what: str, model: str = "gqa", *overrides: str, **settings: Any) -> Document:
    return document(what, Asked(model, list(overrides), **settings))


def rows(made: Document, table: str) -> Rows:
    found: Rows = made.as_dict()["tables"][table]["rows"]
    return found


def row(made: Document, table: str, **where: Any) -> dict[str, Any]:
    [found] = [row for row in rows(made, table) if where.items() <= row.items()]
    return found


def cost(what: str, model: str, figure: str, side: str = "in all", **settings: Any) -> int:
    return int(row(ask(what, model, **settings), "cost", figure=figure)[side])


def pair(model: str, index: int, column: str = "radians") -> float:
    return float(row(ask("rope", model), "pairs", pair=index)[column])


def between(gate: float, up: str) -> float:
    return float(row(ask("swiglu"), "gate", gate=gate)[up])


def silu(u: float) -> float:
    return float(row(ask("silu"), "activation", u=u)["act(u)"])


def cache(model: str, attention: str, **settings: Any) -> int:
    fp16 = {"workload": {"kv_dtype": "fp16"} | settings}
    return int(row(ask("kv", model, tokens=2048, **fp16), "attentions", attention=attention)["cache"])


def width(rule: str, d_model: str) -> int:
    return int(row(ask("ffn", d_model), "widths", rule=rule)["d_ff"])


def scores(n: int) -> int:
    return int(row(ask("attention", "minimind", workload={"dtype": "fp16"}), "scores", n=n)["head"])


NARROW, WIDE = "gqa", "minimind"
"""Presets that are 512 and 768 wide."""

STUDY: dict[str, tuple[Callable[[], float], float]] = {
    "LayerNorm has 2d parameters": (lambda: row(ask("layernorm", WIDE), "tensors", tensor="total")["count"], 2 * 768),
    "RMSNorm has d": (lambda: row(ask("rmsnorm", WIDE), "tensors", tensor="total")["count"], 768),
    "GELU by tanh, largest gap": (lambda: rows(ask("gelu_tanh"), "gap")[0]["largest gap"], 4.7e-4),
    "SiLU(-2)": (lambda: silu(-2), -0.2384),
    "SiLU(-1)": (lambda: silu(-1), -0.2689),
    "SiLU(1)": (lambda: silu(1), 0.7311),
    "SiLU(2)": (lambda: silu(2), 1.7616),
    "SwiGLU, gate 2, up 3": (lambda: between(2, "up 3"), 5.285),
    "SwiGLU, gate -2, up 3": (lambda: between(-2, "up 3"), -0.715),
    "RoPE, head 96, base 10^6, w_0": (lambda: pair("minimind", 0), 1),
    "RoPE, head 96, base 10^6, w_1": (lambda: pair("minimind", 1), 0.7499),
    "RoPE, head 96, base 10^6, w_2": (lambda: pair("minimind", 2), 0.5623),
    "RoPE, head 96, base 10^6, w_47": (lambda: pair("minimind", 47), 1.334e-6),
    "RoPE, head 128, base 10^4, w_0": (lambda: pair("llama-2-7b", 0), 1),
    "RoPE, head 128, base 10^4, w_1": (lambda: pair("llama-2-7b", 1), 0.866),
    "RoPE, head 128, base 10^4, w_2": (lambda: pair("llama-2-7b", 2), 0.750),
    "RoPE tables, bytes": (lambda: cost("rope", "minimind", "table_bytes"), 12 * 2**20),
    "KV cache, 8 layers, 4 x 96, 2,048 tokens, fp16": (lambda: cache("minimind", "gqa"), 25_165_824),
    "KV cache, MHA": (lambda: cache("minimind", "mha"), 48 * 2**20),
    "KV cache, MQA": (lambda: cache("minimind", "mqa"), 6 * 2**20),
    "KV cache, 100 sequences, GiB": (lambda: cache("minimind", "gqa", batch=100) / 2**30, 2.34),
    "attention, MiniMind, a layer": (lambda: cost("gqa", "minimind", "params", "a layer"), 1_769_472),
    "attention, Qwen3-8B, a layer": (lambda: cost("gqa", "qwen3-8b", "params", "a layer"), 41_943_040),
    "FFN, MiniMind, a layer": (lambda: cost("swiglu", "minimind", "params", "a layer"), 5_603_328),
    "FFN, Qwen3-8B, a layer": (lambda: cost("swiglu", "qwen3-8b", "params", "a layer"), 150_994_944),
    "embedding, Qwen3-8B": (lambda: row(ask("params", "qwen3-8b"), "parts", part="embedding")["count"], 622_329_856),
    "FFN 4d, d 768": (lambda: width("4x", WIDE), 3072),
    "FFN 8/3 d up to 64, d 768": (lambda: width("8/3", WIDE), 2048),
    "FFN pi d up to 64, d 768": (lambda: width("pi", WIDE), 2432),
    "FFN 4d, d 512": (lambda: width("4x", NARROW), 2048),
    "FFN 8/3 d up to 64, d 512": (lambda: width("8/3", NARROW), 1408),
    "FFN pi d up to 64, d 512": (lambda: width("pi", NARROW), 1664),
    "GPT-2, tied, extra parameters": (lambda: cost("tied", "gpt2", "params"), 0),
    "GPT-2, tied, shared parameters": (lambda: cost("tied", "gpt2", "params_shared"), 38_597_376),
    "GPT-2, tied, FLOPs a token": (lambda: cost("tied", "gpt2", "flops"), 2 * 50_257 * 768),
    "rows of keys and values saved, 1,000 tokens": (
        lambda: row(ask("kv"), "saved", tokens="1,000")["saved"],
        499_500,
    ),
    "scores, 2,048^2, fp16, a head": (lambda: scores(2048), 8 * 2**20),
    "scores, 4,096^2, fp16, a head": (lambda: scores(4096), 32 * 2**20),
}


@pytest.mark.parametrize("name", STUDY)
def test_the_study_notes(name: str) -> None:
    """Each to the digits that it is written with."""
    found, written = STUDY[name]
    value = found()
    exact = isinstance(written, int)
    assert value == (written if exact else pytest.approx(written, rel=1 / 10 ** (len(f"{written:.4g}") - 3), abs=6e-5))


@pytest.mark.slow
def test_the_width_that_one_text_has_for_qwen3() -> None:
    made = ask("swiglu", "qwen3-8b", "model.ffn.d_ff=14336")
    assert row(made, "cost", figure="params")["a layer"] == 176_160_768


def test_the_ffn_of_minimind_beside_its_attention() -> None:
    ffn, attention = (cost(name, "minimind", "params", "a layer") for name in ("swiglu", "gqa"))
    assert round(ffn / attention, 2) == 3.17


def test_dropout_has_five_places_of_which_four_are_classic() -> None:
    rates = {row["place"]: (row["rate"], row["scale"]) for row in rows(ask("classic"), "places")}
    assert list(rates) == ["embedding", "attention", "residual", "ffn", "output"]
    assert [rate for rate, _ in rates.values()] == [0.1, 0.1, 0.1, 0.1, 0]
    assert all(scale == pytest.approx(1 / (1 - rate)) for rate, scale in rates.values())


def test_yarn_keeps_fast_pairs_and_divides_slow_ones_by_its_factor() -> None:
    slower = {row["pair"]: row["slower"] for row in rows(ask("yarn", "minimind-yarn"), "pairs")}
    assert (slower[0], slower[47]) == (1, pytest.approx(16))
    assert sorted(slower.values()) == list(slower.values())


def test_when_the_slowest_pair_has_turned_once() -> None:
    """Of base 10^4 after some 54 thousand tokens, of base 10^6 after 4.7 million (2 pi / w)."""
    assert pair("llama-2-7b", 63, "wavelength") == pytest.approx(2 * math.pi * 10_000 ** (126 / 128))
    assert pair("minimind", 47, "wavelength") == pytest.approx(2 * math.pi * (10**6) ** (94 / 96))
    about = ask("rope", "minimind").tables[1].about
    slow = sum(32_768 * (10**6) ** (-2 * i / 96) < 2 * math.pi for i in range(48))
    assert about.startswith(f"48 pairs, {slow} of them turn less than once in 32,768 tokens")


# --- the model's own choice, and another in its place -----------------------------------------------------------------


def test_a_choice_that_the_model_makes_is_not_swapped() -> None:
    made = ask("gqa", "minimind")
    assert (made.subject, made.model) == ("attention/gqa", "minimind")
    assert made.texts["here"].startswith("its own choice; n_heads 8, n_kv_heads 4, head_dim 96")
    assert "changes" not in made.texts
    assert [table.name for table in made.tables] == ["cost"]


def test_another_is_put_in_its_place_and_what_changes_is_said() -> None:
    made = ask("mha", "llama-3-8b", tokens=8192)
    assert made.model == "llama-3-8b model/attention=mha"
    assert made.texts["here"].startswith("in the place of gqa; n_heads 32")
    assert made.texts["changes"].startswith("KV cache at 8,192 4.00x larger, parameters +10.0 %")
    assert row(made, "choices", setting="attention.n_kv_heads") == {
        "setting": "attention.n_kv_heads",
        "before": 8,
        "after": 32,
    }
    assert row(made, "parameters", figure="params.attention")["change"] == 805_306_368
    assert rows(ask("post_norm", "gqa"), "cost")[0]["in all"] == 16


SWAPS = (
    *(("minimind", "attention", "mla"), ("gemma-3-1b", "position", "yarn"), ("deepseek-v3", "ffn", "gelu")),
    *(("gpt-oss-20b", "attention", "mha"), ("gpt2", "norm", "rmsnorm"), ("phi-2", "head", "tied")),
)


@pytest.mark.parametrize(("preset", "axis", "name"), SWAPS)
def test_a_swap_is_that_of_a_sweep(preset: str, axis: str, name: str) -> None:
    [point] = archlab.sweep(preset, {f"model/{axis}": [name]})
    assert Asked(preset).with_choice(axis, name).spec == point.spec
    typed = Asked(preset, ["model.n_layers=4"]).with_choice(axis, name)
    [point] = archlab.sweep(preset, {f"model/{axis}": [name], "model.n_layers": [4]})
    assert typed.spec == point.spec


def test_a_choice_of_some_layers() -> None:
    """DeepSeek-V3 has three dense layers before its mixtures; SmolLM3 leaves rotation out of every fourth layer."""
    dense = ask("swiglu", "deepseek-v3")
    assert dense.texts["here"] == "its own choice; layers 0-2: d_ff 18,432, rule null"
    assert row(dense, "cost", figure="params")["in all"] == 3 * 3 * 7168 * 18_432
    assert "layers 3,7,..,35" in ask("position/none", "smollm3-3b").texts["here"]


def test_layers_that_differ_in_it_are_shown_apart() -> None:
    made = ask("gqa", "gpt-oss-20b")
    assert [drawing.title for drawing in made.drawings] == ["Heads", "Mask, layers 0,2,..,22"]
    assert row(made, "cost", figure="flops_scores")["a layer"] is None
    pairs = [table for table in ask("rope", "gemma-3-1b").tables if table.name.startswith("pairs")]
    assert [table.rows[1]["radians"] for table in pairs] == [
        pytest.approx(base ** (-2 / 256)) for base in (10_000, 1_000_000)
    ]


def test_options_of_the_choice_that_is_asked_for() -> None:
    made = ask("yarn", "minimind", "model.position.factor=8")
    assert made.texts["here"].startswith("in the place of rope; base 1,000,000, factor 8")
    with pytest.raises(ConfigError, match="mqa fixes it"):
        ask("mqa", "minimind", "model.attention.n_kv_heads=2")


def test_the_formula_with_the_models_numbers() -> None:
    assert ask("rmsnorm", "minimind").texts["with numbers"] == "y = gamma x / sqrt(mean(x^2) + 1e-06)"
    assert "= 1,000,000^(-2i / 96);" in ask("rope", "minimind").texts["with numbers"]
    assert with_numbers("base^(-2i / rotary_dim) based", {"base": 10, "rotary_dim": 4}) == "10^(-2i / 4) based"
    gemma, olmo = ask("rmsnorm", "gemma-2b"), ask("layernorm", "gqa", "model.norm.weight=false")
    assert gemma.texts["formula"] == "y = (1 + gamma) x / sqrt(mean(x^2) + eps)"
    assert olmo.texts["formula"] == "y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)"


def test_eps_outside_the_root_is_named() -> None:
    made = ask("rmsnorm", "gqa", "model.norm.eps_place=outside")
    assert made.texts["formula"] == "y = gamma x / (sqrt(mean(x^2)) + eps)"


def test_who_uses_a_choice() -> None:
    """In all layers, in some, or as an expert."""
    users = preset_users()
    assert "smollm3-3b" in users["position", "none"]
    assert "gpt-oss-20b" in users["ffn", "swiglu_clamped"]
    assert "mixtral-8x7b" in users["ffn", "swiglu"]
    assert users["attention", "mla"] == ["deepseek-v3"]
    assert ask("relu2").texts["used by"] == "no preset"


def test_a_choice_that_no_layer_would_have() -> None:
    with pytest.raises(ConfigError, match="no layer would have yarn"):
        ask("yarn", "gqa", "model.layers=[{position:{choice:rope}}]")


# --- axes and figures -------------------------------------------------------------------------------------------------


def test_an_axis_has_each_of_its_choices_in_the_model() -> None:
    made = ask("attention", "minimind")
    assert made.verdict == "4 choices; minimind has gqa"
    for name in choices("attention"):
        [point] = archlab.sweep("minimind", {"model/attention": [name]})
        found = row(made, "choices", choice=name)
        assert found["params"] == archlab.parameters(point.spec).by_part["attention"]
        assert found["kv_bytes_per_token"] == archlab.kv_cache(point.spec, 1, 1).bytes_per_token


def test_a_choice_that_cannot_be_in_the_model_is_told() -> None:
    """A head of three features has no pairs to turn."""
    made = ask("position", "gqa", "model.attention.head_dim=3", "model/position=none")
    assert row(made, "choices", choice="rope").get("params") is None
    assert any(note.startswith("rope cannot be here: ") for note in made.notes)


def test_a_figure_has_its_value_and_its_formula() -> None:
    made = ask("kv_bytes.4096", "minimind")
    assert made.verdict == "50,331,648 in minimind"
    [why] = made.explanations
    assert why.formula == "2 n_layers n_kv_heads head_dim context bytes batch"
    assert evaluate(why.worked.partition(" = ")[0]) == 50_331_648


def test_a_name_of_several_figures_explains_all() -> None:
    made = ask("flops_prefill_per_token")
    assert [why.figure for why in made.explanations] == [
        "flops_prefill_per_token.full",
        "flops_prefill_per_token.causal",
    ]
    assert [why.figure for why in ask("params.layers", "deepseek-v3").explanations] == [
        "params.layers.0-2",
        "params.layers.3-60",
    ]


def test_a_figure_that_the_model_has_not() -> None:
    with pytest.raises(ConfigError, match=r"did you mean params\.layers\.0-7"):
        ask("params.layers.0-8", "minimind")


def test_a_share_of_a_device_is_made_of_what_a_pass_does() -> None:
    """As archlab roofline has it for the same model, prompt and device."""
    device = hardware("h100-sxm")
    made = ask("mfu", "llama-3-8b", hardware=device)
    assert row(made, "passes", **{"pass": "prefill"})["flops"] == 29_688_401_494_016
    assert [why.figure for why in made.explanations] == ["prefill_mfu", "decode_mfu", "train_mfu"]
    first = next(iter(made.explanations))
    assert first.worked == "100 x 29,688,401,494,016 / (seconds x 989,400,000,000,000), 100 at 30.01 ms"
    assert [why.figure for why in ask("decode_tok_s", "llama-3-8b", hardware=device).explanations] == [
        "bound_decode_tok_s"
    ]
    assert made.verdict.startswith("measured")


# --- choices of other people ------------------------------------------------------------------------------------------


class Shouting(RMSNorm):
    """RMSNorm, but louder."""


class Narrow(FFN):
    """An FFN whose width no rule gives."""

    def params(self) -> dict[str, int]:
        return {"weight": self.d_model}

    def detail(self) -> dict[str, int]:
        return {"dense": self.d_model}

    def flops(self, tokens: int) -> int:
        return 2 * tokens * self.d_model


@pytest.fixture
def others() -> Iterator[None]:
    register("norm", "shouting", Shouting, summary="louder", formula="w")
    register("ffn", "softsign", FeedForward, summary="x / (1 + |x|)", formula="2 d f", fixed={"activation": "softsign"})
    yield
    del registry._choices["norm"]["shouting"], registry._choices["ffn"]["softsign"]


def test_an_ffn_without_a_rule_shows_no_widths_by_rule(others: None) -> None:
    register("ffn", "narrow", Narrow, summary="one width", formula="d")
    try:
        assert "widths" not in {table.name for table in ask("narrow").tables}
    finally:
        del registry._choices["ffn"]["narrow"]
    assert "widths" in {table.name for table in ask("softsign").tables}


def test_a_choice_of_somebody_else_is_explained_by_its_class_and_costed(others: None) -> None:
    made = ask("shouting")
    assert made.texts["what"] == "RMSNorm, but louder."
    assert not {"why", "source", "formula"} & made.texts.keys()
    assert row(made, "cost", figure="params")["in all"] == 17 * 512
    assert [why.worked for why in made.explanations] == ["512 + 2 x 8 x 512 = 8,704"]
    assert row(ask("ffn"), "choices", choice="softsign")["params"] == 2 * 8 * 512 * 2048
    assert rows(ask("softsign"), "cost")


# --- how it is written ------------------------------------------------------------------------------------------------


def plain(width: int) -> tuple[io.BytesIO, Console]:
    """A console of a terminal that has ASCII alone."""
    held = io.BytesIO()
    file = io.TextIOWrapper(held, encoding="ascii", write_through=True)
    return held, Console(file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False)


@pytest.mark.parametrize("what", list(names()))
def test_at_80_columns_without_unicode(what: str) -> None:
    held, console = plain(80)
    print_document(ask(what), "table", console)
    text = held.getvalue().decode("ascii")
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(ask(what).subject)


def test_json_holds_texts_tables_drawings_and_formulas() -> None:
    shown = ask("gqa", "minimind").as_dict()
    assert {"schema", "command", "subject", "model", "texts", "tables", "drawings", "explanations"} <= shown.keys()
    assert shown["explanations"]["params"]["worked"] == "8 x (2 x 768 x 8 x 96 + 2 x 768 x 4 x 96) = 14,155,776"
    assert shown["drawings"][0]["lines"][1].count("┬") == 4


def test_csv_and_markdown_hold_the_words_too() -> None:
    held, console = plain(80)
    print_document(ask("rmsnorm"), "csv", console)
    written = list(csv.DictReader(io.StringIO(held.getvalue().decode())))
    assert [row["text"] for row in written if row["about"] == "with numbers"] == [
        "y = gamma x / sqrt(mean(x^2) + 1e-06)"
    ]
    assert [row["worked"] for row in written if row["table"] == "formulas"] == ["512 + 2 x 8 x 512 = 8,704"]
    out = io.StringIO()
    print_document(ask("pre_norm"), "md", Console(file=out, width=80))
    assert "```text\nx ─┬─> rmsnorm ─> gqa ──+ ─> y\n" in out.getvalue()
    assert "| why |" in out.getvalue()


def test_a_word_that_sets_nothing() -> None:
    with pytest.raises(RequestError, match="model=minimind"):
        Asked.given(["minimind"])
    assert Asked.given(["model=gpt2", "model.n_layers=2", "model=minimind"]) == Asked("minimind", ["model.n_layers=2"])


@pytest.mark.slow
def test_every_preset_answers_for_each_axis() -> None:
    for preset in presets.names():
        for axis in AXES:
            assert rows(ask(axis, preset), "choices")


def test_positions_end_where_they_end() -> None:
    with pytest.raises(RequestError, match="positions end at 1024"):
        ask("rope", "gpt2", tokens=8192)
    assert replace(Asked("gpt2"), tokens=1024).own().tokens == 1024
