"""10,000 layers that all differ, the most that are accepted: every command answers in seconds, on a page."""

import json
import time

import pytest
from imported import spec_of

import archlab
from archlab.compose import load, preset
from archlab.cost.figures import exact_figures, show_indices
from archlab.decoder.describe import composition
from archlab.decoder.pattern import pattern_text
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import MANY_KINDS
from archlab.errors import ConfigError
from archlab.interop.card import import_preset
from archlab.workload import Workload

N = 10_000
UNEVEN = {"model_type": "gpt2", "n_layer": N, "scale_attn_by_inverse_layer_idx": True}
MIXED = {"model_type": "qwen3", "num_hidden_layers": N, "use_sliding_window": True, "head_dim": 128}
MIXED["layer_types"] = [("full_attention", "sliding_attention")[i * i % 7 % 2] for i in range(N)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(UNEVEN))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("config", [UNEVEN, MIXED], ids=["all differ", "two kinds"])
def test_the_cost_of_many_layers_grows_with_their_number_alone(config):
    """On a quiet machine: a tenth of a millisecond a layer to read, as much to cost."""
    start = time.process_time()
    spec = spec_of(config)
    figures, described = exact_figures(spec, Workload()), composition(spec)
    assert time.process_time() - start < 10
    assert spec.n_layers == N
    assert len(figures) < 40
    assert len(json.dumps(described)) < 200_000
    assert max(map(len, figures)) < 60


@pytest.mark.slow
def test_the_first_kinds_are_listed_and_the_others_counted():
    spec = spec_of(UNEVEN)
    named = {name: f for name, f in exact_figures(spec, Workload()).items() if name.startswith("params.layers.")}
    assert list(named) == [*(f"params.layers.{i}" for i in range(MANY_KINDS // 2)), "params.layers.others"]
    assert sum(figure.value for figure in named.values()) == 7_087_872 * N
    assert named["params.layers.others"].how == "9,992 layers of 9,992 more kinds"
    described = composition(spec)
    assert (len(described["layer_kinds"]), described["more_kinds"]) == (8, N - 8)


def test_as_many_kinds_as_a_page_holds_are_all_listed():
    spec = spec_of({**UNEVEN, "n_layer": MANY_KINDS})
    described = composition(spec)
    assert len(described["layer_kinds"]) == MANY_KINDS
    assert "more_kinds" not in described


def test_a_layers_indices_are_short():
    assert show_indices(range(0, N, 2)) == "0,2,4,..,9998"
    assert show_indices([0, 1, 2, 5]) == "0-2,5"


@pytest.mark.slow
def test_commands_answer_on_a_page(shell, folder):
    for words in (["compare", str(folder)], ["build", "--from", str(folder), "bench=none", "verify=false"]):
        answer = shell(*words)
        assert answer.code == 0, answer.err
        assert len(answer.out.splitlines()) < 80
        assert f"{7_087_872 * N + 768 * (50_257 + 1_024 + 2):,}" in answer.out


@pytest.mark.slow
def test_the_record_of_a_run_has_all_layers(shell, folder):
    assert shell("build", "--from", str(folder), "bench=none", "verify=false").code == 0
    record = shell.folder / shell.left()[-1]
    assert record.stat().st_size < 2_000_000
    assert load(record).layers == spec_of(UNEVEN).layers


@pytest.mark.slow
def test_a_long_pattern_is_text_in_yaml_and_reads_back(folder):
    file = folder / "many.yaml"
    file.write_text(import_preset(folder, file)[0])
    assert archlab.load(file).layers == spec_of(UNEVEN).layers


def test_a_pattern_as_text():
    pattern = [{"attention": {"n_kv_heads": 1}}, {"ffn": {"d_ff": 64}, "repeat": 2}]
    model = {**preset("minimind")}
    text = json.dumps(pattern)
    assert resolve({**model, "layers": text}).spec == resolve({**model, "layers": pattern}).spec
    assert pattern_text(pattern) is pattern
    assert json.loads(pattern_text(pattern * 60)) == pattern * 60
    for wrong in ("", "nothing", "[1, 2", "{}"):
        with pytest.raises(ConfigError, match=r"model\.layers"):
            resolve({**model, "layers": wrong})


def test_an_axis_that_rests_on_a_changed_one_is_read_anew():
    model = preset("minimind")
    changed = resolve({**model, "layers": [{"norm": {"choice": "layernorm"}}, {"attention": {"choice": "mha"}}]}).spec
    assert changed.layers[0].attention.norm == changed.layers[0].norm
    alibi = resolve({**model, "position": {"choice": "alibi"}, "layers": [{"attention": {"n_heads": 4}}, {}]}).spec
    assert [layer.position.n_heads for layer in alibi.layers[:2]] == [4, 8]
