"""Variants in Python mean what Hydra's overrides mean: the same spec, the same notes, the same errors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import values_of

import archlab
from archlab import compose, presets
from archlab.errors import ConfigError, RequestError
from archlab.registry import AXES, choices

SOURCES = ("gqa", "gpt2", "minimind-moe", "gemma-3-1b", "deepseek-v3", "qwen2.5-7b-yarn", "transformer-2017")


def spelled(value: Any) -> str:
    """A value as Hydra's grammar has it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(spelled(item) for item in value) + "]"
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or value is True or value is False
        else str(value)
    )


@st.composite
def overrides(draw: st.DrawFn) -> dict[str, Any]:
    """Choices of some axes, and values of options of any of their choices, perhaps of one that was not chosen."""
    made: dict[str, Any] = {}
    for axis in draw(st.lists(st.sampled_from(AXES), max_size=3, unique=True)):
        made[f"model/{axis}"] = draw(st.sampled_from(sorted(choices(axis))))
    for axis in draw(st.lists(st.sampled_from(AXES), max_size=2)):
        options = {name: opt for choice in choices(axis).values() for name, opt in choice.options.items()}
        name = draw(st.sampled_from(sorted(options)))
        made[f"model.{axis}.{name}"] = draw(values_of(options[name]))
    if draw(st.booleans()):
        made["model.d_model"] = draw(st.sampled_from([256, 384, 768]))
    if draw(st.booleans()):
        made["model.layers"] = draw(
            st.sampled_from([None, [{"attention": {"n_heads": 4}}, {"ffn": {"choice": "gelu"}, "repeat": 2}]])
        )
    return made


def by_hydra(source: str, made: dict[str, Any]) -> tuple[Any, Any]:
    try:
        asked = compose.request(source, [f"{key}={spelled(value)}" for key, value in made.items()])
    except RequestError as error:
        return str(error), None
    return asked.spec, asked.notes


def in_python(source: str, made: dict[str, Any]) -> tuple[Any, Any]:
    (point,) = archlab.sweep(source, {key: [value] for key, value in made.items()})
    return (point.spec, point.request.notes) if point.request else (str(point.error), None)


@pytest.mark.slow
@given(st.sampled_from(SOURCES), overrides())
@settings(max_examples=60)
def test_a_point_means_what_hydras_overrides_mean(source: str, made: dict[str, Any]) -> None:
    assert in_python(source, made) == by_hydra(source, made)


@pytest.mark.parametrize(
    "made",
    [
        {"model.ffn.expert": {"d_ff": 64}},
        {"model.ffn.expert": {"choice": "gelu"}, "model.ffn.expert.d_ff": 96},
        {"model.ffn.expert": None, "model.ffn.expert.d_ff": 96},
        {"model.ffn": {"choice": "swiglu", "d_ff": 100}, "model.ffn.d_ff": 200},
        {"model/ffn": "gelu", "model.ffn": {"choice": "swiglu"}},
        {"model.ffn.d_ff": 128, "model/ffn": "gelu"},  # a choice comes first wherever it is written
        {"model.ffn.d_ff": 128, "model/ffn": "moe"},
        {"model.ffn.expert.d_ff": 1.5},
        {"model.ffn.n_experts": True},
        {"workload.batch": 2, "workload.contexts": [128, 256]},
    ],
)
def test_blocks_merge_and_values_keep_their_types_as_hydra_has_it(made):
    assert in_python("minimind-moe", made) == by_hydra("minimind-moe", made)


def test_every_combination_is_a_point_and_the_first_key_varies_slowest():
    axes = {"model/ffn": ["swiglu", "gelu"], "model.n_layers": range(1, 4)}
    points = list(archlab.sweep("gqa", axes))
    assert [tuple(point.choices.values()) for point in points] == list(itertools.product(["swiglu", "gelu"], [1, 2, 3]))
    assert [(point.spec.layers[0].ffn.choice, point.spec.n_layers) for point in points] == [
        *(("swiglu", n) for n in (1, 2, 3)),
        *(("gelu", n) for n in (1, 2, 3)),
    ]
    by_hydra = archlab.load("gqa", "model/ffn=gelu", "model.n_layers=3")
    assert archlab.parameters(points[-1].spec) == archlab.parameters(by_hydra)


