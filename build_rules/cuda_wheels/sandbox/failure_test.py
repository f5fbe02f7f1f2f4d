"""What a failed build says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_wheels.sandbox.failure import Plan, describe, hint
from cuda_wheels.sandbox.machine import Memory

PLAN = Plan(
    jobs=4, concurrency=8, memory_per_job_gb=5, memory=Memory(21_500_000_000, "the machine")
)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        pytest.param(137, "", id="exit-137"),
        pytest.param(-9, "", id="signal"),
        pytest.param(1, "g++: fatal error: Killed signal terminated program cc1plus", id="gcc"),
        pytest.param(1, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", id="nvcc"),
        pytest.param(1, "Killed", id="shell"),
        pytest.param(1, "cc1plus: out of memory allocating 65536 bytes", id="no-overcommit"),
        pytest.param(1, "virtual memory exhausted: Cannot allocate memory", id="ulimit"),
    ],
)
def test_a_killed_compiler_is_explained_with_numbers(code: int, line: str) -> None:
    text = hint(code, ["x", line], PLAN, [])
    assert text is not None
    assert "4 job(s)" in text
    assert "5 GB each" in text
    assert "21.5 GB were free" in text
    assert "memory_per_job_gb" in text
    assert "process_execution_local_parallelism" in text
    assert "cgroup" not in text


def test_a_cgroup_limit_is_named() -> None:
    plan = Plan(1, 8, 5, Memory(10**9, "/sys/fs/cgroup/user.slice"))
    assert "/sys/fs/cgroup/user.slice" in (hint(137, [], plan, []) or "")


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    text = hint(1, ["ld: final link failed: No space left on device"], PLAN, [tmp_path])
    assert text is not None
    assert text.startswith("Disk full")
    assert str(tmp_path) in text


@pytest.mark.parametrize("line", ["error: 'x' was not declared", "skilled workers", "Killed_flag"])
def test_an_ordinary_failure_has_no_hint(line: str) -> None:
    assert hint(1, [line], PLAN, []) is None


def test_the_message_ends_with_the_tail_and_the_log() -> None:
    lines = ["a.cu(3): error: first", *(f"line {n}" for n in range(60))]
    text = describe(lines, Path("/cache/logs/x.log"), "A hint.", "x 1 failed.")
    assert text.startswith("x 1 failed.")
    assert "a.cu(3): error: first" in text
    assert "  line 20\n" in text
    assert "  line 19\n" not in text
    assert text.endswith("  line 59\nA hint.\nThe whole log: /cache/logs/x.log")


def test_the_plan_says_where_the_numbers_come_from() -> None:
    assert str(PLAN) == "jobs=4 of 8 (5 GB/job, 21.5 GB available)"
