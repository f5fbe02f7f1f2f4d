from __future__ import annotations

import pytest

from cuda_wheels.tables.accelerators import ACCELERATORS
from cuda_wheels.tables.gcc import gcc_problem, gcc_toolset, max_gcc

TOOLSETS = {"cu118": 11, "cu121": 12}


@pytest.mark.parametrize("accel", [accel.name for accel in ACCELERATORS])
def test_gcc_toolset(accel: str) -> None:
    assert gcc_toolset(accel) == TOOLSETS.get(accel, 13)


@pytest.mark.parametrize(
    "accel, newest",
    [
        ("cu118", 11),
        ("cu121", 12),
        ("cu124", 13),
        ("cu126", 13),
        ("cu128", 14),
        ("cu129", 14),
        ("cu130", 15),
        ("cu131", 15),
        ("cu132", 15),
    ],
)
def test_nvcc_accepts_up_to(accel: str, newest: int) -> None:
    assert max_gcc(accel) == newest
    assert gcc_toolset(accel) <= newest
    assert gcc_problem(accel, f"{newest}.2.0") is None
    problem = gcc_problem(accel, f"{newest + 1}.1.0")
    assert problem is not None
    wanted = TOOLSETS.get(accel, 13)
    for part in (
        f"{accel} compiles with gcc 9 to {newest}",
        f"found is gcc {newest + 1}.1.0",
        f"the nvcc of {accel} refuses",
        f"apt-get install gcc-{wanted} g++-{wanted}",
        "[cuda-wheels].cxx_compiler",
    ):
        assert part in problem


@pytest.mark.parametrize("accel", ["cu118", "cu130", "cpu"])
def test_torch_needs_gcc_9(accel: str) -> None:
    assert gcc_problem(accel, "9.4.0") is None
    problem = gcc_problem(accel, "8.5.0")
    assert problem is not None
    assert "8.5.0" in problem and "torch's headers refuse" in problem


@pytest.mark.parametrize("version", ["9", "12.2.0", "16.1.0"])
def test_without_nvcc_no_gcc_is_too_new(version: str) -> None:
    assert max_gcc("cpu") is None
    assert gcc_problem("cpu", version) is None


def test_not_gcc() -> None:
    problem = gcc_problem("cu130", "Apple clang")
    assert problem is not None
    assert "'Apple clang'" in problem
