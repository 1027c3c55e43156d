"""What Optuna draws from: the values of an override, no more and no fewer."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

pytest.importorskip("optuna", reason="the extra is not installed: pip install 'archlab[optuna]'")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from archlab.errors import ConfigError
from archlab.multirun.search import SearchSweeper, distribution, every_combination


@pytest.mark.parametrize(
    ("override", "drawn"),
    [
        ("++model.n_layers=range(1,9)", IntDistribution(1, 8)),  # the stop is left out, as in Python
        ("++model.d_model=range(64,200,64)", IntDistribution(64, 192, step=64)),
        ("++model.n_layers=interval(1,8)", IntDistribution(1, 8)),
        ("++model.n_layers=tag(log,interval(1,8))", IntDistribution(1, 8, log=True)),
        ("++model.dropout.attention=interval(0.0,0.5)", FloatDistribution(0.0, 0.5)),
        ("++x=int(interval(1,8))", IntDistribution(1, 8)),
        ("model/attention=mha,gqa", CategoricalDistribution(("mha", "gqa"))),
        ("++x=1,null,true,'a b'", CategoricalDistribution(("1", "null", "True", "'a b'"))),
        ("++x=range(3,0,-1)", CategoricalDistribution(("3", "2", "1"))),
    ],
)
def test_the_values_of_an_override(override, drawn):
    assert distribution(OverridesParser.create().parse_override(override)) == drawn


@pytest.mark.parametrize(
    "value", ["interval(64,32)", "interval(1,inf)", "tag(log,interval(0,32))", "tag(log,interval(0.0,1.0))"]
)
def test_what_cannot_be_drawn_from_is_refused(value):
    with pytest.raises(ConfigError, match=r"^model\.d_model: .* cannot be drawn from"):
        distribution(OverridesParser.create().parse_override(f"++model.d_model={value}"))


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [*(("seed", value) for value in (-1, "abc", 1.5, True, 2**32)), ("n_jobs", 0), ("n_trials", "9"), ("sampler", "t")],
)
def test_a_setting_of_the_search_that_cannot_be_is_refused(setting, wrong):
    settings = {"n_trials": 9, "n_jobs": 1, "sampler": "tpe", "seed": 0}
    SearchSweeper(**settings)
    SearchSweeper(**settings | {"seed": None})
    with pytest.raises(ConfigError, match=rf"^hydra\.sweeper\.{setting}: "):
        SearchSweeper(**settings | {setting: wrong})


def test_a_small_space_is_tried_whole():
    space = {"a": IntDistribution(1, 5, step=2), "b": CategoricalDistribution(("x", "y"))}
    points = every_combination(space, 6)
    assert [(one["a"], one["b"]) for one in points] == [(a, b) for a in (1, 3, 5) for b in "xy"]
    assert every_combination(space, 5) is None
    assert every_combination({"c": FloatDistribution(0, 1)}, 100) is None
