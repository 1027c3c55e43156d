"""archlab shapes and archlab verify as commands."""

import json

import pytest


def test_shapes_of_a_changed_model(shell):
    answer = shell("shapes", "minimind", "model/attention=mha", "--batch", "1", "--context", "2k", "--json")
    assert answer.code == 0, answer.err
    rows = {row["step"]: row for row in json.loads(answer.out)["tables"]["shapes"]["rows"]}
    assert rows["attention scores"]["sizes"] == "[1, 8, 2,048, 2,048]"
    assert rows["attention keys"]["output"] == "[B, h, n, hd]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--layer", "8"), "layers 0 to 7"),
        (("--context", "0"), "context"),
        (("--batch", "0"), "batch"),
        (("model/attention=gqaa",), "did you mean model/attention=gqa"),
        (("--format", "xml"), "table, json, csv, md"),
    ],
)
def test_a_wrong_request_is_one_message(shell, words, said):
    answer = shell("shapes", "minimind", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.slow
def test_verify_says_what_it_tried(shell):
    small = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=50", "model.attention.head_dim=8")
    answer = shell("verify", "gqa", *small)
    assert answer.code == 0, answer.err
    assert "all 11 checks hold" in answer.out
    assert "float64 on the CPU" in answer.out
