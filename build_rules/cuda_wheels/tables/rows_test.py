from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from packaging.version import Version

from cuda_wheels.tables.rows import PYTHONS, Row, local_version, row_problems

GOOD = Row("amd64", "cu130", "2.11.0", "3.12", ("8.0", "9.0"))


def row(**changes: Any) -> Row:
    return dataclasses.replace(GOOD, **changes)


@pytest.mark.parametrize(
    "changes, variant",
    [
        ({}, "amd64-cu130-torch2.11.0-cp312"),
        ({"torch": None}, "amd64-cu130-cp312"),
        ({"arch": "arm64", "accel": "cpu", "python": "3.9"}, "arm64-cpu-torch2.11.0-cp39"),
    ],
)
def test_variant_and_lock(changes: dict[str, Any], variant: str) -> None:
    assert row(**changes).variant == variant
    assert row(**changes).lock_path == f"3rdparty/torch/{variant}.txt"


@pytest.mark.parametrize(
    "changes, options, expected",
    [
        ({}, {}, "cu130.torch2.11.0"),
        ({}, {"narrowed_to": ("9.0",)}, "cu130.torch2.11.0.sm90"),
        ({}, {"narrowed_to": ("12.0", "8.0")}, "cu130.torch2.11.0.sm80.sm120"),
        ({}, {"links_torch": False}, "cu130"),
        ({"torch": None}, {}, "cu130"),
        ({"torch": None}, {"narrowed_to": ("9.0",)}, "cu130.sm90"),
        ({"accel": "cpu"}, {}, "cpu.torch2.11.0"),
        ({"accel": "rocm6.4"}, {}, "rocm6.4.torch2.11.0"),
    ],
)
def test_local_version(changes: dict[str, Any], options: dict[str, Any], expected: str) -> None:
    found = local_version(row(**changes), **options)
    assert found == expected
    assert Version(f"2.1.2+{found}").local == expected  # already in its normal form


def test_two_torch_releases_never_share_a_name() -> None:
    ours, other = row(torch="2.9.1"), row(torch="2.10.0")
    assert local_version(ours) != local_version(other)
    assert ours.variant != other.variant
    assert ours.lock_path != other.lock_path


@pytest.mark.parametrize(
    "good",
    [
        GOOD,
        row(torch=None),
        row(accel="cu126", torch="2.6.0"),
        row(accel="cu128", torch="2.7.0", cuda_arch=("9.0", "10.0", "12.0")),
        row(accel="cu129", torch="2.8.0", cuda_arch=("10.3", "12.1")),
        row(accel="cu130", torch="2.9.0"),
        row(accel="cu132", torch="2.12.0"),
        row(accel="cu131", torch="2.9.1"),
        row(accel="cu118", torch="2.5.1", cuda_arch=("3.5", "9.0")),
        row(accel="cpu", cuda_arch=()),
        row(arch="arm64", cuda_arch=("11.0", "12.1")),
        *(row(python=python) for python in PYTHONS),
    ],
    ids=lambda good: f"{good.variant}-{'-'.join(good.cuda_arch)}",
)
def test_rows_that_work(good: Row) -> None:
    assert row_problems(good) == ()


