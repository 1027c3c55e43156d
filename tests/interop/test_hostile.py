"""Files that mean harm, or are broken: one clear line, soon, and in little memory."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from imported import fact

from archlab.errors import RequestError
from archlab.interop.hub import find_import, load_config

GOOD = json.dumps(fact("gpt2")["hf_config"]).encode()
FILES = {
    "truncated": (GOOD[: len(GOOD) // 2], "is not JSON"),
    "empty": (b"", "is not JSON"),
    "not text": (b"\xff\xfe\x00\x80" * 100, "is not JSON"),
    "NaN": (GOOD.replace(b"1e-05", b"NaN"), "NaN is not a number"),
    "Infinity": (GOOD.replace(b"1e-05", b"-Infinity"), "-Infinity is not a number"),
    "a number out of range": (GOOD.replace(b"1e-05", b"1e999"), "is out of range"),
    "a number of 10,000 digits": (GOOD.replace(b"768", b"7" * 10_000), "is not JSON"),
    "a name that stands twice": (GOOD.replace(b'"n_layer"', b'"n_embd": 8, "n_layer"'), '"n_embd" stands in it twice'),
    "a name that stands twice within": (
        GOOD[:-1] + b', "task_specific_params": {"a": 1, "a": 1}}',
        "stands in it twice",
    ),
    "a list": (b"[1, 2]", "is a list, not an object"),
    "a text": (b'"gpt2"', "is a text, not an object"),
    "null": (b"null", "is null, not an object"),
    "deep nesting": (b"[" * 1_000_000, "is nested too deeply"),
    "deep objects": (b'{"a":' * 500_000 + b"1" + b"}" * 500_000, "is nested too deeply"),
    "100 MB of nesting": (b"[" * 100_000_000, "has more than 4 MiB"),
    "a million keys": (b"{" + b",".join(b'"k%d":1' % i for i in range(300_000)) + b"}", "model_type: is missing"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_broken_file_is_one_line_soon(kind: str, tmp_path: Path) -> None:
    content, message = FILES[kind]
    (tmp_path / "config.json").write_bytes(content)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(RequestError) as caught:
        load_config(tmp_path)
    took, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert took < 5
    assert peak < 100 << 20


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(RequestError, match=r"no config\.json in this folder|is not a file"):
        load_config(tmp_path)
    with pytest.raises(RequestError, match=r"no config\.json in this folder"):
        load_config(tmp_path / "config.json")


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(RequestError, match="is not a file"):
        load_config(tmp_path)


def test_an_endless_device_is_no_file() -> None:
    with pytest.raises(RequestError, match="is not a file"):
        load_config("/dev/zero")


@pytest.mark.parametrize(("target", "message"), [("config.json", "symbolic links"), ("nowhere", "No such file")])
def test_a_link_that_leads_nowhere_is_said_to(target: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(target)
    for path in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(RequestError, match=rf"config\.json: cannot be read: .*{message}"):
            find_import(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        load_config(tmp_path / "config.json")
    with pytest.raises(RequestError):
        load_config("a\0b")


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + GOOD)
    assert load_config(tmp_path).model_type == "gpt2"


def test_ten_thousand_layers_are_read_in_time_and_one_more_is_not(tmp_path: Path) -> None:
    uneven = ["sliding_attention"] * 9_999 + ["full_attention"]
    config = {"model_type": "smollm3", "num_hidden_layers": 10_000, "no_rope_layers": [1] * 9_999 + [0]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    start = time.process_time()
    assert load_config(tmp_path).spec.n_layers == 10_000
    assert time.process_time() - start < 5
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10_001, "layer_types": uneven}))
    with pytest.raises(RequestError, match="10001 is not from 1 to 10,000"):
        load_config(tmp_path)


def test_a_path_is_the_file_that_it_is_and_no_name_resolves_it(tmp_path: Path) -> None:
    folder = tmp_path / "meta-llama" / "Llama-3.1-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(GOOD)
    assert load_config(folder).model_type == "gpt2"
    assert load_config(folder).model["name"] == "Llama-3.1-8B"


def test_a_snapshot_of_the_hubs_cache_is_called_as_its_repository(tmp_path: Path) -> None:
    """Its files are links into a folder of blobs."""
    blobs, snapshot = (tmp_path / "models--openai--gpt-two" / part for part in ("blobs", "snapshots/1a2b"))
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "c0ffee").write_bytes(GOOD)
    (snapshot / "config.json").symlink_to("../../blobs/c0ffee")
    assert load_config(snapshot).model["name"] == "gpt-two"
    (tmp_path / "snapshots" / "x").mkdir(parents=True)
    (tmp_path / "snapshots" / "x" / "config.json").symlink_to(blobs / "c0ffee")
    assert load_config(tmp_path / "snapshots" / "x").model["name"] == "x"


def test_what_is_no_config_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"figures": {}, "schema": 1}')
    (tmp_path / "list.json").write_text("[]")
    assert find_import(tmp_path) is None
    assert find_import(tmp_path / "record.json") is None
    assert find_import(tmp_path / "list.json") is None
    assert find_import(tmp_path / "missing.yaml") is None
