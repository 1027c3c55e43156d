"""archlab explain as a command: one document, one message where the request is wrong, words that complete."""

from __future__ import annotations

import json

import pytest

from archlab.cli.app import answer
from archlab.completion import complete_subject


def test_a_choice_in_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["explain", "rope", "model=minimind"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("position/rope  rotate queries and keys\n")
    assert "4 x 32,768 x 96 = 12,582,912" in out
    assert "arXiv:2104.09864" in out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        answer(["explain", "kv", "model=minimind", "--context", "2k", "--batch", "100", "--dtype", "fp16", "--json"])
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    rows = {row["attention"]: row for row in shown["tables"]["attentions"]["rows"]}
    assert (shown["subject"], rows["gqa"]["cache"]) == ("kv_bytes_per_token", 100 * 25_165_824)


def test_what_each_format_begins_with(capsys: pytest.CaptureFixture[str]) -> None:
    begins = {"csv": "model,table,about,text,", "md": "**norm/rmsnorm** scale by", "table": "norm/rmsnorm  scale by"}
    for form, text in begins.items():
        assert answer(["explain", "rmsnorm", "--format", form]) == 0
        assert capsys.readouterr().out.startswith(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ropee",), "did you mean rope?"),
        (("none",), "valid: norm/none, position/none, dropout/none"),
        (("rope", "minimind"), "model=minimind"),
        (("rope", "model=minimnd"), "did you mean minimind?"),
        (("rope", "--context", "0"), "context"),
        (("rope", "--format", "xml"), "table, json, csv, md"),
        (("rope", "model=gpt2", "--context", "8k"), "positions end at 1024"),
        (("mfu", "hardware=h100-smx"), "h100-sxm"),
    ],
)
def test_a_wrong_request_is_one_message(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert answer(["explain", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("archlab: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err


def test_what_may_be_asked_for_completes() -> None:
    assert {"rope", "res_post_norm", "relu", "recompiles"} <= {*complete_subject("r"), *complete_subject("rec")}
    assert complete_subject("norm/") == ["norm/none"]
    assert complete_subject("mfu") == ["mfu", "mfu_datasheet"]
