"""Input of odd kinds: numbers that are none, bytes that are no text, files of another kind."""

import pytest

import archlab
from archlab.errors import RequestError

QUICK = ("bench=none", "verify=false")


@pytest.mark.parametrize("limit", ["inf", "-inf", "nan", "1e999"])
def test_a_limit_is_finite(limit, shell):
    answer = shell("build", *QUICK, f"constraints=[params<={limit}]")
    assert answer.code == 2
    assert answer.err == f"archlab: constraints: params<={limit}: '{limit}' is no finite number\n"


def test_bytes_that_are_no_text_are_told_of_with_what_holds_them(shell):
    """`ö` in Latin-1: the system hands it on as a lone surrogate."""
    for command in (("build", *QUICK), ("kv", "gqa")):
        answer = shell(*command, 'model.name="gr\udcf6sse"')
        assert answer.code == 2
        assert answer.err.startswith("archlab: 'model.name=\"gr\\udcf6sse\"' is no text in UTF-8")
    assert shell.left() == []


def test_a_plugin_is_a_python_file(shell):
    (shell.folder / "notes.txt").write_text("mine")
    answer = shell("kv", "gqa", "--plugin", "./notes.txt")
    assert answer.code == 2
    assert answer.err.endswith("notes.txt: is no Python file: its name does not end in .py\n")


@pytest.mark.parametrize("function", [archlab.parameters, archlab.kv_cache, archlab.flops, archlab.build])
@pytest.mark.parametrize("wrong", ["gpt2", None, 3, {"d_model": 64}])
def test_what_is_no_spec_says_how_to_get_one(function, wrong):
    with pytest.raises(RequestError, match=r"a model is a spec, as archlab.load\('gpt2'\) gives, not "):
        function(wrong)
