"""`archlab kv` as a user runs it."""

import csv
import io

import pytest

from archlab.compose import load
from archlab.cost.kv import kv_cache


def test_three_columns_by_context_batch_and_dtype(shell):
    answer = shell("kv", "gemma-3-1b", "--context", "2k,32k", "--batch", "1,32", "--dtype", "bf16,int4", "--json")
    assert answer.code == 0, answer.err
    rows = answer.json["tables"]["totals"]["rows"]
    assert [(row["dtype"], row["batch"], row["context"]) for row in rows] == [
        (dtype, batch, context) for dtype in ("bf16", "int4") for batch in (1, 32) for context in (2048, 32_768)
    ]
    assert rows[1] == {
        "dtype": "bf16",
        "batch": 1,
        "context": 32_768,
        "kv_bytes_per_token": 26_624,
        "required": 139 * 2**20,
        "allocated": 139 * 2**20,
        "engine": 139 * 2**20 + 22 * 16 * 1024,
    }
    kinds = {name: column.get("kind") for name, column in answer.json["tables"]["totals"]["columns"].items()}
    assert (kinds["required"], kinds["allocated"], kinds["engine"]) == ("exact", "exact", "estimated")


def test_b11_on_the_terminal(shell):
    answer = shell("kv", "gemma-3-1b")
    assert answer.code == 0, answer.err
    for shown in (
        "139.00 MiB required",
        "window 512",
        "0-4,6-10,12-16,18-22,24-25",
        "W tokens, the current one included",
    ):
        assert shown in answer.out


def test_overrides_yaml_and_run_folders(shell):
    fewer = shell("kv", "gqa", "model/attention=mqa", "--context", "100", "--json").json
    assert fewer["tables"]["totals"]["rows"][0]["required"] == 100 * 8 * 2 * 64 * 2
    (shell.folder / "mine.yaml").write_text("defaults: [gqa, _self_]\nname: mine\nn_layers: 2\n")
    mine = shell("kv", "mine.yaml", "--context", "100", "--json").json
    assert (mine["model"], mine["tables"]["totals"]["rows"][0]["required"]) == ("mine", 100 * 2 * 2 * 2 * 64 * 2)


def test_one_device_of_eight_and_the_cluster(shell):
    answer = shell("kv", "llama-3.1-70b", "--tp", "16", "--context", "8k", "--beams", "4", "--json").json
    (row,) = answer["tables"]["totals"]["rows"]
    cost = kv_cache(load("llama-3.1-70b"), 1, 8192, beams=4)
    assert (row["required"], row["cluster"], row["copies"]) == (cost.required // 8, 2 * cost.required, 2)


def test_explain_gives_the_formula_with_the_numbers(shell):
    answer = shell("kv", "mistral-7b-v0.1", "--context", "32k", "--explain", "required")
    assert answer.code == 0, answer.err
    assert "1 x 1 x (32 x 4,096 x 4,096 B) = 536,870,912 B" in answer.out
    assert "By kind of layer" not in answer.out


def test_formats(shell):
    rows = list(csv.DictReader(io.StringIO(shell("kv", "gpt2", "--format", "csv").out)))
    assert [row["required"] for row in rows] == ["37748736", "37748736"]
    assert "| gqa |" in shell("kv", "gqa", "--format", "md").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpt2", "--context", "2k"), "positions end at 1024 tokens; 2048 were asked for"),
        (("gqa", "--context", "1.5k"), "context: '1.5k' can be 1,500 or 1,536 tokens"),
        (("gqa", "--context", "0"), "context: 0 must be above zero"),
        (("gqa", "--context", "2k,"), "context: '' is not a number of tokens"),
        (("gqa", "--batch", "-1"), "batch: '-1' is not a count"),
        (("gqa", "--dtype", "bf16,int5"), "dtype: 'int5' is nothing that a KV cache is kept in"),
        (("gqa", "--tp", "3"), "tp: 3 does not divide n_heads = 8; valid: 1, 2, 4, 8"),
        (("gqa", "--tp", "0"), "tp: 0 is not a whole number of 1 or more"),
        (("gqa", "--beams", "0"), "beams: 0 is not"),
        (("gqa", "--block", "x"), "Invalid value for '--block'"),
        (("gqa", "--engine", "page"), "engine: no engine 'page'; did you mean paged?"),
        (("gqa", "--cache", "latent"), "cache: gqa has no latent attention"),
        (("gqa", "--explain", "requird"), "explain: no figure 'requird'; did you mean required?"),
        (("gqa", "--format", "xml"), "csv"),
    ],
)
def test_a_wrong_request_is_one_message(shell, arguments, message):
    answer = shell("kv", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_no_torch_and_no_hydra(shell):
    code = (
        "import sys; from archlab.cli.app import answer; code = answer(['kv', 'gqa', '--json']);"
        "print(code, {'torch', 'hydra', 'omegaconf'} & set(sys.modules), file=sys.stderr)"
    )
    assert shell.python(code).err == "0 set()\n"
