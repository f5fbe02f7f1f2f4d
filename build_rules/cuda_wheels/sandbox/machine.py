"""How much memory and how many processor cores a build may take, read where it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GB = 1e9

# cgroup v1 writes "no limit" as the largest number of whole pages.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Memory:
    """Free memory in bytes, and what limits it: `the machine` or a cgroup's path."""

    available: int
    limited_by: str

    @property
    def available_gb(self) -> float:
        """In units of 10^9 bytes."""
        return self.available / GB


def read_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Memory:
    """The least of the machine's available memory and the room in each cgroup above us."""
    found = [Memory(_meminfo(proc), "the machine")]
    for directory in _cgroup_directories("memory", proc, cgroups):
        room = _room(directory)
        if room is not None:
            found.append(Memory(room, str(directory)))
    return min(found, key=lambda memory: memory.available)


def read_cores(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The cores that this process may run on, less where a cgroup above it has a quota of time.

    A part of a core counts as one: it would be left unused otherwise.
    """
    found = [float(len(os.sched_getaffinity(0)))]
    for directory in _cgroup_directories("cpu", proc, cgroups):
        quota = _quota(directory)
        if quota is not None:
            found.append(quota)
    return max(1, math.ceil(min(found)))


def _quota(directory: Path) -> float | None:
    """The quota of a cgroup, in cores; None where it has none."""
    try:
        quota, period = (directory / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        v1 = (_number(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        return _cores(*v1)
    return _cores(int(quota), int(period)) if quota.isdigit() else None


def _cores(quota: int | None, period: int | None) -> float | None:
    # Version 1 writes "no quota" as -1.
    return quota / period if quota and period and quota > 0 else None


def _meminfo(proc: Path) -> int:
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0


def _cgroup_directories(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """Our cgroup's directory and those above it, for version 2 and a controller of version 1."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0" and not controllers:
            roots = [cgroups, cgroups / "unified"]
        elif controller in controllers.split(","):
            roots = [cgroups / controller]
        else:
            continue
        for root in roots:
            # In a container the path may be the host's, which is not mounted: the root is ours.
            directory = root / path.strip("/")
            while directory != root:
                yield directory
                directory = directory.parent
            yield root


def _room(directory: Path) -> int | None:
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _number(directory / limit_name)
        usage = _number(directory / usage_name)
        if limit is not None and usage is not None and limit < _NO_LIMIT:
            # The page cache counts as used, but gives way.
            return max(0, limit - max(0, usage - _stat(directory / "memory.stat", cache_name)))
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stat(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
