from __future__ import annotations

import pytest

from cuda_wheels.tables.accelerators import SUPPORTED_ARCHES
from cuda_wheels.tables.torch import (
    TORCH_BUILDS,
    build_requirements,
    find_torch_build,
    lock_indexes,
    toolkit_version,
    torch_build,
    uv_platform,
)

COMPILER = "cuda-toolkit[cccl,crt,cudart,nvcc,nvvm,profiler]"


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_torch_2_11_is_on_the_package_index_and_pins_its_toolkit(arch: str) -> None:
    assert build_requirements(arch, "cu130", "2.11.0") == (
        f"{COMPILER}==13.0.2.*",
        "ninja",
        "numpy",
        "packaging",
        "pip",
        "psutil",
        "setuptools==80.9.0",
        "torch==2.11.0",
        "wheel",
    )
    assert lock_indexes(arch, "cu130", "2.11.0") == ()


@pytest.mark.parametrize(
    "torch, accel, arch, requirement, toolkit, folder",
    [
        ("2.9.1", "cu126", "amd64", "torch==2.9.1+cu126", None, "cu126"),
        ("2.9.1", "cu126", "arm64", "torch==2.9.1+cu126", None, "cu126"),
        ("2.9.1", "cu128", "amd64", "torch==2.9.1", None, None),
        ("2.9.1", "cu128", "arm64", "torch==2.9.1+cu128", None, "cu128"),
        ("2.9.1", "cu129", "amd64", "torch==2.9.1+cu129", None, "cu129"),
        ("2.9.1", "cu129", "arm64", "torch==2.9.1+cu129", None, "cu129"),
        ("2.9.1", "cu130", "amd64", "torch==2.9.1+cu130", "13.0.0", "cu130"),
        ("2.9.1", "cu130", "arm64", "torch==2.9.1+cu130", "13.0.0", "cu130"),
        ("2.9.1", "cpu", "amd64", "torch==2.9.1+cpu", None, "cpu"),
        ("2.9.1", "cpu", "arm64", "torch==2.9.1", None, None),
        ("2.10.0", "cu130", "amd64", "torch==2.10.0+cu130", "13.0.2", "cu130"),
        ("2.11.0", "cu130", "amd64", "torch==2.11.0", "13.0.2", None),
        ("2.13.0", "cu130", "amd64", "torch==2.13.0", "13.0.3", None),
        ("2.13.0", "cu130", "arm64", "torch==2.13.0", "13.0.3", None),
        # Not listed: the accelerator's own index and compiler.
        ("2.14.0", "cu132", "amd64", "torch==2.14.0+cu132", "13.2.1", "cu132"),
        ("2.9.1", "cu131", "amd64", "torch==2.9.1+cu130", "13.1.2", "cu130"),
    ],
)
def test_where_torch_comes_from(
    torch: str,
    accel: str,
    arch: str,
    requirement: str,
    toolkit: str | None,
    folder: str | None,
) -> None:
    assert torch_build(torch, accel, arch).requirement == requirement
    assert toolkit_version(arch, accel, torch) == toolkit
    indexes = lock_indexes(arch, accel, torch)
    assert [index.rpartition("/")[2] for index in indexes] == ([folder] if folder else [])


def test_cuda_12_has_no_compiler_to_lock() -> None:
    requirements = build_requirements("amd64", "cu128", "2.9.1")
    assert "torch==2.9.1" in requirements
    assert not [line for line in requirements if line.startswith("cuda-toolkit")]


def test_without_torch() -> None:
    requirements = build_requirements("amd64", "cu130", None)
    assert not [line for line in requirements if line.startswith("torch")]
    assert (
        "cuda-toolkit[cccl,crt,cublas,cudart,curand,nvcc,nvrtc,nvvm,profiler]==13.0.2.*"
        in requirements
    )
    assert {"pccm==0.4.16", "pybind11==2.13.6"} <= set(requirements)
    assert lock_indexes("amd64", "cu130", None) == ()
    assert toolkit_version("amd64", "cu126", None) is None


def test_requirements_are_sorted() -> None:
    for torch in ("2.11.0", None):
        requirements = build_requirements("arm64", "cu130", torch)
        assert list(requirements) == sorted(requirements)


def test_no_release_is_listed_twice_or_for_an_arch_that_has_none() -> None:
    keys = [(row.torch, row.accel, row.arch) for row in TORCH_BUILDS]
    assert len(keys) == len(set(keys))
    assert not [row for row in TORCH_BUILDS if row.accel not in SUPPORTED_ARCHES[row.arch]]


def test_unlisted_release() -> None:
    assert find_torch_build("2.14.0", "cu132", "amd64") is None


@pytest.mark.parametrize(
    "arch, platform", [("amd64", "x86_64-manylinux_2_28"), ("arm64", "aarch64-manylinux_2_28")]
)
def test_uv_platform(arch: str, platform: str) -> None:
    assert uv_platform(arch) == platform
