"""archlab hardware, and the hardware group in build."""

import pytest


def test_the_list_is_one_json_document(shell):
    rows = shell("hardware", "--json").json["tables"]["hardware"]["rows"]
    h200 = next(row for row in rows if row["hardware"] == "h200")
    assert (h200["bf16"], h200["bandwidth"], h200["fp4"]) == (989.4, 4800, None)
    assert len(rows) >= 25


def test_one_device_and_one_that_is_not_there(shell):
    assert "141GB" in shell("hardware", "h200").out
    answer = shell("hardware", "h20")
    assert (answer.code, answer.out) == (2, "")
    assert "did you mean h200" in answer.err


@pytest.mark.slow
def test_build_records_the_device_and_a_sweep_goes_over_them(shell):
    answer = shell("build", "bench=none", "verify=false", "hardware=h100-sxm", "hardware.memory=64GiB", "--json")
    assert answer.json["config"]["hardware"]["memory"] == "64GiB"
    swept = shell("build", "-m", "bench=none", "verify=false", "hardware=h200,l4", "--json").json["points"]
    assert [point["config"]["hardware"]["name"] for point in swept] == ["NVIDIA H200 SXM 141GB", "NVIDIA L4 24GB"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hardware=h20", "hardware=h200"),
        ("hardware.memory=80G", "85,899,345,920"),
        ("hardware.memroy=80GiB", "hardware.memory"),
        ("hardware=./mine.yaml", "--config-dir"),
    ],
)
def test_build_refuses_a_wrong_device_in_one_message(shell, word, said):
    answer = shell("build", "bench=none", word)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert not shell.left()
