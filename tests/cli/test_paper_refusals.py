"""What the commands on paper refuse, in this process: one message, the setting under one name, the valid ones."""

import json
import re

import pytest

from archlab.cli.app import answer

MODELS = {
    "kv": ("kv", "gqa"),
    "fit": ("fit", "gqa", "hardware=h200"),
    "memory": ("memory", "gqa"),
    "train": ("memory", "gqa", "--train"),
    "roofline": ("roofline", "gqa", "hardware=h200"),
    "flops": ("flops", "gqa"),
    "diff": ("diff", "gqa", "gpt2"),
    "size": ("size", "gqa", "params=124M"),
}


@pytest.fixture
def refused(capsys):
    def ask(*words):
        code = answer([*words, "--json"])
        out = capsys.readouterr().out
        assert (code, out.count("\n")) == (2, 1), (words, out)
        return json.loads(out)["error"]

    return ask


@pytest.mark.parametrize("name", MODELS)
def test_a_flag_of_the_command_is_the_nearest_spelling(refused, name):
    """British and American, a letter too few: the command's own flags are known to the message."""
    own = {"fit": "--utilization", "memory": "--optimiser", "train": "--recomput", "kv": "--blok"}
    flag = own.get(name, "--formt")
    assert re.search(rf"no option {flag}; did you mean --[a-z]+\?", refused(*MODELS[name], flag, "x")["message"])


@pytest.mark.parametrize("name", ["fit", "memory", "roofline"])
@pytest.mark.parametrize(("flag", "key"), [("--weights-dtype", "weights_dtype"), ("--kv-dtype", "kv_dtype")])
def test_a_setting_has_one_name_in_every_command(refused, name, flag, key):
    error = refused(*MODELS[name], flag, "int3")
    assert error["key"] == key
    assert error["value"] == "int3"
    assert "int4" in error["valid"]


@pytest.mark.parametrize("name", ["kv", "fit"])
@pytest.mark.parametrize(
    ("engine", "flag", "key"),
    [
        ("paged", "--micro-batch", "micro_batch"),
        ("full_pages", "--micro-batch", "micro_batch"),
        ("llama_cpp", "--block", "block"),
    ],
)
def test_a_size_that_the_engine_does_not_have_is_refused(refused, name, engine, flag, key):
    error = refused(*MODELS[name], "--engine", engine, flag, "32")
    assert (error["key"], error["value"]) == (key, 32)


@pytest.mark.parametrize(("engine", "size"), [("paged", "block"), ("llama_cpp", "micro_batch")])
@pytest.mark.parametrize("name", ["kv", "fit"])
def test_j06_an_engines_size_is_echoed_and_no_other(capsys, name, engine, size):
    flag = f"--{size.replace('_', '-')}"
    assert answer([*MODELS[name], "--engine", engine, flag, "64", "--json"]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumptions"]
    assert {key: assumed.get(key) for key in ("block", "micro_batch") if key in assumed} == {size: 64}


def test_a_device_that_would_change_nothing_is_refused(refused):
    assert "plays no part" in refused("kv", "gqa", "hardware=h200")["message"]


@pytest.mark.parametrize(("model", "said"), [("gqa", "left"), ("llama-3-8b", "short by")])
def test_memory_says_whether_a_device_that_is_named_has_as_much(capsys, model, said):
    assert answer(["memory", model, "--train", "hardware=h200", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    [note] = [note for note in made["notes"] if note.startswith("NVIDIA H200 SXM 141GB has 140.40 GiB")]
    assert said in note


def test_peaks_are_a_block(refused):
    error = refused("roofline", "gqa", "hardware=h200", "hardware.peaks=3")
    assert error["key"] == "hardware.peaks"
    assert "peaks.bf16" in error["valid"]


AMOUNTS = {"0": "above zero", "-1": "-1", "x": "'x'", "1.5": "1.5", "nan": "nan", "9k": "9,216"}


@pytest.mark.parametrize("text", AMOUNTS)
@pytest.mark.parametrize("name", ["kv", "fit", "memory", "train", "roofline", "flops", "diff"])
def test_a_context_that_is_none(refused, name, text):
    assert AMOUNTS[text] in refused(*MODELS[name], "--context", text)["message"]


@pytest.mark.parametrize("name", ["kv", "fit", "memory", "train", "roofline", "flops", "diff"])
@pytest.mark.parametrize("batch", ["0", "-1", "x"])
def test_a_batch_that_is_none(refused, name, batch):
    assert batch in refused(*MODELS[name], "--batch", batch)["message"]


@pytest.mark.parametrize("name", ["kv", "fit", "memory", "train", "roofline"])
@pytest.mark.parametrize("tp", ["0", "-1", "3", "16", "2.5"])
def test_devices_that_cannot_share(refused, name, tp):
    assert tp in refused(*MODELS[name], "--tp", tp)["message"]


@pytest.mark.parametrize("name", MODELS)
def test_c20_positions_that_end_before_the_context(refused, name):
    words = ["gpt2" if word == "gqa" else word for word in MODELS[name]]
    if name == "diff":
        words[2] = "gqa"
    assert "1024" in refused(*words, "--context", "2k")["message"]
