"""`compare`, `components`, `models` and completion."""

import csv
import io
import os
import pty
import select
import shutil
import signal
import sys

import pytest
from typer.completion import get_completion_script

import archlab
from archlab import presets
from archlab.completion import complete_override
from archlab.registry import AXES, choices

PAPER = ("bench=none", "verify=false")


def test_presets_side_by_side(shell):
    answer = shell("compare", "gpt2", "minimind", "llama-3-8b")
    assert answer.code == 0, answer.err
    for total in ("124,439,808", "63,912,192", "8,030,261,248"):
        assert total in answer.out


def test_overrides_belong_to_the_model_before_them(shell):
    points = shell("compare", "minimind", "minimind", "model/attention=mha", "gpt2", "--json").json["points"]
    assert [point["figures"]["kv_bytes_per_token"]["value"] for point in points] == [12_288, 24_576, 36_864]


def test_overrides_that_come_first_belong_to_all_models(shell):
    """A token takes 2 (keys, values) x 2 layers x n_kv_heads x head_dim x 2 bytes: 4 x 96, 8 x 96, 12 x 64."""
    words = ("model.n_layers=2", "minimind", "minimind", "model/attention=mha", "gpt2")
    points = shell("compare", *words, "--json").json["points"]
    assert [point["figures"]["kv_bytes_per_token"]["value"] for point in points] == [3_072, 6_144, 6_144]


def test_run_folders_records_and_yaml(shell):
    folder = shell.folder / shell("build", "model=mqa", *PAPER, "--json").json["folder"]
    (shell.folder / "mine.yaml").write_text("defaults: [gqa, _self_]\nname: mine\nn_layers: 2\n")
    points = shell("compare", str(folder), str(folder / "record.json"), "mine.yaml", "gqa", "--json").json["points"]
    totals = [point["figures"]["params"]["value"] for point in points]
    assert totals[0] == totals[1] == 38_412_800
    assert totals[2] == archlab.parameters(archlab.load("gqa", "model.n_layers=2")).total


def test_a_path_is_read_as_the_file_it_is_not_by_its_name(shell):
    path = shell.folder / "llama-3-8b.yaml"
    path.write_text("defaults: [llama-3-8b, _self_]\nn_layers: 16\n")
    one_layer = 41_943_040 + 176_160_768 + 8_192
    assert archlab.parameters(archlab.load(path)).total == 8_030_261_248 - 16 * one_layer


def test_sort_and_formats(shell):
    names = ["minimind", "gpt2", "gqa"]
    rows = list(csv.DictReader(io.StringIO(shell("compare", *names, "--sort", "params", "--format", "csv").out)))
    totals = [int(row["params"]) for row in rows]
    assert totals == sorted(totals) == [38_937_088, 63_912_192, 124_439_808]
    down = list(csv.DictReader(io.StringIO(shell("compare", *names, "--sort", "-params", "--format", "csv").out)))
    assert [int(row["params"]) for row in down] == totals[::-1]
    assert "|" in shell("compare", *names, "--format", "md").out
    refused = shell("compare", *names, "--format", "xml")
    assert refused.code == 2
    assert "csv" in refused.err


def test_models_lists_every_preset(shell):
    answer = shell("models")
    assert answer.code == 0, answer.err
    for name in presets.names():
        assert name in answer.out
        assert f"{archlab.parameters(archlab.load(name)).total:,}" in answer.out


@pytest.mark.parametrize("axis", AXES)
def test_components_shows_every_choice_and_option(shell, axis):
    answer = shell("components", axis)
    assert answer.code == 0, answer.err
    for choice in choices(axis).values():
        assert choice.name in answer.out
        for option in choice.options:
            assert option in answer.out


def test_components_says_who_uses_a_choice(shell):
    assert "minimind-yarn" in shell("components", "position").out


def test_json_everywhere(shell):
    assert shell("models", "--json").json
    assert shell("components", "--json").json
    assert shell("components", "ffn", "--json").json


def test_completion():
    assert "model/attention=mqa" in complete_override("model/att")
    assert "model.attention.n_heads=" in complete_override("model.attention.")
    assert "model=gqa" in complete_override("model=")
    assert "bench=none" in complete_override("b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("build model/attention=mq\t", "build|model/attention=mqa"),
        ("build model=minimind-y\t", "build|model=minimind-yarn"),
        ("build bench=none model/attention=mq\tbench=none", "build|bench=none|model/attention=mqa|bench=none"),
        ("build bench=no\t-m", "build|bench=none|-m"),
        ("build model.attention.n_k\t2", "build|model.attention.n_kv_heads=2"),
        ("build model/atten\tmq\t", "build|model/attention=mqa"),
        ("build model/dropout=\tcl\t", "build|model/dropout=classic"),
        ("compare minimind-y\tmodel/attention=mq\t", "compare|minimind-yarn|model/attention=mqa"),
        ("export gqa model/attention=mq\t", "export|gqa|model/attention=mqa"),
        ("explain yar\tmodel=minimind-y\t", "explain|yarn|model=minimind-yarn"),
    ],
)
def test_completion_in_bash(bash, typed, read):
    assert bash(typed) == f"archlab|{read}|"


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """What the words are after a line was typed, with its tabs, into a bash on a terminal."""
    folder = tmp_path_factory.mktemp("bash")
    command = folder / "archlab"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m archlab "$@"\n')
    command.chmod(0o755)
    script = get_completion_script(prog_name="archlab", complete_var="_ARCHLAB_COMPLETE", shell="bash")
    (folder / "rc").write_text(
        f'{script}\nPS1=""\nPATH="{folder}:$PATH"\nwords() {{ printf "%s|" "$@" > words.new; mv words.new words; }}\n'
        "bind 'set enable-bracketed-paste off'\nbind 'set bell-style none'\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(shutil.which("bash"), ["bash", "--noprofile", "--rcfile", "rc", "-i"])

    def ask(typed):
        answer = folder / "words"
        answer.unlink(missing_ok=True)
        os.write(terminal, f"archlab {typed}\x01words \x05\n".encode())
        for _ in range(600):
            if answer.exists():
                return answer.read_text()
            if select.select([terminal], [], [], 0.1)[0]:
                os.read(terminal, 65536)
        raise TimeoutError(typed)

    yield ask
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def test_completion_as_the_shell_asks_for_it(shell):
    asked = {"_ARCHLAB_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "archlab build model/attention=m"}
    answer = shell("build", env=asked)
    assert "mha" in answer.out
    assert "mqa" in answer.out


def test_csv_writes_whole_numbers_as_such(shell):
    head, row = shell("compare", "gqa", "--format", "csv").out.splitlines()
    values = dict(zip(head.split(","), row.split(","), strict=True))
    assert values["flops_decode_per_token"].isdecimal()


def test_a_misspelt_command_is_suggested_once(shell):
    answer = shell("bulid")
    assert answer.code == 2
    assert answer.err.count("build") == 1
