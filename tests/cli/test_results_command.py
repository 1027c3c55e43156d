"""archlab results: a decision from what a sweep left."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest

from archlab.cli.app import answer

LONG = ("build", "-m", "model/attention=mha,gqa,mqa", "model.n_layers=range(1,17)", "bench=none", "hydra.sweep.dir=out")


@pytest.fixture(scope="module")
def swept(tmp_path_factory, shell_in):
    shell = shell_in(tmp_path_factory.mktemp("swept"))
    answer = shell(*LONG)
    assert answer.code == 0, answer.err
    return shell, answer


def params(shell):
    found = {}
    for file in (shell.folder / "out").glob("*/record.json"):
        body = json.loads(file.read_text())
        found[int(file.parent.name)] = (
            body["figures"]["params"]["value"],
            body["figures"]["kv_bytes_per_token"]["value"],
        )
    return found


@pytest.mark.slow
def test_a_long_sweep_ends_in_its_front_and_a_count_of_the_rest(swept):
    shell, answer = swept
    assert len(params(shell)) == 48
    # mqa has both the fewest parameters and the smallest cache, and one layer the least of it
    assert "1 of 48 make the front of params, kv_bytes_per_token; 47 are no better" in answer.out
    assert answer.out.count("\n") < 60
    assert "Effect of each axis" in answer.out


def test_the_effect_is_that_of_the_records(swept):
    shell, _ = swept
    found = params(shell)
    document = shell("results", "out", "--json").json["summary"]["tables"]["effects"]["rows"]
    gqa = next(row for row in document if row["choice"] == "gqa")
    mean = sum(100 * (found[16 + i][0] / found[i][0] - 1) for i in range(16)) / 16
    assert (gqa["axis"], gqa["against"], gqa["pairs"]) == ("model/attention", "mha", 16)
    assert gqa["params"] == pytest.approx(mean)
    assert gqa["kv_bytes_per_token"] == pytest.approx(-75)  # 2 of 8 heads


def test_where_sort_and_formats(swept):
    shell, _ = swept
    found = params(shell)
    wanted = sorted((p for p, kv in found.values() if p < 30e6 and kv <= 16 * 1024), reverse=True)
    chosen = ("results", "out", "--where", "params<30M and kv_bytes_per_token<=16KiB", "--sort", "-params")
    rows = list(csv.DictReader(io.StringIO(shell(*chosen, "--format", "csv").out)))
    assert [int(row["params"]) for row in rows] == wanted
    points = shell(*chosen, "--format", "json").json["points"]
    assert [point["figures"]["params"]["value"] for point in points] == wanted
    assert shell(*chosen, "--format", "md").out.startswith("| ")
    written = shell(*chosen, "--format", "csv", "--output", "made.csv")
    assert "made.csv" in written.out
    assert len((shell.folder / "made.csv").read_text().splitlines()) == len(wanted) + 1
    attention = shell("results", "out", "--where", "attention=mha and n_layers=16", "--format", "csv").out
    assert len(attention.splitlines()) == 2


def test_groups(swept):
    shell, _ = swept
    found = params(shell)
    rows = shell("results", "out", "--group-by", "attention", "--json").json["summary"]["tables"]["groups"]["rows"]
    assert [(row["attention"], row["points"]) for row in rows] == [("mha", 16), ("gqa", 16), ("mqa", 16)]
    assert rows[0]["params best"] == min(found[i][0] for i in range(16))
    assert "mqa" in shell("results", "out", "--group-by", "attention", "--format", "csv").out
    assert "mqa" in shell("results", "out", "--group-by", "attention").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--where", "prams<3"), "did you mean params?"),
        (("--where", "params<1"), "none of 48 points"),
        (("--pareto", "parms"), "did you mean params?"),
        (("--sort", "parms"), "did you mean params?"),
        (("--group-by", "atention"), "did you mean attention?"),
        (("--format", "parket"), "did you mean parquet?"),
        (("--chart", "params,kvv"), "did you mean kv?"),
        (("--chart", "params"), "two different figures"),
        (("--chart", "params,kv", "--format", "md"), "leave out --chart"),
    ],
)
def test_a_wrong_wish_is_one_message(swept, arguments, says):
    shell, _ = swept
    answer = shell("results", "out", *arguments)
    assert answer.code == 2
    assert says in answer.err
    assert "Traceback" not in answer.err


TIMED = {"decode": "decode", "decode_tok_s": "decode", "train_mfu": "train", "prefill_peak_bytes": "prefill"}


@pytest.mark.parametrize("figure", TIMED)
@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("results", "out", "--pareto", "params,{}"), "pareto"),
        (("results", "out", "--sort", "-{}"), "sort"),
        (("results", "out", "--chart", "params,{}"), "chart"),
        (("results", "out", "--where", "{}>3"), "where"),
        (("compare", "out", "--sort", "{}"), "sort"),
        (("compare", "out", "--explain", "{}"), "explain"),
        (("build", "bench=none", "objective=[{}]"), "objective"),
        (("build", "bench=none", "constraints=[{}<=3]"), "constraints"),
    ],
)
def test_what_was_not_timed_has_no_figures_and_says_so(swept, figure, command, key, monkeypatch, capsys):
    shell, _ = swept
    monkeypatch.chdir(shell.folder)
    assert answer([word.format(figure) for word in command]) == 2
    said = capsys.readouterr().err
    assert re.match(
        rf"archlab: {key}: no figure (or option )?'\w+': {TIMED[figure]} is not timed; valid: .*params, ", said
    )
    assert said.count("\n") == 1


def test_a_chart_of_two_figures(swept):
    shell, _ = swept
    out = shell("results", "out", "--chart", "params,kv", env={"PYTHONIOENCODING": "ascii"}).out
    assert "kv_bytes_per_token, log, over params" in out  # 128 B to 16 KiB a token
    assert ". 47 others  o 1 on the front of the two: less params, less kv_bytes_per_token" in out


def test_parquet_without_its_extra_names_it(swept):
    shell, _ = swept
    (shell.folder / "lacking").mkdir()
    (shell.folder / "lacking" / "pyarrow.py").write_text("raise ImportError\n")
    lacking = {"PYTHONPATH": f"{shell.folder / 'lacking'}:{os.environ.get('PYTHONPATH', '')}"}
    answer = shell("results", "out", "--format", "parquet", "--output", "made.parquet", env=lacking)
    assert answer.code == 2
    assert "pip install 'archlab[parquet]'" in answer.err
    assert not (shell.folder / "made.parquet").exists()


def test_parquet_holds_what_csv_holds_in_a_file_and_in_a_pipe(swept):
    parquet = pytest.importorskip("pyarrow.parquet", reason="not installed: pip install 'archlab[parquet]'")
    shell, _ = swept
    assert shell("results", "out", "--format", "parquet", "--output", "made.parquet").code == 0
    command = [sys.executable, "-m", "archlab", "results", "out", "--format", "parquet"]
    piped = subprocess.run(command, cwd=shell.folder, capture_output=True, check=True).stdout
    rows = list(csv.DictReader(io.StringIO(shell("results", "out", "--format", "csv").out)))
    assert len(rows) == 48
    for table in (parquet.read_table(shell.folder / "made.parquet"), parquet.read_table(io.BytesIO(piped))):
        assert table.column_names == list(rows[0])
        for row, line in zip(table.to_pylist(), rows, strict=True):
            assert {name: "" if value is None else str(value) for name, value in row.items()} == line
    assert shell("results", "out", "--format", "parquet", "--output", "no/where/").code == 2


def test_a_folder_without_records(shell):
    assert shell("results", "nowhere").code == 2
    (shell.folder / "empty").mkdir()
    assert shell("results", "empty").code == 2
