"""Presets against published models: totals, parts and cache bytes of tests/data/facts, to the unit."""

import json
from pathlib import Path

import pytest
import yaml

import archlab
from archlab import presets
from archlab.compose import compose, load, preset, summary
from archlab.cost.figures import exact_figures
from archlab.decoder.resolve import resolve
from archlab.interop.export import differences
from archlab.interop.hub import read_config
from archlab.presets import conf_dir
from archlab.workload import Workload

FACTS = Path(__file__).parent / "data" / "facts"
NAMED = sorted({file.stem for file in FACTS.glob("*.json")} & set(presets.names()))


@pytest.fixture(scope="module", params=NAMED)
def fact(request):
    return json.loads((FACTS / f"{request.param}.json").read_text())


def test_parameters_equal_the_fact(fact):
    counts = archlab.parameters(archlab.load(fact["name"]))
    assert counts.total == fact["params_total"]
    assert counts.active == fact["params_active"]
    assert counts.non_embedding == fact["params_non_embedding"]
    assert counts.by_part == fact["params_by_part"]
    assert counts.ffn_detail == fact.get("ffn_detail", {"dense": fact["params_by_part"]["ffn"]})
    assert counts.tied == fact["tied"]


def test_kv_bytes_equal_the_fact(fact):
    cost = archlab.kv_cache(archlab.load(fact["name"]), batch=1, context=1, dtype="bf16")
    assert cost.bytes_per_token == fact["kv_bytes_per_token_bf16"]


def test_a_preset_is_what_the_public_config_says(fact):
    imported = resolve(read_config(fact["hf_config"])[1]).spec
    assert list(differences(archlab.load(fact["name"]), imported)) == []
    assert archlab.load(fact["name"]).family == imported.family


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt2-large", 774_030_080),  # openai-community/gpt2-large
        ("minimind", 63_912_192),
        ("minimind-yarn", 63_912_192),
        ("minimind-first", 25_829_888),  # MiniMind2-Small
    ],
)
def test_totals_known_from_elsewhere(name, total):
    assert archlab.parameters(archlab.load(name)).total == total


@pytest.mark.parametrize(("attention", "expected"), [("gqa", 25_165_824), ("mha", 50_331_648), ("mqa", 6_291_456)])
def test_minimind_cache_at_2048_tokens_in_fp16(attention, expected):
    spec = archlab.load("minimind", f"model/attention={attention}")
    assert archlab.kv_cache(spec, batch=1, context=2048, dtype="fp16").bytes == expected


def test_a01_tied_head_counts_once():
    counts = archlab.parameters(archlab.load("gpt2"))
    assert (counts.total, counts.by_part["embedding"], counts.by_part["lm_head"]) == (124_439_808, 38_597_376, 0)


def test_a02_definitions_of_gpt2_small():
    counts = archlab.parameters(archlab.load("gpt2"))
    assert counts.non_embedding == 85_056_000
    bare = archlab.load(
        "gpt2",
        *(f"model.attention.{projection}_bias=false" for projection in "qkvo"),
        "model.ffn.bias=false",
        "model.norm.bias=false",
    )
    counts = archlab.parameters(bare)
    assert counts.total == 124_337_664
    assert counts.total - counts.by_part["positions"] == 123_551_232
    assert counts.by_part["attention"] + counts.by_part["ffn"] == 84_934_656


def test_a08_query_projection_wider_than_the_model():
    spec = archlab.load("qwen3-0.6b", "model.d_model=2560", "model.attention.n_heads=32")
    tensors = spec.layers[0].attention.params()
    assert (tensors["q"], tensors["k"], tensors["o"]) == (10_485_760, 2_621_440, 10_485_760)


def test_a10_mixture_of_experts_is_neither_dense_nor_all_active():
    counts = archlab.parameters(archlab.load("mixtral-8x7b"))
    assert (counts.total, counts.active) == (46_702_792_704, 12_879_925_248)
    assert counts.active - counts.by_part["embedding"] - counts.by_part["lm_head"] == 12_617_781_248
    sent = (archlab.load("mixtral-8x7b", f"model.ffn.experts_per_token={k}") for k in (8, 2))
    every, few = (archlab.flops(spec, prompt=1024, new=0).prefill for spec in sent)
    assert 3.55 <= every / few <= 3.6


