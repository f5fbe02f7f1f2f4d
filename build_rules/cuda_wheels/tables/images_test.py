"""The tables of toolchain images, against the bases and compilers that they are to have."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cuda_wheels.tables.accelerators import ACCELERATORS, BASES, SUPPORTED_ARCHES, image_name
from cuda_wheels.tables.gcc import max_gcc
from cuda_wheels.tables.images import (
    LIBRARIES,
    SYSTEMS,
    Image,
    default_system,
    image_problems,
    image_tag,
    image_variants,
)

DIGEST = "sha256:" + "0" * 64

# What is asked of the images, written down a second time: accelerator, base image, gcc-toolset.
REQUIRED = (
    ("cu118", "nvidia/cuda:11.8.0-devel-rockylinux8", 11),
    ("cu121", "nvidia/cuda:12.1.1-devel-rockylinux8", 12),
    ("cu124", "nvidia/cuda:12.4.1-devel-rockylinux8", 13),
    ("cu126", "nvidia/cuda:12.6.3-devel-rockylinux8", 13),
    ("cu128", "nvidia/cuda:12.8.1-devel-rockylinux8", 13),
    ("cu129", "nvidia/cuda:12.9.1-devel-rockylinux8", 13),
    ("cu130", "nvidia/cuda:13.0.3-devel-rockylinux8", 13),
    ("cu131", "nvidia/cuda:13.1.2-devel-rockylinux8", 13),
    ("cu132", "nvidia/cuda:13.2.1-devel-rockylinux8", 13),
    ("cpu", "rockylinux:8", 13),
)


def pinned(arch: str, accel: str, system: str = "manylinux_2_28", **fields: Any) -> Image:
    """An image on its published base, pinned."""
    base = f"{image_name(accel, system)}@{DIGEST}"
    return dataclasses.replace(Image(arch, accel, system, base), **fields)


def test_the_table_has_every_accelerator_that_images_are_built_for() -> None:
    assert {accel for _, accel in image_variants() if not accel.startswith("rocm")} == {
        accel for accel, _, _ in REQUIRED
    }


@pytest.mark.parametrize(("accel", "base", "toolset"), REQUIRED)
def test_the_images_are_those_that_are_asked_for(accel: str, base: str, toolset: int) -> None:
    image = pinned("amd64", accel)
    assert image.base == f"{base}@{DIGEST}"
    assert image_problems(image) == ()
    assert image.gcc == toolset
    assert image.gcc <= (max_gcc(accel) or image.gcc)
    compilers = {f"gcc-toolset-{toolset}-{part}" for part in ("gcc", "gcc-c++", "binutils")}
    assert compilers < set(image.packages)
    assert {"make", "cmake", "git", "ca-certificates", "which", "pkgconf-pkg-config"} < set(
        image.packages
    )
    assert {"sparsehash-devel", "python3.12", "python3.12-devel"} < set(image.packages)
    assert "openblas-devel" not in image.packages
    described = image.description("toolchain:tag")
    assert described["gxx"] == f"/opt/rh/gcc-toolset-{toolset}/root/usr/bin/g++"
    assert described["platform_policy"] == "manylinux_2_28"
    assert described["cuda_home"] == (None if accel == "cpu" else "/usr/local/cuda")


@pytest.mark.parametrize("arch", SUPPORTED_ARCHES)
@pytest.mark.parametrize("accel", [accel.name for accel in ACCELERATORS])
def test_an_image_is_refused_where_nothing_is_published_for_it(arch: str, accel: str) -> None:
    system = default_system(accel)
    problems = image_problems(pinned(arch, accel, system))
    assert bool(problems) == (accel not in SUPPORTED_ARCHES[arch])
    assert ((arch, accel) in image_variants()) == (not problems)


def test_rocm_is_built_on_ubuntu_without_a_manylinux_tag_or_refused() -> None:
    image = pinned("amd64", "rocm6.4", default_system("rocm6.4"))
    assert image.base == f"rocm/dev-ubuntu-24.04:6.4-complete@{DIGEST}"
    assert image_problems(image) == ()
    assert image.description("name")["platform_policy"] is None
    (problem,) = image_problems(Image("amd64", "rocm6.4", "manylinux_2_28", f"rocky@{DIGEST}"))
    assert "AMD publishes its toolkit for Ubuntu alone" in problem


@pytest.mark.parametrize(
    ("system", "accel", "base", "gcc"),
    [
        ("ubuntu22.04", "cu118", "nvidia/cuda:11.8.0-devel-ubuntu22.04", 11),
        ("ubuntu22.04", "cu130", "nvidia/cuda:13.0.3-devel-ubuntu22.04", 12),
        ("ubuntu24.04", "cu130", "nvidia/cuda:13.0.3-devel-ubuntu24.04", 13),
        ("ubuntu24.04", "cpu", "ubuntu:24.04", 13),
    ],
)
def test_ubuntu_stays_possible(system: str, accel: str, base: str, gcc: int) -> None:
    image = pinned("amd64", accel, system)
    assert image.base == f"{base}@{DIGEST}"
    assert image_problems(image) == ()
    assert {f"gcc-{gcc}", f"g++-{gcc}", "libsparsehash-dev"} < set(image.packages)
    assert image.compilers == (f"/usr/bin/gcc-{gcc}", f"/usr/bin/g++-{gcc}")
    assert image.description("name")["platform_policy"] is None


def test_no_image_of_an_old_cuda_on_a_new_ubuntu() -> None:
    (problem,) = image_problems(Image("amd64", "cu118", "ubuntu24.04", f"some@{DIGEST}"))
    assert "There is no image of cu118 on ubuntu24.04" in problem


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("accel", [accel.name for accel in ACCELERATORS])
def test_no_gcc_is_newer_than_nvcc_accepts(system: str, accel: str) -> None:
    image = Image("amd64", accel, system, f"some@{DIGEST}", own_base=True)
    assert 9 <= image.gcc <= (max_gcc(accel) or image.gcc)


def test_a_base_of_ones_own_brings_its_python_and_no_toolkit() -> None:
    image = Image("amd64", "cu130", "debian11", DIGEST, own_base=True)
    assert image_problems(image) == ()
    assert (image.gcc, image.toolkit) == (10, None)
    assert not [name for name in image.packages if "python" in name]
    assert image.description("name")["platform_policy"] == "manylinux_2_31"
    with_toolkit = dataclasses.replace(image, cuda_home="/opt/cuda")
    assert with_toolkit.toolkit == "/opt/cuda"


@pytest.mark.parametrize("base", ["rockylinux:8", "rockylinux", "rockylinux:8@sha256:00", "", "@"])
def test_a_base_without_a_digest_is_refused(base: str) -> None:
    (problem,) = image_problems(Image("amd64", "cpu", base=base))
    assert "has no digest" in problem and repr(base) in problem


def test_a_base_that_is_not_pinned_is_refused_with_what_pins_it() -> None:
    (problem,) = image_problems(Image("amd64", "cu130"))
    assert "nvidia/cuda:13.0.3-devel-rockylinux8 is not pinned" in problem
    assert "./pants cuda-pin-images --bases images:amd64-cu130" in problem
    (problem,) = image_problems(Image("amd64", "cpu", "debian11"))
    assert "base_image" in problem


def test_all_that_is_wrong_is_told_at_once() -> None:
    problems = image_problems(
        Image("x86_64", "cuda13", base="rockylinux:8", libraries=("openblas", "mkl"))
    )
    assert len(problems) == 4
    assert "openblas" in LIBRARIES and "'openblas'" not in problems[-1]
    assert "'mkl'" in problems[-1]
    (problem,) = image_problems(Image("amd64", "cpu", "ubuntu-24.04"))
    assert "Did you mean 'ubuntu24.04'?" in problem


@pytest.mark.parametrize(
    ("system", "package"), [(BASES[0], "openblas-devel"), (BASES[1], "libopenblas-dev")]
)
def test_a_library_is_there_where_it_is_named(system: str, package: str) -> None:
    assert package in pinned("amd64", "cpu", system, libraries=("openblas",)).packages
    assert package not in pinned("amd64", "cpu", system).packages


def test_a_tag_stands_for_names_and_contents() -> None:
    files = {"Dockerfile": b"FROM x\n", "bake/lock.txt": b"uv==1\n"}
    tag = image_tag(files)
    assert len(tag) == 16 and int(tag, 16) >= 0
    assert image_tag(dict(reversed(files.items()))) == tag
    changes = (
        {"Dockerfile": b"FROM y\n"},
        {"bake/lock.txt": b"uv==2\n"},
        {"site-ca.crt": b""},
    )
    assert len({tag, *(image_tag({**files, **change}) for change in changes)}) == 4
