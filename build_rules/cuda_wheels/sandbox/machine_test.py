"""Memory and cores are read from fake trees of /proc and /sys/fs/cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda_wheels.sandbox.machine import read_cores, read_memory

GIB = 1 << 30


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroups.mkdir()
    (proc / "meminfo").write_text(
        f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {32 * GIB // 1024} kB\n"
    )
    (proc / "self/cgroup").write_text("")
    return proc, cgroups


def write(directory: Path, **files: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (directory / name.replace("__", ".")).write_text(f"{value}\n")


def test_the_machine_limits_where_no_cgroup_does(trees: tuple[Path, Path]) -> None:
    memory = read_memory(*trees)
    assert memory.available == 32 * GIB
    assert memory.limited_by == "the machine"


def test_version_2_limit_of_a_parent_counts_and_page_cache_does_not(
    trees: tuple[Path, Path],
) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("0::/user.slice/build\n")
    write(cgroups / "user.slice/build", memory__max="max", memory__current=3 * GIB)
    write(
        cgroups / "user.slice",
        memory__max=10 * GIB,
        memory__current=4 * GIB,
        memory__stat=f"anon {GIB}\ninactive_file {2 * GIB}",
    )
    memory = read_memory(proc, cgroups)
    assert memory.available == 8 * GIB
    assert memory.limited_by == str(cgroups / "user.slice")


def test_version_1_limit(trees: tuple[Path, Path]) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("5:cpu:/\n4:memory:/docker/x\n0::/\n")
    write(
        cgroups / "memory/docker/x",
        memory__limit_in_bytes=6 * GIB,
        memory__usage_in_bytes=5 * GIB,
        memory__stat=f"inactive_file 1\ntotal_inactive_file {GIB}",
    )
    assert read_memory(proc, cgroups).available == 2 * GIB


def test_version_1_without_a_limit(trees: tuple[Path, Path]) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("4:memory:/\n")
    write(
        cgroups / "memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=GIB
    )
    assert read_memory(proc, cgroups).limited_by == "the machine"


def test_in_a_container_the_root_of_the_mount_is_ours(trees: tuple[Path, Path]) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("0::/docker/not-mounted-here\n")
    write(cgroups, memory__max=4 * GIB, memory__current=GIB)
    assert read_memory(proc, cgroups).available == 3 * GIB


def test_a_limit_that_is_used_up_leaves_nothing(trees: tuple[Path, Path]) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("0::/\n")
    write(cgroups, memory__max=GIB, memory__current=2 * GIB)
    assert read_memory(proc, cgroups).available == 0


def test_this_machine_has_memory() -> None:
    assert read_memory().available > 0


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 4), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1)],
)
def test_version_2_quota(trees: tuple[Path, Path], quota: str, cores: int) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("0::/build\n")
    write(cgroups / "build", cpu__max=quota)
    assert read_cores(proc, cgroups) == cores


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(("quota", "cores"), [(-1, 4), (300000, 3), (1000000, 4)])
def test_version_1_quota(trees: tuple[Path, Path], quota: int, cores: int) -> None:
    proc, cgroups = trees
    (proc / "self/cgroup").write_text("5:cpu,cpuacct:/docker/x\n")
    write(cgroups / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us=100000)
    assert read_cores(proc, cgroups) == cores
