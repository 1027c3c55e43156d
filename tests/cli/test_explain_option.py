"""--explain on the commands that print figures, and the explanations in their JSON."""

import csv
import json

import pytest

from archlab.cli.app import answer as run

PAPER = ("bench=none", "verify=false")
KV = "  2 x 8 x 2 x 64 x 2 = 4,096\n"


def test_a_figure_of_a_build(shell):
    answer = shell("build", "model=gqa", *PAPER, "--explain", "kv_bytes_per_token")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("kv_bytes_per_token  exact\n  2 n_layers n_kv_heads head_dim bytes\n" + KV)


def test_a_figure_of_each_model_compared(shell):
    out = shell("compare", "gqa", "gqa", "model/attention=mqa", "--explain", "kv_bytes_per_token").out
    assert "kv_bytes_per_token  gqa, exact" in out
    assert "kv_bytes_per_token  gqa model/attention=mqa, exact" in out
    assert KV in out
    assert "  2 x 8 x 1 x 64 x 2 = 2,048\n" in out


def test_every_figure_of_a_prompt(shell):
    out = shell("flops", "gqa", "--explain", "all").out
    assert "lm_head.full.per_token  exact\n  2 d_model vocab_size\n  2 x 512 x 32,000 = 32,768,000\n" in out
    assert "trained.palm  exact\n" in out


@pytest.mark.parametrize(
    "command", [("kv", "gqa"), ("flops", "gqa"), ("compare", "gqa", "gpt2"), ("diff", "gqa", "gpt2")]
)
def test_every_format_explains(capsys, command):
    """CSV and Markdown hold the text of the terminal, a row a model and figure; JSON holds all of them anyway."""

    def out(form):
        assert run([*command, "--explain", "all", "--format", form]) == 0
        return capsys.readouterr().out

    rows, table, shown = list(csv.DictReader(out("csv").splitlines())), out("md").splitlines(), out("table")
    assert len(rows) == len(table) - 2 > 1
    for row in rows:
        assert list(row) == ["model", "figure", "kind", "formula", "worked", "assumptions"]
        assert f"  {row['worked']}\n" in shown
        assert row["formula"] in shown


def test_one_figure_in_csv(capsys):
    assert run(["kv", "gqa", "--explain", "required", "--format", "csv"]) == 0
    [row] = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["model"], row["worked"]) == ("gqa", "1 x 1 x (8 x 4,096 x 512 B) = 16,777,216 B")


def test_json_holds_every_explanation(shell):
    build = shell("build", "model=gqa", *PAPER, "--json").json
    compared = shell("compare", "gqa", "--json").json["points"][0]
    for document in (build, compared):
        assert document["explanations"].keys() == document["figures"].keys()
        assert document["explanations"]["params.embedding"]["worked"] == "32,000 x 512 = 16,384,000"
    record = json.loads((shell.folder / build["folder"] / "record.json").read_text())
    assert "explanations" not in record  # they follow from the config that it keeps
    assert compared["explanations"]["params"] == build["explanations"]["params"]


def test_a_swept_figure(shell):
    answer = shell("build", "-m", "model=gqa", "model/attention=mha,mqa", *PAPER, "--explain", "params.attention")
    assert answer.code == 0, answer.err
    assert "8 x (2 x 512 x 8 x 64 + 2 x 512 x 8 x 64) = 8,388,608" in answer.out
    assert "8 x (2 x 512 x 8 x 64 + 2 x 512 x 1 x 64) = 4,718,592" in answer.out


@pytest.mark.slow
def test_a_figure_that_is_not_there(shell):
    for command in (("build", "model=gqa", *PAPER), ("compare", "gqa", "gpt2"), ("flops", "gqa")):
        for form in ((), ("--json",)):
            answer = shell(*command, "--explain", "flops_prefill_per_token.cuasal", *form)
            assert answer.code == 2
            assert "did you mean flops_prefill_per_token.causal?" in answer.out + answer.err
