"""flops and diff as a user runs them: every format, refusals, and what they do not import."""

import csv
import io
import re
from pathlib import Path

import pytest

COMMANDS = [("flops", "gpt2"), ("diff", "gqa", "mha"), ("diff", "gqa", "model/attention=mqa", "hardware=h200")]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_format_has_the_same_numbers(shell, command):
    table, document = shell(*command), shell(*command, "--json").json
    assert table.code == 0, table.err
    flat = list(csv.DictReader(io.StringIO(shell(*command, "--format", "csv").out)))
    markdown = shell(*command, "--format", "md").out
    for name, held in document["tables"].items():
        lines = [row for row in flat if row["table"] == name]
        assert len(lines) == len(held["rows"])
        for row, line in zip(held["rows"], lines, strict=True):
            for column, value in row.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    assert float(line[column]) == value
                    if column != "percent" and float(value).is_integer() and abs(value) < 2**30:
                        assert f"{int(value):,}" in table.out
                        assert f"{int(value):,}" in markdown


@pytest.mark.slow
def test_diff_of_a_run_folder_and_a_yaml(shell):
    folder = shell("build", "model=gqa", "model.n_layers=4", "bench=none", "verify=false", "--json").json["folder"]
    (shell.folder / "mine.yaml").write_text("defaults: [gqa, _self_]\nname: mine\nn_layers: 2\n")
    answer = shell("diff", folder, "mine.yaml", "--json").json
    rows = {row["setting"]: row for row in answer["tables"]["choices"]["rows"]}
    assert rows["n_layers"] == {"setting": "n_layers", "before": 4, "after": 2}
    assert answer["verdict"].startswith("KV cache at 4,096 2.00x smaller, parameters -")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flops", "gpt2", "--context", "2k"), "positions end at 1024 tokens; 2048 were asked for"),
        (("flops", "gqa", "--context", "0"), "must be above zero"),
        (("flops", "gqa", "--context", "3k"), "can be 3,000 or 3,072 tokens"),
        (("flops", "gqa", "--tokens", "15Q"), "'Q' is no power of ten; valid: k, M, B, T"),
        (("flops", "gqa", "--batch", "0"), "workload.batch: 0 must be >= 1"),
        (("flops", "gpt-2"), "did you mean gpt2?"),
        (("flops", "gqa", "--format", "xml"), "valid: table, json, csv, md"),
        (("flops", "gqa", "hardware=h10-sxm"), "did you mean h100-sxm?"),
        (("diff", "gqa", "mha", "hardware=h10-sxm"), "did you mean h100-sxm?"),
        (("diff", "gqa"), "name two models, or one and what to change"),
        (("diff", "gqa", "mha", "mqa"), "3 models"),
        (("diff", "gqa", "mha", "--context", "1k,x"), "is not a number of tokens"),
        (("diff", "gqa", "model/atention=mha"), "model/atention"),
        (("diff", "gqa", "mha", "--dtype", "fp7"), "valid: bf16"),
    ],
    ids=" ".join,
)
def test_refusals(shell, words, said):
    answer = shell(*words)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


@pytest.mark.parametrize("command", [("flops", "llama-3.1-8b"), ("diff", "gpt2", "minimind"), ("compare", "gpt2")])
def test_presets_need_neither_torch_nor_hydra(shell, command):
    for form in ((), ("--json",)):
        code = f"import sys; from archlab.cli.app import answer; answer({[*command, *form]!r}); "
        code += "print({'torch', 'hydra', 'omegaconf'} & set(sys.modules), file=sys.stderr)"
        done = shell.python(code)
        assert done.err.strip() == "set()"
        assert done.code == 0


def test_the_samples_of_the_readme_are_what_is_printed(shell):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    samples = re.findall(r"```text\n\$ archlab ((?:diff|compare) [^\n]*)\n(.*?)```", readme, re.DOTALL)
    assert [command.split()[0] for command, _ in samples] == ["diff", "compare"]
    for command, shown in samples:
        assert shell(*command.split()).out.startswith(shown)