@pytest.mark.parametrize(
    "bad, parts",
    [
        (row(arch="x86_64"), ("`arch` is 'x86_64'", "'amd64'?", "Known: amd64, arm64")),
        (row(arch="aarch64"), ("`arch` is 'aarch64'", "Did you mean 'arm64'?")),
        (row(arch="amd46"), ("'amd46'", "Did you mean 'amd64'?")),
        (row(arch="riscv"), ("'riscv'", "unknown. Known")),
        (row(accel="cu13"), ("`accel` is 'cu13'", "Did you mean 'cu13", "cu118, cu121")),
        (row(accel="cuda-13.0"), ("'cuda-13.0'", "Did you mean 'cu130'?")),
        (row(accel="12.8"), ("'12.8'", "Known: cu118")),
        (row(accel="cu130,cu130"), ("`accel` is 'cu130,cu130'", "Write 'cu130'.")),
        (row(accel="cu130 cu130"), ("'cu130 cu130'", "Write 'cu130'.")),
        (row(accel="cu128;cu130"), ("a row is for one", "each of cu128, cu130.")),
        (row(torch="2.11"), ("`torch` is '2.11'", "Did you mean '2.11.0'?")),
        (row(torch="2.11.0+cu130"), ("'2.11.0+cu130'", "Did you mean '2.11.0'?")),
        (row(torch="latest"), ("'latest'", "no release of torch. Write three numbers")),
        (row(python="3.8"), ("`python` is '3.8'", "Known: 3.10, 3.11, 3.12, 3.13, 3.14")),
        (row(python="cp312"), ("'cp312'", "Did you mean '3.12'?")),
        (row(python="3.12.1"), ("'3.12.1'", "Did you mean '3.12'?")),
        (row(torch="2.8.0"), ("torch 2.8.0", "cu130", "2.9.0 or newer", "cu126, cu128, cu129")),
        (
            row(accel="cu126", torch="2.5.1"),
            ("torch 2.5.1 was never built for cu126", "2.6.0 or newer."),
        ),
        (row(accel="cu128", torch="2.6.0"), ("cu128", "2.7.0 or newer, or take cu126")),
        (row(accel="cu129", torch="2.7.1"), ("cu129", "2.8.0 or newer")),
        (row(accel="cu132", torch="2.11.0"), ("cu132", "2.12.0 or newer")),
        (
            row(accel="cu128", torch="2.9.1", cuda_arch=("10.3",)),
            ("10.3", "nvcc of cu128 cannot emit it", "cu129, cu130, cu131, cu132"),
        ),
        (
            row(accel="cu129", torch="2.9.1", cuda_arch=("11.0",)),
            ("11.0", "nvcc of cu129 cannot emit it", "cu130, cu131, cu132"),
        ),
        (row(cuda_arch=("7.0",)), ("7.0", "removed in CUDA 13", "cu128, cu129")),
        (row(cuda_arch=("sm_90",)), ("'sm_90'", "Did you mean '9.0'?")),
        (row(cuda_arch=("120",)), ("'120'", "Did you mean '12.0'?")),
        (row(cuda_arch=("9.0a",)), ("'9.0a'", "Did you mean '9.0'?")),
        (row(cuda_arch=("9.0+PTX",)), ("'9.0+PTX'", "Did you mean '9.0'?", "gpu_arch_rule")),
        (row(cuda_arch=("hopper",)), ("'hopper'", "no GPU capability. It is written")),
        (row(cuda_arch=("9.0", "8.0", "9.0")), ("names 9.0 2 times",)),
        (
            row(cuda_arch=()),
            (
                "`cuda_arch` is empty",
                "cu130 compiles for GPUs",
                '["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"]',
            ),
        ),
        (row(arch="arm64", cuda_arch=(), accel="cu126"), ('for instance ["8.7", "9.0"].',)),
        (row(accel="cpu"), ("8.0 9.0", "`accel` is cpu", "Leave it empty")),
        *(
            (
                row(arch="arm64", accel=accel, torch="2.5.1"),
                (f"{accel} does not exist for arm64", "there are cu126, cu128"),
            )
            for accel in ("cu118", "cu121", "cu124")
        ),
        (
            row(accel="rocm6.4", cuda_arch=()),
            ("rocm6.4 cannot be built on manylinux_2_28", "ubuntu24.04"),
        ),
    ],
)
def test_one_problem(bad: Row, parts: tuple[str, ...]) -> None:
    (problem,) = row_problems(bad)
    for part in parts:
        assert part in problem


def test_rocm_on_arm64_is_wrong_in_two_ways() -> None:
    problems = row_problems(row(arch="arm64", accel="rocm6.3", cuda_arch=()))
    assert len(problems) == 2
    assert "rocm6.3 does not exist for arm64" in problems[0]
    assert "manylinux_2_28" in problems[1]


@pytest.mark.parametrize("base", ["ubuntu24.04", "ubuntu22.04"])
def test_rocm_on_ubuntu_works(base: str) -> None:
    assert row_problems(row(accel="rocm6.4", cuda_arch=()), base) == ()


@pytest.mark.parametrize("accel", ["cu118", "cu121", "cu124"])
def test_old_cuda_has_no_image_on_ubuntu_24_04(accel: str) -> None:
    old = row(accel=accel, torch="2.5.1")
    (problem,) = row_problems(old, "ubuntu24.04")
    assert f"no image of {accel} on ubuntu24.04" in problem
    assert row_problems(old, "ubuntu22.04") == ()


def test_all_problems_at_once() -> None:
    bad = Row("x86_64", "cu130", "2.8.0", "2.7", ("7.0", "9.0", "9.0", "13.9"))
    found = "\n".join(row_problems(bad))
    for part in ("'x86_64'", "torch 2.8.0", "'2.7'", "7.0", "9.0 2 times", "13.9"):
        assert part in found
    assert len(row_problems(bad)) == 6


def test_an_unknown_accelerator_hides_no_other_problem() -> None:
    problems = row_problems(Row("mips", "cu999", "two", "4.0", ("9.0",)))
    assert len(problems) == 4
