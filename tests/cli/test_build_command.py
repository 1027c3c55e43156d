"""`archlab build` of one composition: what it prints, what it leaves, what it imports."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import archlab
from archlab import cli, verify

PAPER = ("bench=none", "verify=false")
TINY = (
    "model.d_model=32",
    "model.n_layers=2",
    "model.vocab_size=64",
    "model.context=64",
    "model.attention.n_heads=4",
    "workload.prompt=8",
    "workload.new=4",
    "bench.seconds=0.05",
)
ANSI = re.compile(r"\x1b\[")


def test_the_main_job_on_paper(shell):
    answer = shell("build", "model=minimind", "bench=none")
    assert answer.code == 0, answer.err
    assert answer.err == ""
    for text in (
        "63,912,192",  # total
        "58,996,992",  # without the embedding
        "44,826,624",  # ffn
        "14,592",  # norms, query and key norms among them
        "tied",
        "d_ff 2,432",
        "head_dim 96",
        "12,288",  # KV bytes a token
        "63,912,192 = 63,912,192",  # closed form = built module
        "every query-key pair",
        "exact",
        "record",
    ):
        assert text.lower() in answer.out.lower(), text
    assert not ANSI.search(answer.out)


@pytest.mark.slow
def test_what_is_left_is_the_record_and_the_composed_config(shell):
    answer = shell("build", "model=minimind", "model/attention=mha", *PAPER, "--json")
    folder = shell.folder / answer.json["folder"]
    assert [Path(name).name for name in shell.left()] == ["config.yaml", "record.json"]
    assert folder.relative_to(shell.folder).parts[0] == "outputs"
    shown = {key: value for key, value in answer.json.items() if key != "explanations"}
    assert json.loads((folder / "record.json").read_text()) == shown
    assert answer.json["notes"] == ["dropped model.attention.n_kv_heads = 4: mha fixes it"]
    same = archlab.load("minimind", "model/attention=mha")
    for source in (folder, folder / "config.yaml", folder / "record.json", str(folder)):
        assert archlab.load(source) == same
    assert archlab.load(folder, "model/attention=mqa").layers[0].attention.n_kv_heads == 1


def test_the_record_has_every_exact_figure_with_its_kind(shell):
    figures = shell("build", "model=gpt2", *PAPER, "--json").json["figures"]
    assert figures["params"]["value"] == 124_439_808
    assert figures["params.positions"]["value"] == 786_432
    assert figures["params_non_embedding"]["value"] == 85_056_000
    assert figures["kv_bytes_per_token"]["value"] == 36_864
    assert {figure["kind"] for figure in figures.values()} == {"exact"}
    assert all(figure["how"] and figure["unit"] for figure in figures.values())


def test_a_measured_run(shell):
    answer = shell("build", *TINY, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["status"] == "ok"
    figures = answer.json["figures"]
    for name in ("prefill_tok_s", "decode_tok_s", "train_tok_s"):
        rate = figures[name]
        assert rate["kind"] == "measured"
        assert 0 < rate["low"] <= rate["value"] <= rate["high"]
        assert rate["repeats"] >= 1
    assert all(check["ok"] for check in answer.json["checks"])
    assert answer.json["environment"]["torch"]


@pytest.mark.slow
def test_a_measured_run_prints_its_spread(shell):
    answer = shell("build", *TINY)
    assert answer.code == 0, answer.err
    for text in ("measured", "tok/s", "prefill", "decode", "train", "p10", "p90"):
        assert text in answer.out.lower()


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classification", "regression"])
def test_a_task_changes_only_the_head(shell, head):
    answer = shell("build", *TINY, f"model/head={head}", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["figures"]["train_tok_s"]["value"] > 0


@pytest.mark.slow
def test_too_large_for_the_device_is_a_row_that_says_so(shell):
    answer = shell("build", "model=llama-2-70b", "model.n_layers=2000")
    assert answer.code == 1
    assert "too_large" in answer.out
    assert "GiB" in answer.out
    assert "Traceback" not in answer.err


def test_d10_a_model_that_is_not_timed_says_which_attention_its_cap_needs(shell):
    answer = shell("build", "model=gemma-2-2b", "bench=none", "verify=false")
    assert "logit_cap 50 runs the explicit softmax (math)" in answer.out


@pytest.mark.slow
@pytest.mark.parametrize("debug", [False, True])
def test_what_torch_cannot_make_is_one_line_and_a_traceback_with_debug_only(shell, debug):
    sizes = ["model.d_model=1073741824", "model.vocab_size=2147483647", "model.attention.n_heads=1048576"]
    answer = shell("build", "model=mha", *sizes, "bench=none", "--json", *["--debug"] * debug)
    assert answer.code == 1
    assert answer.json["status"] == "failed"
    assert "overflow" in answer.json["reason"]
    assert "\n" not in answer.json["reason"]
    assert any("Traceback" in note for note in answer.json["notes"]) == debug


def test_a_mismatch_exits_1(shell, monkeypatch, capsys):
    wrong = archlab.parameters(archlab.load("mqa"))
    monkeypatch.setattr(verify, "parameters", lambda spec: wrong)
    monkeypatch.chdir(shell.folder)
    arguments = ["build", "bench=none"]
    assert cli.answer(arguments) == 1
    out = capsys.readouterr().out
    assert "38,412,800" in out
    assert "38,937,088" in out
    assert "failed" in out


@pytest.mark.parametrize("columns", ["20", "60", "200"])
def test_piped_output_is_never_cut(shell, columns):
    answer = shell("build", "model=llama-2-70b", *PAPER, env={"COLUMNS": columns, "FORCE_COLOR": ""})
    assert "68,976,648,192" in answer.out
    assert "…" not in answer.out


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_any_encoding(shell, encoding):
    answer = shell("build", *PAPER, env={"PYTHONIOENCODING": encoding})
    assert answer.code == 0, answer.err


def test_flags_anywhere_on_the_line(shell):
    first = shell("build", "--json", *PAPER, "model=mha")
    last = shell("build", *PAPER, "model=mha", "--json")
    assert first.json["figures"] == last.json["figures"]


def test_hydra_shows_the_config_and_runs_nothing(shell):
    answer = shell("build", "model=mqa", "--cfg", "job", "-p", "model.attention")
    assert answer.code == 0
    assert "choice: mqa" in answer.out
    assert shell.left() == []


def test_a_users_own_config_folder(shell):
    folder = shell.folder / "my conf"
    (folder / "model" / "ffn").mkdir(parents=True)
    (folder / "model" / "mine.yaml").write_text(
        "defaults: [gqa, override ffn: wide, _self_]\nname: mine\nn_layers: 3\n"
    )
    (folder / "model" / "ffn" / "wide.yaml").write_text("choice: geglu\nd_ff: 4096\n")
    answer = shell("build", "--config-dir", str(folder), "model=mine", *PAPER, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["composition"]["axes"]["ffn"]["d_ff"] == 4096
    assert answer.json["composition"]["n_layers"] == 3


@pytest.mark.slow
def test_builds_at_the_same_moment_do_not_clobber_each_other(shell):
    command = [sys.executable, "-m", "archlab", "build", *PAPER]
    running = [subprocess.Popen(command, cwd=shell.folder, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0, 0, 0, 0]
    assert len([name for name in shell.left() if name.endswith("record.json")]) == 4


SPY = """
import sys
from archlab.cli import main
sys.argv = ["archlab", *sys.argv[1:]]
try:
    main()
