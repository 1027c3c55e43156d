"""What is read from the operating system, on made-up machines and on this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from archlab import host

GIB = 2**30
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    """Writes files under a made-up /proc and /sys/fs/cgroup; gives the memory available there."""

    def available(membership: str, files: dict[str, str]) -> int:
        proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True)
        (proc / "meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable:   16777216 kB\n")
        (proc / "self/cgroup").write_text(membership)
        for name, text in files.items():
            (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
            (cgroups / name).write_text(text)
        return host.available_memory(proc, cgroups)

    return available


def test_without_a_limit_it_is_the_machines(machine: Any) -> None:
    assert machine("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}) == 16 * GIB


def test_a_cgroup_v2_limit_counts_also_of_a_parent(machine: Any) -> None:
    files = {
        "box/memory.max": f"{4 * GIB}\n",
        "box/memory.current": f"{3 * GIB}\n",
        "box/memory.stat": f"anon 1\ninactive_file {GIB}\n",
        "box/job/memory.max": "max\n",
        "box/job/memory.current": "1\n",
    }
    assert machine("0::/box/job\n", files) == 2 * GIB  # page cache can be dropped


def test_a_cgroup_v1_limit_counts(machine: Any) -> None:
    files = {"memory/memory.limit_in_bytes": f"{2 * GIB}", "memory/memory.usage_in_bytes": f"{GIB}"}
    assert machine("7:cpu:/\n4:memory:/elsewhere\n", files) == GIB


def test_over_the_limit_is_nothing_left(machine: Any) -> None:
    assert machine("0::/\n", {"memory.max": "1\n", "memory.current": "5\n"}) == 0


@linux
def test_this_machine_has_memory_and_a_name() -> None:
    assert host.available_memory() > 0
    assert host.cpu_name()
    assert 0 < host.resident_memory() <= host.peak_memory()[0]


def test_where_proc_says_nothing_the_rest_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PROC", tmp_path)
    assert host.reset_peak() is False
    assert host.peak_memory()[1] == "ru_maxrss"
    assert host.peak_memory()[0] > 1e6
    assert host.resident_memory() == 0
    assert host.cpu_name()
    assert host.available_memory(tmp_path, tmp_path) > 0
    assert host.Busy().elsewhere() == 0


def test_work_elsewhere_is_told_from_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PROC", tmp_path)
    monkeypatch.setattr(host.time, "monotonic", iter([0.0, 10.0]).__next__)
    monkeypatch.setattr(host.os, "times", iter([_times(1.0), _times(6.0)]).__next__)
    monkeypatch.setattr(host.os, "sysconf", lambda name: 100)
    (tmp_path / "stat").write_text("cpu  100 0 100 9000 50 0 0 0 0 0\ncpu0 1\n")
    busy = host.Busy()
    (tmp_path / "stat").write_text("cpu  900 0 200 9000 80 0 0 100 0 0\ncpu0 1\n")
    assert busy.elsewhere() == pytest.approx((10.0 - 5.0) / 10.0)  # 8 + 1 s at work, 1 s stolen; 5 s are ours


class _times:
    def __init__(self, user: float) -> None:
        self.user, self.system = user, 0.0


def test_total_memory_is_the_machines_or_what_a_cgroup_may_use(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable: 1 kB\n")
    (tmp_path / "self/cgroup").write_text("0::/box\n")
    assert host.total_memory(tmp_path, tmp_path) == 32 * GIB
    (tmp_path / "box").mkdir()
    (tmp_path / "box/memory.max").write_text(f"{8 * GIB}\n")
    assert host.total_memory(tmp_path, tmp_path) == 8 * GIB


@pytest.mark.parametrize(
    ("membership", "files", "kills"),
    [
        ("0::/box\n", {"box/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n"}, 2),
        ("4:memory:/box\n", {"memory/box/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}, 5),
        ("4:memory:/outside/box\n", {"memory/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n"}, 1),
        ("0::/\n", {}, 40),
    ],
)
def test_out_of_memory_kills_are_of_the_own_cgroup_where_it_counts_them(
    membership: str, files: dict[str, str], kills: int, tmp_path: Path
) -> None:
    """The files as cgroup-v2 and cgroup-v1 of the kernel's documentation have them; 40 are the whole machine's."""
    (tmp_path / "self").mkdir()
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 40\nnuma_hit 7\n")
    (tmp_path / "self/cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host.oom_kills(tmp_path, tmp_path) == kills


@linux
def test_a_limit_on_addresses_counts(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (3 * GIB, 8 * GIB))
    monkeypatch.setattr(host, "_kib", lambda text, name: {"MemAvailable": 16 * GIB, "VmSize": GIB}[name])
    assert machine("0::/\n", {}) == 2 * GIB


def test_the_state_of_a_gpu_is_what_its_driver_says_of_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines as nvidia-smi prints them; an MIG slice, or a driver of old, has no number for some."""
    said = "GPU-aa, 400.00, 1410, 1980, 2619\nGPU-bb, 700.00, 345, [N/A], 2619\n"
    monkeypatch.setattr(host, "_said_by", lambda *command: said)
    assert host.gpu_state("GPU-bb") == {
        "power_limit_w": 700.0,
        "sm_mhz": 345.0,
        "sm_mhz_max": None,
        "memory_mhz": 2619.0,
    }
    assert host.gpu_state("GPU-cc") == {}
    monkeypatch.setattr(host, "_said_by", lambda *command: "GPU-aa, 17\nGPU-bb, 19\nGPU-aa, 23\n")
    assert [host.gpu_processes(uuid) for uuid in ("GPU-aa", "GPU-bb", "GPU-cc")] == [2, 1, 0]


def test_the_driver_is_what_the_kernel_says_or_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the open kernel module writes it, and the lines of two GPUs as nvidia-smi prints them."""
    monkeypatch.setattr(host, "_said_by", lambda *command: "570.86.15\n570.86.15\n")
    assert host.nvidia_driver(tmp_path) == "570.86.15"
    (tmp_path / "driver" / "nvidia").mkdir(parents=True)
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (root@host)\n"
    (tmp_path / "driver" / "nvidia" / "version").write_text(line)
    assert host.nvidia_driver(tmp_path) == "570.86.10"
    monkeypatch.setattr(host, "_said_by", lambda *command: "")
    assert host.nvidia_driver(tmp_path / "nowhere") is None
