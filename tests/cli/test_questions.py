"""The experiments that come with archlab: each runs as it is, and what its comment promises holds."""

from pathlib import Path

import pytest

from archlab.presets import conf_dir

pytestmark = pytest.mark.slow


def run(shell, name, *more):
    """The points of an experiment by what it sweeps over, each with its figures."""
    answer = shell("build", f"experiment={name}", *more, "--json", "-q")
    assert answer.code == 0, answer.err
    found = {}
    for point in answer.json["points"]:
        own = [text.partition("=") for text in point["overrides"] if not text.startswith("experiment=")]
        key = tuple(value for name, _, value in own if name not in [word.partition("=")[0] for word in more])
        found[key[0] if len(key) == 1 else key] = point
    return found


def figures(points, name):
    return {key: point["figures"][name]["value"] for key, point in points.items()}


def test_attention_at_equal_parameters(shell):
    points = run(shell, "attention_equal_params")
    params, kv = figures(points, "params"), figures(points, "kv_bytes_per_token")
    step = 3 * 512 * 8 * 8  # three matrices, 8 columns more of each, 8 layers
    assert params["mha"] == 42_082_816  # the model that sets the budget
    assert all(abs(total - params["mha"]) <= step / 2 for total in params.values())
    assert kv == {"mha": 2 * 8 * 8 * 64 * 2, "gqa": 2 * 8 * 2 * 64 * 2, "mqa": 2 * 8 * 1 * 64 * 2}
    widths = {key: point["composition"]["axes"]["ffn"]["d_ff"] for key, point in points.items()}
    assert widths["mha"] < widths["gqa"] < widths["mqa"]


def test_ffn_at_equal_parameters(shell):
    points = run(shell, "ffn_equal_params")
    params = figures(points, "params")
    assert set(params) == {"gelu", "relu2", "swiglu", "geglu", "reglu"}
    assert max(params.values()) - min(params.values()) <= 3 * 512 * 8 * 8 / 2
    widths = {key: point["composition"]["axes"]["ffn"]["d_ff"] for key, point in points.items()}
    assert widths["swiglu"] / widths["gelu"] == pytest.approx(2 / 3, rel=0.01)
    flops = figures(points, "flops_decode_per_token")
    assert max(flops.values()) <= 1.01 * min(flops.values())


def test_depth_against_width(shell):
    points = run(shell, "depth_width")
    assert list(points) == ["2", "4", "8", "16", "32"]
    totals = figures(points, "params_non_embedding")
    assert all(abs(total / 25_200_000 - 1) <= 0.05 for total in totals.values())
    widths = [point["composition"]["d_model"] for point in points.values()]
    assert widths == sorted(widths, reverse=True)
    assert {point["composition"]["axes"]["attention"]["head_dim"] for point in points.values()} == {32}
    cache = list(figures(points, "kv_bytes_per_token").values())
    assert cache == sorted(cache)
    assert cache == [2 * 2 * layers * width for layers, width in zip((2, 4, 8, 16, 32), widths, strict=True)]


def test_positions_at_a_long_context(shell):
    points = run(shell, "positions_long_context")
    params = figures(points, "params")
    base = params.pop("rope")
    assert params.pop("learned") - base == 32_768 * 512
    assert params.pop("t5") - base == 32 * 8  # a bias for each bucket and head
    assert len(params) == 8
    assert set(params.values()) == {base}
    assert set(figures(points, "kv_bytes_per_token").values()) == {4096}
    assert {point["composition"]["context"] for point in points.values()} == {32_768}
    for point in points.values():
        assert point["config"]["workload"]["contexts"] == [4096, 32_768]


def test_tied_against_untied_in_small_models(shell):
    points = run(shell, "tied_small")
    params = figures(points, "params")
    for width in (128, 256, 512, 1024):
        tied, untied = params["tied", str(width)], params["untied", str(width)]
        assert untied - tied == 32_000 * width
    assert (params["untied", "128"] - params["tied", "128"]) / params["untied", "128"] == pytest.approx(0.42, abs=0.01)
    for name in ("kv_bytes_per_token", "flops_decode_per_token"):
        of = figures(points, name)
        assert all(of["tied", str(width)] == of["untied", str(width)] for width in (128, 256, 512, 1024))


def test_a_budget_of_the_cache(shell):
    points = run(shell, "kv_budget")
    cache, layers = figures(points, "kv_bytes_per_token"), figures(points, "solved_n_layers")
    for key, taken in cache.items():
        assert taken <= 16_384 < taken + taken // layers[key]  # one layer more would not fit
    assert (layers["mha"], layers["gqa"], layers["mqa"]) == (8, 32, 64)


def test_an_experiment_is_changed_as_anything_is(shell):
    changes = ("model.n_layers=2", "budget.multiple=64", "model/attention=mha,mqa")
    answer = shell("build", "experiment=attention_equal_params", *changes, "--json")
    points = answer.json["points"]
    assert {point["composition"]["n_layers"] for point in points} == {2}
    chosen = [point["composition"]["axes"]["attention"]["choice"] for point in points]
    assert chosen == ["mha", "mqa"]  # what is typed stands in the place of what the file sweeps over


@pytest.mark.parametrize("file", sorted((conf_dir() / "experiment").glob("*.yaml")), ids=lambda file: file.stem)
def test_each_says_its_question_and_how_to_run_it(file):
    lines = Path(file).read_text().splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1].endswith("?")
    assert any(f"archlab build -m experiment={file.stem}" in line for line in lines)
    assert f'"{file.stem}"' in Path(__file__).read_text()  # it is run above