def test_j01_memory_takes_all_experts_and_compute_the_active_ones():
    spec = archlab.load("qwen3-30b-a3b")
    counts, figures = archlab.parameters(spec), exact_figures(spec, Workload(dtype="bf16"))
    assert figures["weight_bytes"].value == 2 * counts.total
    matmuls = counts.active - counts.by_part["embedding"] - counts.by_part["norms"]  # the head is untied
    assert archlab.flops(spec, prompt=1, new=0).prefill - 4 * 48 * 4096 == 2 * matmuls  # one query-key pair a layer
    assert "less the experts" in figures["params_active"].how


def test_h01_gpt2_forward_flops():
    bare = archlab.load(
        "gpt2", *(f"model.attention.{projection}_bias=false" for projection in "qkvo"), "model.ffn.bias=false"
    )
    assert archlab.flops(bare, batch=1, prompt=1024, new=0).prefill == 291_648_307_200


def test_h02_the_head_counts_tied_or_not():
    tied = archlab.flops(archlab.load("gpt2"), prompt=1, new=0).by_part["lm_head"]
    untied = archlab.flops(archlab.load("gpt2", "model/head=untied"), prompt=1, new=0).by_part["lm_head"]
    assert tied == untied == 77_194_752


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.names())
def test_ready_presets_are_what_hydra_composes(name):
    assert presets.ready(name) is not None, "run `python -m archlab.compose` after a change under conf/model/"
    assert presets.ready(name) == compose([f"model={name}"])["model"]


def test_ready_summaries_are_what_the_costs_say():
    assert presets.summaries() == [summary(name) for name in presets.names()]


def test_an_edited_yaml_is_composed_not_read_from_the_ready_file(monkeypatch):
    monkeypatch.setattr(presets, "conf_hash", lambda: "edited")
    presets._all_ready.cache_clear()
    try:
        assert presets.ready("gqa") is None
        assert presets.summaries() == []
        assert preset("gqa")["attention"]["n_kv_heads"] == 2
    finally:
        presets._all_ready.cache_clear()


def test_no_preset_has_options_that_its_choices_lack():
    assert [note for name in presets.names() for note in resolve(preset(name)).notes] == []


def test_every_preset_is_named_after_its_file_and_says_where_it_comes_from():
    for name in presets.names():
        assert preset(name)["name"] == name
        assert preset(name)["about"]


MINE = {
    "norm": {"choice": "rmsnorm", "eps": 0.5},
    "attention": {"choice": "gqa", "n_heads": 2, "n_kv_heads": 1, "head_dim": 8},
    "ffn": {"choice": "swiglu", "d_ff": 24, "rule": None},
}


@pytest.fixture
def own(tmp_path):
    """The overrides that choose files of the user's own on three axes."""
    for axis, block in MINE.items():
        (tmp_path / "model" / axis).mkdir(parents=True)
        (tmp_path / "model" / axis / "mine.yaml").write_text(json.dumps(block))
    return [f"hydra.searchpath=[file://{tmp_path}]", *(f"model/{axis}=mine" for axis in MINE)]


@pytest.mark.parametrize("name", ["gqa", "gpt2-xl", "minimind", "llama-3.1-8b", "deepseek-v3"])
def test_what_the_file_of_a_choice_sets_wins_over_the_preset(own, name):
    model = compose([f"model={name}", *own])["model"]
    for axis, block in MINE.items():
        assert {key: model[axis].get(key) for key in block} == block
    layer = resolve(model).spec.layers[-1]  # the first may be listed with values of their own
    assert (layer.attention.n_heads, layer.ffn.d_ff, layer.norm.eps) == (2, 24, 0.5)


def test_it_wins_over_a_model_of_a_path_too(own, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps({"model": compose(["model=gpt2-xl"])["model"]}))
    spec = load(path, *own)  # both folders are searched, the user's and the one that the path is read from
    assert spec.layers[0].attention.n_heads == 2


@pytest.mark.parametrize("file", sorted((conf_dir() / "model").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_preset_is_whole_and_its_choices_come_after_its_values(file):
    defaults = yaml.safe_load(file.read_text())["defaults"]
    assert defaults[0] == "_self_"
    assert [*map(next, map(iter, defaults[1:]))] == ["norm", "position", "attention", "ffn", "dropout", "head", "block"]
