"""What the operating system says: memory, the processor, GPUs, how busy the machine is. Torch-free.

Linux says all of it in /proc and /sys, GPUs apart, which their drivers' own tools name; elsewhere there is less, and
never an error.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LOADED = 0.1
"""Share of the processors that others may use before the machine counts as loaded."""


def _read(path: Path) -> str:
    """The file's text, empty where there is none."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _kib(text: str, name: str) -> int | None:
    """The bytes of a line `name:  123 kB`."""
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def available_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes that can be allocated without swapping: the machine's, or what cgroups and `ulimit -v` leave of them."""
    free = _kib(_read(proc / "meminfo"), "MemAvailable")
    if free is None:
        free = _physical_memory()
    return max(0, min([free, *_cgroup_room(_read(proc / "self/cgroup"), cgroups), *_address_room(proc)]))


def total_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes of the machine, or what the process's cgroups and `ulimit -v` let it use of them."""
    limits = [_limit(folder / limit) for folder, limit, _ in _cgroup_files(_read(proc / "self/cgroup"), cgroups)]
    limits.append(address_limit())
    total = _kib(_read(proc / "meminfo"), "MemTotal")
    return min([_physical_memory() if total is None else total, *(limit for limit in limits if limit is not None)])


def _physical_memory() -> int:
    """All of the machine's memory; what a system that does not tell what is free is assumed to have."""
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _cgroup_room(membership: str, root: Path) -> list[int]:
    """Limit less use of every cgroup, v2 or v1, that the process is in; page cache can be dropped and is not used."""
    rooms = [_room(*files) for files in _cgroup_files(membership, root)]
    return [room for room in rooms if room is not None]


def _address_room(proc: Path) -> list[int]:
    """What the limit on this process's addresses leaves; nothing where there is none."""
    limit, held = address_limit(), _kib(_read(proc / "self/status"), "VmSize")
    return [] if limit is None or held is None else [limit - held]


