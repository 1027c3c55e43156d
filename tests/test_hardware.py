"""Devices on paper: datasheets' figures, names that drivers report, what a user sets, the device that is there."""

import os
import stat
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archlab import host
from archlab.errors import RequestError
from archlab.hardware import AUTO, Hardware, chosen, hardware, located, matching, names, read

GIB = 2**30
DENSE_BF16 = {"a100-sxm-80gb": 312, "h100-sxm": 989, "h100-pcie": 756, "h100-nvl": 835, "h200": 989, "rtx-4090": 165}


@pytest.fixture(scope="module")
def devices():
    return {name: hardware(name) for name in names()}


@pytest.mark.parametrize(("name", "tera"), DENSE_BF16.items())
def test_g11_peaks_are_dense(name, tera):
    assert int(hardware(name).peak("bf16") / 1e12) == tera


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        # NVIDIA HGX B200 datasheet, dense, by eight; GB200 NVL72 datasheet, dense, by 72
        ("b200", "fp4", 72_000 / 8),
        ("b200", "fp8", 36_000 / 8),
        ("gb200", "fp8", 360_000 / 72),
        ("gb200", "bf16", 180_000 / 72),
        # CDNA 4: 256 compute units at 2.4 GHz, 8,192 FLOP a clock in fp8
        ("mi355x", "fp8", 256 * 8192 * 2.4e9 / 1e12),
        # CDNA 3: 304 compute units at 2.1 GHz, 2,048 FLOP a clock in bf16
        ("mi300x", "bf16", 304 * 2048 * 2.1e9 / 1e12),
        ("mi250x", "bf16", 383 / 2),
        # Ampere: 108 multiprocessors at 1.41 GHz, 2,048 FLOP a clock in bf16
        ("a100-pcie-40gb", "bf16", 108 * 2048 * 1.41e9 / 1e12),
        # Hopper: 132 multiprocessors at 1.83 GHz, 4,096 FLOP a clock in bf16
        ("h200", "bf16", 132 * 4096 * 1.83e9 / 1e12),
        # Ada: 128 multiprocessors at 2.52 GHz, 512 FLOP a clock in bf16 with sums in 32 bits
        ("rtx-4090", "bf16", 128 * 512 * 2.52e9 / 1e12),
        ("tpu-v6e", "bf16", 918),
        ("gaudi-3", "bf16", 1835),
        # multiprocessors x FLOP a clock of one x clock
        ("a10", "bf16", 72 * 1024 * 1.695e9 / 1e12),
        ("a30", "bf16", 56 * 2048 * 1.44e9 / 1e12),
        ("a40", "bf16", 84 * 1024 * 1.74e9 / 1e12),
        ("a6000", "bf16", 84 * 1024 * 1.8e9 / 1e12),
        ("l4", "bf16", 58 * 1024 * 2.04e9 / 1e12),
        ("rtx-6000-ada", "bf16", 142 * 1024 * 2.505e9 / 1e12),
        ("rtx-3090", "bf16", 82 * 512 * 1.695e9 / 1e12),
        ("rtx-5090", "bf16", 170 * 512 * 2.407e9 / 1e12),
        ("t4", "fp16", 40 * 1024 * 1.59e9 / 1e12),
        ("v100-sxm-32gb", "fp16", 80 * 1024 * 1.53e9 / 1e12),
        ("mi250x", "bf16", 110 * 1024 * 1.7e9 / 1e12),
        ("mi325x", "fp8", 304 * 4096 * 2.1e9 / 1e12),
        # systolic arrays x multiply-adds x 2 x clock
        ("tpu-v4", "bf16", 8 * 128**2 * 2 * 1.05e9 / 1e12),
        ("tpu-v5e", "bf16", 4 * 128**2 * 2 * 1.5e9 / 1e12),
        ("tpu-v5p", "bf16", 8 * 128**2 * 2 * 1.75e9 / 1e12),
        ("tpu-v6e", "bf16", 4 * 256**2 * 2 * 1.75e9 / 1e12),
        ("gaudi-3", "bf16", 8 * 256**2 * 2 * 1.75e9 / 1e12),
    ],
)
def test_peaks_follow_from_the_units_and_the_clock(name, dtype, tera):
    assert hardware(name).peak(dtype) == pytest.approx(tera * 1e12, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "rate"),
    [("a100-sxm-80gb", 2039e9), ("h100-sxm", 3.35e12), ("h200", 4.8e12), ("l4", 300e9), ("mi300x", 5.3e12),
     ("tpu-v5p", 2765e9), ("rtx-4090", 1008e9), ("m4-max", 546e9), ("epyc-9654", 12 * 8 * 4.8e9)],
)  # fmt: skip
def test_bandwidths(name, rate):
    assert hardware(name).bandwidth == rate


