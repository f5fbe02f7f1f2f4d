from __future__ import annotations

import pytest

from cuda_wheels.tables.accelerators import (
    ACCELERATORS,
    SUPPORTED_ARCHES,
    cuda_major,
    cuda_version,
    driver_floor,
    find_accelerator,
    image_name,
)

NAMES = "cu118 cu121 cu124 cu126 cu128 cu129 cu130 cu131 cu132 rocm6.3 rocm6.4 cpu".split()


def test_names_in_order() -> None:
    assert [accel.name for accel in ACCELERATORS] == NAMES


@pytest.mark.parametrize(
    "name, full_version",
    [
        ("cu118", "11.8.0"),
        ("cu121", "12.1.1"),
        ("cu124", "12.4.1"),
        ("cu126", "12.6.3"),
        ("cu128", "12.8.1"),
        ("cu129", "12.9.1"),
        ("cu130", "13.0.3"),
        ("cu131", "13.1.2"),
        ("cu132", "13.2.1"),
        ("rocm6.3", "6.3"),
        ("rocm6.4", "6.4"),
        ("cpu", None),
    ],
)
def test_full_version(name: str, full_version: str | None) -> None:
    accel = find_accelerator(name)
    assert accel is not None
    assert accel.full_version == full_version


@pytest.mark.parametrize(
    "name, min_torch",
    [
        ("cu118", None),
        ("cu121", None),
        ("cu124", None),
        ("cu126", "2.6.0"),
        ("cu128", "2.7.0"),
        ("cu129", "2.8.0"),
        ("cu130", "2.9.0"),
        ("cu131", None),
        ("cu132", "2.12.0"),
        ("rocm6.3", None),
        ("rocm6.4", None),
        ("cpu", None),
    ],
)
def test_min_torch(name: str, min_torch: str | None) -> None:
    accel = find_accelerator(name)
    assert accel is not None
    assert accel.min_torch == min_torch


@pytest.mark.parametrize("name", NAMES)
def test_torch_index_is_the_name_itself_but_for_cu131(name: str) -> None:
    accel = find_accelerator(name)
    assert accel is not None
    assert accel.torch_index == ("cu130" if name == "cu131" else name)


@pytest.mark.parametrize(
    "name, version, major, floor",
    [
        ("cu118", "11.8", 11, 450),
        ("cu121", "12.1", 12, 525),
        ("cu124", "12.4", 12, 525),
        ("cu126", "12.6", 12, 525),
        ("cu128", "12.8", 12, 525),
        ("cu129", "12.9", 12, 525),
        ("cu130", "13.0", 13, 580),
        ("cu131", "13.1", 13, 580),
        ("cu132", "13.2", 13, 580),
        ("rocm6.3", None, None, None),
        ("rocm6.4", None, None, None),
        ("cpu", None, None, None),
        ("cu999", None, None, None),
    ],
)
def test_cuda_version_and_driver(
    name: str, version: str | None, major: int | None, floor: int | None
) -> None:
    assert cuda_version(name) == version
    assert cuda_major(name) == major
    assert driver_floor(name) == floor


def test_unknown_accelerator() -> None:
    assert find_accelerator("cu13") is None


def test_arm64_has_no_old_cuda_and_no_rocm() -> None:
    assert list(SUPPORTED_ARCHES["amd64"]) == NAMES
    assert set(NAMES) - set(SUPPORTED_ARCHES["arm64"]) == {
        "cu118",
        "cu121",
        "cu124",
        "rocm6.3",
        "rocm6.4",
    }


@pytest.mark.parametrize(
    "name, manylinux, ubuntu_24_04, ubuntu_22_04",
    [
        ("cu118", "11.8.0-devel-rockylinux8", None, "11.8.0-devel-ubuntu22.04"),
        ("cu121", "12.1.1-devel-rockylinux8", None, "12.1.1-devel-ubuntu22.04"),
        ("cu124", "12.4.1-devel-rockylinux8", None, "12.4.1-devel-ubuntu22.04"),
        *(
            (
                name,
                f"{full}-devel-rockylinux8",
                f"{full}-devel-ubuntu24.04",
                f"{full}-devel-ubuntu22.04",
            )
            for name, full in [
                ("cu126", "12.6.3"),
                ("cu128", "12.8.1"),
                ("cu129", "12.9.1"),
                ("cu130", "13.0.3"),
                ("cu131", "13.1.2"),
                ("cu132", "13.2.1"),
            ]
        ),
    ],
)
def test_cuda_images(
    name: str, manylinux: str, ubuntu_24_04: str | None, ubuntu_22_04: str
) -> None:
    assert image_name(name) == f"nvidia/cuda:{manylinux}"
    assert image_name(name, "ubuntu24.04") == (
        f"nvidia/cuda:{ubuntu_24_04}" if ubuntu_24_04 else None
    )
    assert image_name(name, "ubuntu22.04") == f"nvidia/cuda:{ubuntu_22_04}"


@pytest.mark.parametrize(
    "name, base, image",
    [
        ("rocm6.3", "manylinux_2_28", None),
        ("rocm6.3", "ubuntu24.04", "rocm/dev-ubuntu-24.04:6.3-complete"),
        ("rocm6.4", "ubuntu22.04", "rocm/dev-ubuntu-22.04:6.4-complete"),
        ("cpu", "manylinux_2_28", "rockylinux:8"),
        ("cpu", "ubuntu24.04", "ubuntu:24.04"),
        ("cpu", "ubuntu22.04", "ubuntu:22.04"),
        ("cu130", "ubuntu20.04", None),
        ("cu999", "manylinux_2_28", None),
    ],
)
def test_other_images(name: str, base: str, image: str | None) -> None:
    assert image_name(name, base) == image