def test_a_combination_that_cannot_be_is_a_point_with_its_error_and_the_sweep_goes_on():
    good, bad, after = archlab.sweep("gqa", {"model.attention.n_kv_heads": [2, 3, 4]})
    assert good.ok
    assert after.ok
    assert not bad.ok
    assert "3 does not divide n_heads = 8" in str(bad.error)
    with pytest.raises(ConfigError, match="does not divide"):
        bad.spec  # noqa: B018


@pytest.mark.parametrize(
    ("source", "made", "said"),
    [
        ("gqa", {"model.n_layer": [1]}, "did you mean model.n_layers"),
        ("gqa", {"model/norm": ["rmsnorm", "rmsnrm"]}, "did you mean model/norm=rmsnorm"),
        ("gqa", {"model/nrom": ["rmsnorm"]}, "did you mean model/norm"),
        ("gqa", {"model/ffn": "gelu"}, "'gelu' is not a list of values"),
        ("gqa", {"model.n_layers": 4}, "4 is not a list of values"),
        ("gqa", {"model": ["gpt2"]}, "give it as the source"),
        ("gqa", {"model.ffn": ["gelu"]}, "is chosen, not set"),
        ("gqa", {"model.layers[0].ffn.d_ff": [1]}, "set the list as a whole"),
        ("gq", {}, "did you mean gqa"),
        (4, {}, "a model is a name or a path"),
        ("nowhere/model.yaml", {}, "cannot be read"),
    ],
)
def test_what_no_point_could_have_is_raised_before_the_first(source, made, said):
    with pytest.raises(RequestError, match=said.replace("(", r"\(")):
        archlab.sweep(source, made)


def test_a_source_that_interpolates_is_refused_for_a_variant_would_not_follow(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("defaults: [gqa, _self_]\nffn: {d_ff: '${model.d_model}'}\n")
    assert archlab.load(file, "model.d_model=256").layers[0].ffn.d_ff == 256
    with pytest.raises(RequestError, match="interpolation"):
        archlab.sweep(file, {"model.d_model": [256]})
    file.write_text("defaults: [gqa, _self_]\nffn: {d_ff: 512}\n")
    (point,) = archlab.sweep(file, {"model.d_model": [256]})
    assert point.spec == archlab.load(file, "model.d_model=256")


def test_variants_leave_the_preset_and_one_another_as_they_were():
    before = repr(compose.preset("minimind-moe"))
    values = {"model.ffn.expert": [{"d_ff": 64, "rule": None}, {"choice": "gelu"}], "model.layers": [[{}], None]}
    widths = [point.spec.layers[0].ffn.expert.d_ff for point in archlab.sweep("minimind-moe", values)]
    assert widths == [64, 64, 2432, 2432]
    assert repr(compose.preset("minimind-moe")) == before


def test_a_group_of_an_axis_holds_its_choice_alone_so_that_a_swap_is_one_value():
    for axis in AXES:
        for file in (presets.conf_dir() / "model" / axis).glob("*.yaml"):
            lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
            assert lines == [f"choice: {file.stem}"]


def test_no_preset_interpolates():
    assert not [file for file in (presets.conf_dir() / "model").rglob("*.yaml") if "${" in file.read_text()]


@pytest.mark.parametrize("key", ["model.name", "model.attention.backend", "weights", "device", "workload.dtype"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_text_is_refused_as_in_an_override(key: str, empty: str) -> None:
    (refused,) = archlab.sweep("gqa", {key: [empty]})
    with pytest.raises(ConfigError) as caught:
        archlab.load("gqa", f"{key}='{empty}'")
    assert str(refused.error) == str(caught.value) == f"{key}: an empty text was given; give a value, or leave it out"
