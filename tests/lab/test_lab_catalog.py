"""Which experiments there are, how words are read, and what is refused."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from asked import SMALL, Lab, rows

import archlab
from archlab import completion
from archlab.cli.app import answer
from archlab.cli.lab import conducted
from archlab.errors import RequestError
from archlab.frozen import values_of
from archlab.lab.catalog import EXPERIMENTS, document, find, sort
from archlab.lab.setup import cut
from archlab.options import options_of

NOTES = ("rope", "order", "residual", "norm", "cache", "heads", "flash", "activation", "dropout", "softmax",
         "extrapolation")  # fmt: skip
"""The experiments of the study notes."""


def test_there_is_one_for_each_of_the_notes_and_a_module_for_each() -> None:
    assert set(NOTES) < set(EXPERIMENTS)
    for name in EXPERIMENTS:
        assert callable(importlib.import_module(f"archlab.lab.{name}").run)


def test_the_list_tells_every_setting_as_it_would_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["lab", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [row["experiment"] for row in rows(made, "experiments")] == list(EXPERIMENTS)
    assert all(row["asks"].endswith("?") for row in rows(made, "experiments"))
    for experiment in EXPERIMENTS.values():
        typed = [row["setting"] for row in rows(made, "settings") if row["experiment"] == experiment.name]
        assert len(typed) == len(options_of(experiment.settings))
        _, settings, _ = sort(experiment, typed)
        assert values_of(settings) == values_of(experiment.settings())
    assert all(row["what"] for row in rows(made, "settings"))


def test_words_are_settings_the_model_and_its_overrides() -> None:
    source, settings, overrides = sort(
        find("rope"), ["model=./mine.yaml", "bases=[1e4, 5e5]", "contexts=8k", "model.context=64", "model/norm=none"]
    )
    assert source == "./mine.yaml"
    assert (settings.bases, settings.contexts) == ((1e4, 5e5), (8192,))
    assert overrides == ["model.context=64", "model/norm=none"]
    assert sort(find("rope"), ["bases=null", "seed=3"])[2] == ["seed=3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ropee",), "no experiment 'ropee'; did you mean rope?; valid: rope, order, "),
        (("residual", "minimind"), "'minimind' is no setting; did you mean model=minimind?"),
        (("residual", "scale=1"), "scale: no such setting; did you mean scales?; valid: layers, model, scales, seed"),
        (("residual", "scales=a"), "scales: 'a' is not a finite number"),
        (("residual", "scales="), "scales: '' is not a finite number"),
        (("residual", "scales=1,-1"), "scales: -1.0 must be >= 0"),
        (("residual", "layers=0"), "layers: 0 must be >= 1"),
        (("residual", "device=cpu"), "device: no such setting"),
        (("residual", "workload.batch=2"), "workload.batch: no such setting"),
        (("residual", "--lairs=2"), "no option --lairs"),
        (("residual", "model=minmind"), "no preset 'minmind'; did you mean minimind?"),
        (("residual", "model.attention.heads=2"), "did you mean model.attention.n_heads"),
        (("residual", "--seed", "-1"), "--seed"),
        (("flash", "dtype=fp8"), "dtype: fp8 is not one of its values; valid: bf16, fp16, fp32, fp64"),
        (("rope", "contexts=3k"), "contexts: '3k' can be 3,000 or 3,072 tokens"),
        (("rope", "--png", "rope.pdf"), "rope.pdf: pictures are PNG"),
        (("cache", "device=cuda:77"), "device: 'cuda:77' is not available here"),
        (("cache", *SMALL, "model/head=regression"), "regression head and generates nothing"),
    ],
)
def test_a_wrong_request_is_one_message(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["lab", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_model_too_large_for_the_machine_is_refused_with_both_sizes() -> None:
    wide = ["model.ffn.d_ff=100000000", "model.attention.head_dim=1000"]
    with pytest.raises(RequestError, match=r"one layer of minimind .* takes .* TiB, and .* may be taken here"):
        conducted("residual", wide)


def test_of_a_large_model_some_layers_are_tried_and_it_says_which() -> None:
    """4,096 x (1,024 + 1,024) of embedding and head, 192,946,432 a layer and 4,096 of the last norm, by hand."""
    tried = cut(archlab.load("qwen3-8b"))
    assert tried.what == "1 of 36 layers, 1,024 of 151,936 rows of the vocabulary, 201.34 M random parameters"
    half = cut(archlab.load("minimind"), most=40_000_000)
    assert half.what.startswith("5 of 8 layers, 1,024 of 6,400 rows of the vocabulary, ")
    assert half.also(archlab.load("gqa", "model/norm=layernorm")).n_layers == 5


def test_a_seed_is_the_same_numbers_again(lab: Lab) -> None:
    one, other = (lab("residual", *SMALL, "tokens=8", *more) for more in (("seed=1",), ()))
    assert conducted("residual", [*SMALL, "tokens=8"], seed=1).as_dict() == one
    assert rows(one, "residual") != rows(other, "residual")


def test_every_experiment_can_be_completed() -> None:
    assert completion.complete_experiment("r") == ["rope", "residual"]


def test_the_list_needs_neither_torch_nor_hydra() -> None:
    code = "import sys; from archlab.cli.app import answer; answer(['lab', '--json']); "
    code += "print({'torch', 'hydra', 'omegaconf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.slow
def test_a_picture_is_drawn_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="what reads pictures is not installed")
    pytest.importorskip("matplotlib", reason="what draws pictures is not installed: archlab[report]")
    file = tmp_path / "rope.png"
    assert answer(["lab", "rope", *SMALL, "--png", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith('{"schema"')
    assert printed.err == f"{file}: drawn\n"
    with image.open(file) as drawn:
        assert drawn.size == (1800, 2 * 1140)  # two charts, one below the other


def test_the_documents_own_charts() -> None:
    assert document().charts == ()