@pytest.mark.parametrize(
    ("name", "bits", "rate"),
    [
        ("a10", 384, 12.5), ("a40", 384, 14.5), ("a6000", 384, 16), ("a100-sxm-40gb", 5120, 2.43),
        ("a100-sxm-80gb", 5120, 3.186), ("h100-sxm", 5120, 5.24), ("h200", 6144, 6.25), ("l4", 192, 12.5),
        ("l40", 384, 18), ("l40s", 384, 18), ("rtx-3090", 384, 19.5), ("rtx-4090", 384, 21), ("rtx-5090", 512, 28),
        ("rtx-6000-ada", 384, 20), ("t4", 256, 10), ("v100-sxm-32gb", 4096, 1.752), ("m4-max", 512, 8.533),
        ("mi250x", 4096, 3.2), ("mi300x", 8192, 5.2), ("gaudi-3", 8192, 3.6),
    ],
)  # fmt: skip
def test_bandwidths_follow_from_the_bus_and_the_rate_of_a_pin(name, bits, rate):
    """Bits of the memory's bus, and Gb/s of each."""
    assert hardware(name).bandwidth == pytest.approx(bits / 8 * rate * 1e9, rel=5e-3)


def test_every_device_has_what_the_costs_need(devices):
    assert len(devices) >= 25
    for name, device in devices.items():
        assert device.source, name
        assert device.bandwidth, name
        assert device.matches, name
        assert device.memory is None or device.memory % 2**20 == 0, name  # memory chips come in powers of two


def test_narrower_dtypes_are_never_slower_and_no_peak_is_four_times_the_next(devices):
    """A sparse figure among dense ones shows as a step of four.

    GeForce cards have one of their own: with sums in 32 bits, fp8 runs at half its rate.
    """
    for name, device in devices.items():
        if name == "rtx-5090":
            continue
        ladder = [device.peak(dtype) for dtype in ("bf16", "fp8", "fp4") if device.peak(dtype)]
        ladder = [device.peak("tf32"), *ladder] if device.peak("tf32") else ladder
        for wide, narrow in pairwise(ladder):
            assert 1 <= narrow / wide < 2.1, name
        whole = device.peak("int8"), device.peak("bf16") or device.peak("fp16")
        assert None in whole or 1 <= whole[0] / whole[1] <= 4.01, name


def test_each_name_that_a_driver_reports_means_its_own_device(devices):
    for name, device in devices.items():
        for reported in device.matches:
            assert matching(reported, device.memory) == device, name


@pytest.mark.parametrize(
    ("reported", "memory", "name"),
    [
        ("NVIDIA A10", None, "a10"),
        ("NVIDIA A100-SXM4-40GB", 40960 * 2**20, "a100-sxm-40gb"),
        ("NVIDIA H200 NVL", None, "h200-nvl"),
        ("NVIDIA GeForce RTX 4090", 24564 * 2**20, "rtx-4090"),
        ("AMD EPYC 9654 96-Core Processor", None, "epyc-9654"),
        ("Intel(R) Xeon(R) Platinum 8480+", None, "xeon-8480"),
        ("TPU v5 lite", None, "tpu-v5e"),
    ],
)
def test_g11_the_longest_name_matches_first(reported, memory, name):
    assert matching(reported, memory) == hardware(name)


@pytest.mark.parametrize(
    ("reported", "memory"),
    [
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16 * GIB),
        ("NVIDIA GeForce RTX 4090 D", 24 * GIB),
        ("NVIDIA GeForce RTX 3090 Ti", 24 * GIB),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB),
        ("NVIDIA A10-4Q", 4 * GIB),
        ("NVIDIA H100 80GB HBM3", 10 * GIB),
        ("AMD EPYC 9654P 96-Core Processor", None),
        ("", None),
    ],
)
def test_another_model_has_no_ceiling_rather_than_a_wrong_one(reported, memory):
    assert matching(reported, memory) is None


@given(st.text(max_size=40))
def test_no_name_is_an_accident(reported):
    """Only a name that holds one of the known ones is a known device."""
    found = matching(reported)
    assert found is None or any(len(name) <= len(reported) for name in found.matches)


def test_words_of_a_command_line_make_the_device_and_leave_the_others():
    words = ["model.n_layers=4", "hardware=h100-sxm", "hardware.memory=64GiB", "hardware.peaks.fp4=1PFLOP/s"]
    device, others = chosen(words)
    assert others == ["model.n_layers=4"]
    assert (device.memory, device.peak("fp4"), device.peak("bf16")) == (64 * GIB, 10**15, 989.4e12)
    assert chosen(others) == (None, others)


def test_values_alone_are_a_device_of_their_own():
    device, _ = chosen(["hardware.memory=24GB", "++hardware.bandwidth=1TB/s"])
    assert (device.name, device.memory, device.bandwidth, device.peaks) == ("custom", 24 * 10**9, 10**12, {})