def address_limit() -> int | None:
    """Bytes of addresses that a process may have (getrlimit(2), RLIMIT_AS; `ulimit -v`); None without a limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _cgroup_files(membership: str, root: Path) -> Iterator[tuple[Path, str, str]]:
    """Folder, limit's file and use's file of every cgroup, v2 or v1, that the process is in."""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            names = ("memory.max", "memory.current") if not controllers else _V1_FILES
            below = Path(path.lstrip("/"))
            for folder in (below, *below.parents):
                yield root / controllers / folder, *names


_V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _limit(file: Path) -> int | None:
    text = _read(file).strip()
    return int(text) if text.isdigit() else None  # `max` is no limit


def _room(folder: Path, limit: str, usage: str) -> int | None:
    most, used = _limit(folder / limit), _limit(folder / usage)
    if most is None or used is None:
        return None
    cached = re.search(r"^(?:total_)?inactive_file (\d+)", _read(folder / "memory.stat"), re.MULTILINE)
    return most - used + (int(cached[1]) if cached else 0)


def resident_memory() -> int:
    """Bytes of this process in memory now; 0 where the system does not say."""
    return _kib(_read(PROC / "self/status"), "VmRSS") or 0


def reset_peak() -> bool:
    """Set the process's high-water mark to what it holds now (proc(5), clear_refs). False where that cannot be."""
    try:
        (PROC / "self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> tuple[int, str]:
    """The process's high-water mark in bytes, and where it was read."""
    peak = _kib(_read(PROC / "self/status"), "VmHWM")
    if peak is not None:
        return peak, "VmHWM"
    import resource

    scale = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere: getrusage(2)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale, "ru_maxrss"


def cpu_name() -> str:
    """The processor's model."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read(PROC / "cpuinfo"), re.MULTILINE)
    if found:
        return found[1].strip()
    apple = _said_by("sysctl", "-n", "machdep.cpu.brand_string") if sys.platform == "darwin" else ""
    return apple.strip() or platform.processor() or platform.machine()


class Gpu(NamedTuple):
    """A GPU as its driver calls it, and its memory in bytes, None where the driver does not say."""

    name: str
    memory: int | None


def gpus() -> list[Gpu]:
    """The GPUs that nvidia-smi names, else those that amd-smi does; none where neither is there."""
    rows = [row.rpartition(",") for row in _said_by(*_NVIDIA_SMI).splitlines() if "," in row]
    found = [Gpu(name.strip(), int(mib) * 2**20 if mib.strip().isdigit() else None) for name, _, mib in rows]
    return found or _amd_gpus(_said_by(*_AMD_SMI))


_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")  # in MiB
_AMD_SMI = ("amd-smi", "static", "--asic", "--vram", "--json")  # its MB is 2^20 bytes


def _amd_gpus(text: str) -> list[Gpu]:
    """What amd-smi says: a list of GPUs, in later versions under `gpu_data`."""
    try:
        said = json.loads(text)
        said = said.get("gpu_data", []) if isinstance(said, dict) else said
        sizes = [gpu.get("vram", {}).get("size", {}).get("value") for gpu in said]
        names = [gpu["asic"]["market_name"] for gpu in said]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    return [Gpu(name, size * 2**20 if isinstance(size, int) else None) for name, size in zip(names, sizes, strict=True)]


def nvidia_driver(proc: Path = PROC) -> str | None:
    """The driver's version, from the kernel or, where a container hides that, from nvidia-smi."""
    told = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", _read(proc / "driver" / "nvidia" / "version"))
    if told:
        return told[1]
    said = _said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return said[0] if said else None


def gpu_state(uuid: str) -> dict[str, float | None]:
    """Power limit in W and clocks in MHz of the GPU that its driver knows so; nothing where it does not say."""
    rows = [row.split(", ") for row in _said_by(*_NVIDIA_STATE).splitlines()]
    found = next((row[1:] for row in rows if row[0] == uuid), [])
    return {name: _number(value) for name, value in zip(GPU_STATE, found, strict=False)}


GPU_STATE = ("power_limit_w", "sm_mhz", "sm_mhz_max", "memory_mhz")
_NVIDIA_STATE = (
    "nvidia-smi",
    "--query-gpu=uuid,power.limit,clocks.sm,clocks.max.sm,clocks.mem",
    "--format=csv,noheader,nounits",
)
_NVIDIA_PROCESSES = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None  # `[N/A]`


def gpu_processes(uuid: str) -> int:
    """How many processes compute on that GPU, as far as its driver says."""
    return sum(row.startswith(f"{uuid}, ") for row in _said_by(*_NVIDIA_PROCESSES).splitlines())


def cpu_mhz() -> float | None:
    """The processors' clock now, on average; None where the system does not say."""
    clocks = [float(found) for found in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _read(PROC / "cpuinfo"), re.MULTILINE)]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def _said_by(*command: str) -> str:
    """What a program prints; empty where it is not there, fails or takes too long."""
    import shutil
    import subprocess

    program = shutil.which(command[0])
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=20, check=True)
        return done.stdout
    return ""


def oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Processes that the kernel has killed for want of memory: of this process's cgroup, or, where that does not
    say, of the machine; 0 where neither does."""
    names = {"memory.max": "memory.events", _V1_FILES[0]: "memory.oom_control"}
    own = (folder / names[limit] for folder, limit, _ in _cgroup_files(_read(proc / "self/cgroup"), cgroups))
    counts = (re.search(r"^oom_kill (\d+)$", _read(file), re.MULTILINE) for file in (*own, proc / "vmstat"))
    return next((int(count[1]) for count in counts if count), 0)


class Busy:
    """From its making on: how many processors work for others, stolen time of a virtual machine included.

    A load average would count this process itself, and the sweep's point before it.
    """

    def __init__(self) -> None:
        self.cpus = os.cpu_count() or 1
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds: wall, of all processors at work, of this process."""
        ticks = [int(word) for word in _read(PROC / "stat").partition("\n")[0].split()[1:9]]
        own = os.times()
        busy = sum(ticks) - sum(ticks[3:5])  # all but idle and waiting for a disk
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own.user + own.system

    def elsewhere(self) -> float:
        """Processors that were busy with other processes, on average; 0 where the system does not say."""
        wall, busy, own = (now - start for now, start in zip(self._now(), self._start, strict=True))
        return max(0.0, busy - own) / wall if wall > 0 else 0.0
