"""archlab roofline and archlab fit as processes: one JSON document, one message, no torch."""

import pytest


def test_the_bound_of_an_h100(shell):
    made = shell("roofline", "llama-3-8b", "hardware=h100-sxm", "--context", "2k", "--json").json
    decode = next(row for row in made["tables"]["bounds"]["rows"] if row["pass"] == "decode")
    assert decode["bound"] == pytest.approx(4.56, abs=5e-3)
    assert decode["binds"] == "memory"
    assert made["tables"]["bounds"]["columns"]["rate"]["kind"] == "bound"


def test_words_of_the_device_stand_among_overrides_of_the_model(shell):
    words = ("model.n_layers=16", "hardware=h100-sxm", "hardware.bandwidth=1TB/s", "workload.prompt=2048")
    made = shell("roofline", "llama-3-8b", *words, "--json").json
    decode = next(row for row in made["tables"]["bounds"]["rows"] if row["pass"] == "decode")
    assert made["tables"]["ceilings"]["rows"][0]["bandwidth"] == 1000
    assert decode["memory"] == pytest.approx(decode["moved"] / 1e12 * 1e3)
    assert made["assumptions"]["context"] == 2048


def test_what_does_not_fit_is_an_answer(shell):
    answer = shell("fit", "llama-3.1-70b", "hardware=h200", "--context", "128k", "--kv-dtype", "fp8")
    assert answer.code == 0
    assert "does not fit" in answer.out
    assert "short by" in answer.out


def test_without_a_device_fit_goes_over_all(shell):
    made = shell("fit", "llama-3.1-8b", "--context", "32k", "--json").json
    rows = made["tables"]["devices"]["rows"]
    assert [row["memory"] for row in rows] == sorted(row["memory"] for row in rows)
    assert len(rows) >= 25


@pytest.mark.parametrize("form", ["csv", "md", "table"])
def test_every_format_is_written(shell, form):
    answer = shell("fit", "gpt2", "hardware=h200", "--format", form)
    assert answer.code == 0
    assert "largest batch" in answer.out


def test_a_figure_is_explained(shell):
    answer = shell("roofline", "llama-3-8b", "hardware=h100-sxm", "--context", "2k", "--explain", "decode.bound")
    assert "4.561 ms" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("roofline", "gpt2", "hardware=h20"), "did you mean h200"),
        (("roofline", "gpt2", "hardware=h200", "--tp", "5"), "valid: 1, 2, 3, 4, 6, 12"),
        (("roofline", "gpt2", "hardware=h200", "--dtype", "bf61"), "did you mean bf16"),
        (("roofline", "gpt2", "hardware=h200", "--context", "1025"), "1024"),
        (("fit", "gpt2", "hardware=h200", "--context", "100k"), "102,400"),
        (("fit", "gpt2", "hardware=h200", "--reserve", "1G"), "1,073,741,824"),
        (("fit", "gpt2", "hardware=h200", "--utilisation", "90"), "at most 1"),
        (("fit", "gpt2", "hardware=h200", "--batch", "-1"), "-1"),
        (("fit", "gpt2", "hardware=epyc-9654"), "hardware.memory=80GiB"),
        (("fit", "gpt2", "hardware=h200", "--explain", "weight"), "did you mean weights"),
        (("roofline", "gpt2", "hardware=h200", "--explain", "decode_flops"), "did you mean decode.flops"),
    ],
)
def test_a_wrong_request_is_one_message(shell, words, said):
    answer = shell(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("command", ["roofline", "fit"])
def test_a_preset_needs_neither_torch_nor_hydra(shell, command):
    code = f"""
import sys
from archlab.cli.app import answer
code = answer(["{command}", "llama-3-8b", "hardware=h200", "hardware.memory=80GiB"])
print(code, {{"torch", "hydra", "omegaconf"}} & set(sys.modules))
"""
    assert shell.python(code).out.endswith("0 set()\n")
