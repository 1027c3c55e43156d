"""Composing the points of a sweep value by value gives what Hydra makes of the same overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from archlab.multirun.points import Composer
from archlab.overrides import normalise
from archlab.presets import conf_dir

MINE = """defaults: [{ffn: swiglu}, {position: rope}, {attention: gqa}, {norm: rmsnorm}, {head: tied}, {dropout: none},
  {block: pre_norm}, _self_]
name: mine
d_model: 64
n_layers: 2
vocab_size: 100
context: 32
attention: {n_heads: 4, n_kv_heads: 2}
"""
FILES = {
    "model/mine.yaml": MINE,
    "model/following.yaml": "defaults: [mine, _self_]\nname: w${model.d_model}\n",
    "model/ffn/wide.yaml": "choice: swiglu\nd_ff: 1000\n",
    "model/norm/far.yaml": "# @package _global_\nmodel: {norm: {choice: layernorm}, d_model: 128}\n",
    "experiment/small.yaml": "# @package _global_\ndefaults: [override /model: gpt2]\nmodel: {n_layers: 2}\nseed: 7\n",
}


@pytest.fixture(scope="module")
def hydra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    folder = tmp_path_factory.mktemp("conf")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        search = [f"hydra.searchpath=[file://{folder}]"]
        yield loader, loader.load_configuration("config", search, RunMode.MULTIRUN)


@pytest.fixture(scope="module")
def composer(hydra: tuple[Any, Any]) -> Composer:
    return Composer(*hydra)


def by_hydra(hydra: tuple[Any, Any], overrides: list[str]) -> Any:
    loader, master = hydra
    config = loader.load_sweep_config(master, overrides)
    with open_dict(config):
        del config["hydra"]
    return OmegaConf.to_container(config)


SAME = [
    [],
    ["model=gpt2"],
    ["model/norm=layernorm", "model/attention=mqa"],
    ["model/norm=layernorm", "model/attention=mqa", "model/ffn=gelu", "model.n_layers=3"],
    ["model=minimind", "model/ffn=wide", "model/norm=layernorm"],
    ["model=mine", "model/ffn=gelu", "model/norm=far"],
    ["model/norm=far", "model/head=untied", "model.d_model=96"],
    ["model=mine", "bench=none", "workload.batch=3", "workload.contexts=[1,2]", "workload.contexts=[3]"],
    ["experiment=small", "model.n_layers=5", "seed=1", "model/attention=mqa", "model/norm=layernorm"],
    ["model.n_layers=null", "seed=null", "verify=true", "objective=[params,kv_bytes_per_token]"],
    ["model.attention.window=16", "model.attention.window=null"],
    ["model.name='a, b: \"c\" = é'", "model.about=\"it''s\"", "model.name=x"],
    ["model.name=1e3", "model.name='1e3'", "model.about='null'", "model.about=yes"],
    ["++model.ffn.expert={choice: gelu, d_ff: 7}", "model.ffn.expert={a: {b: 1}, d_ff: {}}"],
    ["model.layers=[{attention:{n_kv_heads:1},repeat:3},{position:{choice:none}}]", "model.n_layers=4"],
    ["model.layers=[{attention:{n_kv_heads:1}}]", "++model.layers.0.attention.n_kv_heads=4"],
    ["++model.n_layers.deep=3", "++model.norm=5"],
    ["++model.norm={choice: layernorm, eps: 1e-3}", "++model.norm.eps=0.5"],
    ["~model.attention.n_kv_heads", "model.n_layers=3"],
    ["model.attention.n_kv_heads=4", "~model.attention.n_kv_heads", "model.n_layers=3"],
    ["+seed_of=3", "bench.phases=[]", "++bench={seconds: 3}"],
    ["model.name=${model.d_model}", "model.n_layers=3"],
    ["model=following", "model.d_model=32"],
    ["++workload.contexts=[a,${seed}]"],
    ["++model.x=???", "++model.x.y=1", "++model.z={a: ???}"],
    ["device=cpu", "++device=auto", "weights='a b/${c}'"],
    ["~bench", "model/norm=layernorm"],
    ["model.n_layers=int(3.2)", "model.d_model=1_000", "bench.seconds=.5", "bench.timeout=inf"],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("overrides", SAME, ids=" ".join)
def test_a_point_is_what_hydra_composes(hydra: tuple[Any, Any], composer: Composer, overrides: list[str]) -> None:
    forced = [text if text[0] in "+~" else normalise([text])[0] for text in overrides]
    try:
        expected = by_hydra(hydra, forced)
    except Exception as error:
        with pytest.raises(type(error)):
            composer.point(forced)
        return
    made = composer.point(forced)
    assert repr(made.config) == repr(expected)  # the order of the keys too
    assert made.plain == ("${" not in repr(expected) and "???" not in repr(expected))


def test_a_point_leaves_those_before_it_alone(composer: Composer) -> None:
    before = repr(composer.point(["bench=none"]).config)
    composer.point(["bench=none", "++model.attention.n_kv_heads=1", "++model.ffn={d_ff: 3}"])
    assert repr(composer.point(["bench=none"]).config) == before


def test_choices_are_composed_once_and_swaps_one_at_a_time(hydra: tuple[Any, Any]) -> None:
    loader, master = hydra
    asked: list[list[str]] = []

    class Counting:
        def load_sweep_config(self, master: Any, overrides: list[str]) -> Any:
            asked.append(overrides)
            return loader.load_sweep_config(master, overrides)

    composer = Composer(Counting(), master)  # type: ignore[arg-type]
    axes = {"norm": ("layernorm", "rmsnorm"), "attention": ("mha", "gqa", "mqa"), "ffn": ("relu", "gelu", "swiglu")}
    for norm in axes["norm"]:
        for attention in axes["attention"]:
            for ffn in axes["ffn"]:
                for layers in range(1, 20):
                    choices = [f"model/norm={norm}", f"model/attention={attention}", f"model/ffn={ffn}"]
                    composer.point([*choices, f"++model.n_layers={layers}"])
    assert len(asked) == 1 + 2 + 3 + 3