finally:
    print(sorted({"torch", "hydra", "omegaconf", "rich", "yaml"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("--help",), {"torch", "hydra", "omegaconf"}),
        (("--version",), {"torch", "hydra", "omegaconf"}),
        (("models",), {"torch", "hydra", "omegaconf", "yaml"}),
        (("components",), {"torch", "hydra", "omegaconf", "yaml"}),
        (("compare", "gqa", "llama-3-8b"), {"torch", "hydra", "omegaconf", "yaml"}),
        (("compare", "gqa", "model/attention=mha"), {"torch"}),
        (("explain", "yarn", "model=minimind"), {"torch", "hydra", "omegaconf", "yaml"}),
        (("explain", "mfu"), {"torch", "hydra", "omegaconf", "yaml"}),
        (("build", *PAPER), {"torch"}),
        (("build", "model.n_layer=3"), {"torch", "hydra", "omegaconf"}),
    ],
)
def test_nothing_is_imported_that_is_not_needed(shell, arguments, absent):
    done = subprocess.run(
        [sys.executable, "-c", SPY, *arguments], cwd=shell.folder, capture_output=True, text=True, check=False
    )
    imported = set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))
    assert not imported & absent


@pytest.mark.parametrize("line", ["models", "components", "build bench=none verify=false", "compare gqa mha --json"])
def test_a_closed_pipe_is_no_error(shell, line):
    command = f"{sys.executable} -m archlab {line} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=shell.folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_python_dash_m_and_version(shell):
    assert shell("--version").out == f"archlab {archlab.__version__}\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_on_a_terminal_no_number_is_cut(shell, columns):
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(shell.folder)
        os.environ |= {"COLUMNS": str(columns), "TERM": "xterm-256color"}
        os.execv(sys.executable, [sys.executable, "-m", "archlab", "build", "model=llama-2-70b", *PAPER])
    shown = b""
    while chunk := _read(terminal):
        shown += chunk
    os.waitpid(pid, 0)
    text = shown.decode()
    assert ANSI.search(text)
    assert "68,976,648,192" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert max(len(line) for line in plain.splitlines() if "outputs" not in line) <= columns  # a path stays whole


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize("command", ["build", "compare", "export", "import", "models", "components", "explain"])
def test_h_is_help(shell, command):
    answer = shell(command, "-h")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"Usage: archlab {command}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("--info",), ("-i", "model=gqa"), ("--info", "defaults-tree"), ("--info=searchpath",), ("--cfg", "job")]
)
def test_what_hydra_prints_of_itself(shell, flags):
    answer = shell("build", *flags, "bench=none")
    assert answer.code == 0, answer.err
    assert answer.out + answer.err
    assert shell.left() == []
