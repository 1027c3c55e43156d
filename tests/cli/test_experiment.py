"""An experiment of the user's own, from a folder of his own."""

import pytest

SMALL = """# @package _global_
defaults:
  - override /model: minimind
  - override /model/attention: mha
  - override /bench: none

model:
  n_layers: 2
seed: 7
verify: false
"""


@pytest.mark.parametrize("plus", ["", "+"])
def test_an_experiment_sets_what_it_says(shell, plus):
    (shell.folder / "mine" / "experiment").mkdir(parents=True)
    (shell.folder / "mine" / "experiment" / "small.yaml").write_text(SMALL)
    answer = shell("build", "--config-dir", "mine", f"{plus}experiment=small", "model.d_model=64", "--json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["composition"]["n_layers"] == 2
    assert record["composition"]["d_model"] == 64
    assert record["composition"]["axes"]["attention"]["choice"] == "mha"
    assert (record["config"]["model"]["name"], record["config"]["seed"]) == ("minimind", 7)


def test_an_experiment_that_is_not_there_is_refused(shell):
    (shell.folder / "mine" / "experiment").mkdir(parents=True)
    (shell.folder / "mine" / "experiment" / "small.yaml").write_text(SMALL)
    answer = shell("build", "--config-dir", "mine", "experiment=smal")
    assert answer.code == 2
    assert "small" in answer.err
    assert shell("build", "experiment=small").code == 2