def test_null_takes_a_figure_away():
    assert chosen(["hardware=h200", "hardware.bandwidth=null"])[0].bandwidth is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hardware=h20"], ["'h20'", "did you mean h200"]),
        (["hardware=.."], ["'..'", "valid"]),
        (["hardware="], ["''", "valid"]),
        (["hardware=h200", "hardware.memory=80G"], ["80,000,000,000", "85,899,345,920"]),
        (["hardware=h200", "hardware.memory=0GiB"], ["above zero"]),
        (["hardware=h200", "hardware.memory=-1GiB"], ["hardware.memory", "-1GiB"]),
        (["hardware=h200", "hardware.memroy=80GiB"], ["hardware.memroy", "did you mean hardware.memory"]),
        (["hardware=h200", "hardware.peaks.bf61=1TFLOP/s"], ["did you mean hardware.peaks.bf16"]),
        (["hardware=h200", "hardware.peaks=1TFLOP/s"], ["hardware.peaks"]),
        (["hardware=h200", "hardware.memory.size=1GiB"], ["nothing below it"]),
        (["hardware=h200", "hardware.peaks.bf16=9TB/s"], ["TFLOP/s"]),
        (["hardware=h200", "hardware.bandwidth=9TFLOP/s"], ["hardware.bandwidth"]),
        (["hardware=h200", "hardware.devices_per_node=0"], ["1 or more"]),
        (["hardware.memory"], ["hardware.memory", "value is missing"]),
    ],
)
def test_a_wrong_word_is_one_message(words, said):
    with pytest.raises(RequestError) as caught:
        chosen(words)
    assert all(part in str(caught.value) for part in said)


@pytest.mark.parametrize(
    "text",
    ["", "- a", "name: [1", "name: x\ncolour: red", "memory: 80GB", "name: x\nmemory: 80G", "name: x\npeaks: 5",
     "name: x\npeaks: {bf16: fast}", "name: x\nmatches: y", "name: 5", "name: x\ndevices_per_node: true",
     "name: x\nmemory: [1]", "!!python/object/apply:os.system [true]", "a: " + "[" * 5000],
)  # fmt: skip
def test_a_file_that_is_no_device_is_one_message(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(RequestError):
        hardware(str(file))


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: Mine\nmemory: 48GiB\nbandwidth: 500GB/s\npeaks: {bf16: 100TFLOP/s, int8: 200TOP/s}\n")
    device, _ = chosen([f"hardware={file}", "hardware.peaks.fp8=150TFLOPS"])
    assert device == Hardware(
        "Mine", (), 48 * GIB, 500 * 10**9, {"bf16": 100 * 10**12, "int8": 200 * 10**12, "fp8": 150 * 10**12}
    )
    with pytest.raises(RequestError, match="cannot be read"):
        hardware(str(tmp_path / "absent.yaml"))


def program(folder, name, prints, status=0):
    """A program of that name that prints so."""
    file = folder / name
    file.write_text(f"#!/bin/sh\ncat <<'EOF'\n{prints}\nEOF\nexit {status}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder of programs that stands first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


def test_auto_is_the_gpu_that_nvidia_smi_names(tools):
    program(tools, "nvidia-smi", "NVIDIA H200, 143771\nNVIDIA H200, 143771")
    device = hardware(AUTO)
    assert (device.name, device.peak("bf16"), device.devices_per_node) == ("NVIDIA H200 SXM 141GB", 989.4e12, 2)
    assert device.memory == 143771 * 2**20


@pytest.mark.parametrize("wrapped", [True, False])
def test_auto_is_the_gpu_that_amd_smi_names(tools, wrapped):
    gpu = '[{"asic": {"market_name": "AMD Instinct MI300X"}, "vram": {"size": {"value": 196592, "unit": "MB"}}}]'
    program(tools, "amd-smi", f'{{"gpu_data": {gpu}}}' if wrapped else gpu)
    assert hardware(AUTO).peak("bf16") == 1307.4e12
    assert hardware(AUTO).memory == hardware("mi300x").memory


def test_g04_an_unknown_device_has_its_memory_and_nothing_more(tools):
    program(tools, "nvidia-smi", "NVIDIA Whatever 9000, 100000")
    assert hardware(AUTO) == Hardware("NVIDIA Whatever 9000", memory=100000 * 2**20, devices_per_node=1)


@pytest.mark.parametrize(
    "prints", ["", "no devices were found", "{", "[]", '[{"asic": 5}]', '{"gpu_data": [{}]}', "[1]"]
)
def test_auto_without_a_gpu_is_the_processor(tools, prints):
    program(tools, "nvidia-smi", "NVIDIA-SMI has failed", status=9)
    program(tools, "amd-smi", prints)
    device = hardware(AUTO)
    assert (device.name, device.memory) == (host.cpu_name(), host.total_memory())


def test_what_is_set_of_auto_stands_above_what_is_there(tools):
    program(tools, "nvidia-smi", "NVIDIA H200, 143771")
    device = located(read({"name": AUTO, "memory": "64GiB", "peaks": {"fp4": "1PFLOP/s"}}))
    assert (device.memory, device.peak("fp4"), device.peak("bf16")) == (64 * GIB, 10**15, 989.4e12)
    assert device.bandwidth == 4.8e12
