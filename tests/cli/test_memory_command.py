"""`archlab memory` as a user runs it."""

import csv
import io

import pytest

import archlab


def test_training_on_many_devices(shell):
    degrees = ("--dp", "4", "--tp", "2", "--zero", "3", "--sequence-parallel")
    choices = ("--optimizer", "mixed-18", "--recompute", "selective", "--attention", "math", "--device", "cuda")
    answer = shell("memory", "llama-3-8b", "--train", "--context", "8k", *degrees, *choices, "--json")
    assert answer.code == 0, answer.err
    made = answer.json
    rows = {row["part"]: row for row in made["tables"]["memory"]["rows"]}
    assert rows["weights"]["all_devices"] == 8 * rows["weights"]["per_device"]
    assert rows["optimizer"]["per_device"] == pytest.approx(12 * 8_030_261_248 / 8, rel=1e-3)
    assert (made["assumptions"]["recompute"], made["assumptions"]["kernels"]) == ("selective", "cuda")
    assert made["explanations"]["gradients"]["formula"] == "tables + vectors + matrices"  # 4 B, a quarter of them


def test_inference_on_the_terminal(shell):
    answer = shell("memory", "llama-3-8b", "--weights-dtype", "int4", "--kv-dtype", "fp8")
    assert answer.code == 0, answer.err
    for shown in ("for inference on one device", "batch 1 x 8,192 tokens, weights int4, cache fp8", "512.00 MiB"):
        assert shown in answer.out


def test_overrides_and_a_yaml(shell):
    (shell.folder / "mine.yaml").write_text("defaults: [gqa, _self_]\nname: mine\nn_layers: 2\n")
    made = shell("memory", "mine.yaml", "model/head=untied", "workload.prompt=100", "--train", "--json").json
    total = archlab.parameters(archlab.load("gqa", "model.n_layers=2", "model/head=untied")).total
    assert made["model"] == "mine"
    rows = {row["part"]: row["per_device"] for row in made["tables"]["memory"]["rows"]}
    assert (rows["weights"], rows["logits"]) == (2 * total, 100 * 32_000 * 2)


def test_explain_gives_the_formula_with_the_numbers(shell):
    answer = shell("memory", "gpt2", "--train", "--context", "512", "--explain", "logits")
    assert answer.code == 0, answer.err
    assert "2 batch context vocab_size" in answer.out
    assert "2 x 1 x 512 x 50,257 = 51,463,168" in answer.out
    assert "Recipes" not in answer.out


def test_formats(shell):
    rows = list(csv.DictReader(io.StringIO(shell("memory", "gpt2", "--format", "csv").out)))
    assert rows[0] | {"part": "weights", "per_device": "248879616"} == rows[0]
    assert "| weights | 237.35 MiB |" in shell("memory", "gpt2", "--format", "md").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpt2", "--context", "2k"), "positions end at 1024 tokens; 2048 were asked for"),
        (("gqa", "--batch", "0"), "batch: 0 must be >= 1"),
        (("gqa", "--tp", "3"), "tp: 3 does not divide n_heads = 8; valid: 1, 2, 4, 8"),
        (("qwen3-0.6b", "--pp", "3"), "pp: 3 does not divide n_layers = 28; valid: 1, 2, 4, 7, 14, 28"),
        (("mixtral-8x7b", "--ep", "3", "--dp", "3"), "ep: 3 does not divide n_experts = 8; valid: 1"),
        (("gqa", "--dp", "0"), "dp: 0 is not a whole number of 1 or more"),
        (("gqa", "--zero", "5", "--train"), "zero: there is no ZeRO stage 5; valid: 0, 1, 2, 3"),
        (("gqa", "--recompute", "all", "--train"), "recompute"),
        (("gqa", "--recompute", "full"), "recompute: is for training; add --train"),
        (("gqa", "--train", "--optimizer", "adam"), "optimizer: no recipe 'adam'; did you mean adamw?"),
        (("gqa", "--explain", "weight"), "explain: no figure 'weight'; did you mean weights?"),
    ],
)
def test_a_wrong_request_is_one_message(shell, arguments, message):
    answer = shell("memory", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_no_torch_and_no_hydra(shell):
    code = (
        "import sys; from archlab.cli.app import answer; code = answer(['memory', 'gqa', '--train', '--json']);"
        "print(code, {'torch', 'hydra', 'omegaconf'} & set(sys.modules), file=sys.stderr)"
    )
    assert shell.python(code).err == "0 set()\n"
