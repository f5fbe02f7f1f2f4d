"""Accelerators by the names that PyTorch's wheels use, and what exists for each of them.

Source of every value that names none: the accelerator tables of the build script that this
project replaces, checked against the images and indexes of 2026-09-28.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """One accelerator: a CUDA or ROCm release, or the CPU.

    `full_version` is the release in its image's name (None for the CPU), `min_torch` the first
    torch that was built for it (None: no bound is known), `torch_index` the folder of the PyTorch
    index whose wheels serve it.
    """

    name: str
    kind: str  # "cuda" | "rocm" | "cpu"
    full_version: str | None
    min_torch: str | None
    torch_index: str

    @property
    def cuda_version(self) -> str | None:
        """`major.minor` of CUDA, None for an accelerator that is not CUDA."""
        if self.kind != "cuda" or self.full_version is None:
            return None
        return ".".join(self.full_version.split(".")[:2])

    @property
    def cuda_major(self) -> int | None:
        return int(self.cuda_version.split(".")[0]) if self.cuda_version else None


ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator("cu118", "cuda", "11.8.0", None, "cu118"),
    Accelerator("cu121", "cuda", "12.1.1", None, "cu121"),
    Accelerator("cu124", "cuda", "12.4.1", None, "cu124"),
    Accelerator("cu126", "cuda", "12.6.3", "2.6.0", "cu126"),
    Accelerator("cu128", "cuda", "12.8.1", "2.7.0", "cu128"),
    Accelerator("cu129", "cuda", "12.9.1", "2.8.0", "cu129"),
    Accelerator("cu130", "cuda", "13.0.3", "2.9.0", "cu130"),
    Accelerator("cu131", "cuda", "13.1.2", None, "cu130"),  # PyTorch has no cu131 index
    Accelerator("cu132", "cuda", "13.2.1", "2.12.0", "cu132"),
    Accelerator("rocm6.3", "rocm", "6.3", None, "rocm6.3"),
    Accelerator("rocm6.4", "rocm", "6.4", None, "rocm6.4"),
    Accelerator("cpu", "cpu", None, None, "cpu"),
)

# CUDA major -> the oldest driver branch that runs it, by forward compatibility within a major.
DRIVER_FLOORS: dict[int, int] = {
    11: 450,
    12: 525,
    13: 580,
}

# Our name of a CPU architecture -> the machine's own name, as in wheel tags.
MACHINES: dict[str, str] = {
    "amd64": "x86_64",
    "arm64": "aarch64",
}

# Architecture -> accelerators that it has. NVIDIA and PyTorch publish no arm64 server builds of
# CUDA before 12.6, and AMD none of ROCm.
SUPPORTED_ARCHES: dict[str, tuple[str, ...]] = {
    "amd64": tuple(accel.name for accel in ACCELERATORS),
    "arm64": ("cu126", "cu128", "cu129", "cu130", "cu131", "cu132", "cpu"),
}

# What a wheel is built on. `manylinux_2_28` stands for Rocky Linux 8, whose glibc is 2.28.
BASES: tuple[str, ...] = ("manylinux_2_28", "ubuntu24.04", "ubuntu22.04")

_CPU_IMAGES: dict[str, str] = {
    "manylinux_2_28": "rockylinux:8",
    "ubuntu24.04": "ubuntu:24.04",
    "ubuntu22.04": "ubuntu:22.04",
}
_CUDA_BASES: dict[str, str] = {
    "manylinux_2_28": "rockylinux8",
    "ubuntu24.04": "ubuntu24.04",
    "ubuntu22.04": "ubuntu22.04",
}
# These releases are older than Ubuntu 24.04 and have no image on it.
_WITHOUT_UBUNTU_24_04: tuple[str, ...] = ("cu118", "cu121", "cu124")


def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator of that name, None if there is none."""
    return next((accel for accel in ACCELERATORS if accel.name == name), None)


def cuda_version(name: str) -> str | None:
    """`major.minor` of an accelerator's CUDA; None if it has none or is unknown."""
    accel = find_accelerator(name)
    return accel.cuda_version if accel else None


def cuda_major(name: str) -> int | None:
    accel = find_accelerator(name)
    return accel.cuda_major if accel else None


def driver_floor(name: str) -> int | None:
    """The oldest driver branch for an accelerator; None if it needs no NVIDIA driver."""
    major = cuda_major(name)
    return DRIVER_FLOORS.get(major) if major is not None else None


def image_name(name: str, base: str = "manylinux_2_28") -> str | None:
    """The published image with an accelerator's toolkit on `base`, None if there is none."""
    accel = find_accelerator(name)
    if accel is None or base not in BASES:
        return None
    if accel.kind == "cpu":
        return _CPU_IMAGES[base]
    if accel.kind == "rocm":
        ubuntu = base.replace("ubuntu", "ubuntu-")
        return (
            None if base == "manylinux_2_28" else f"rocm/dev-{ubuntu}:{accel.full_version}-complete"
        )
    if base == "ubuntu24.04" and name in _WITHOUT_UBUNTU_24_04:
        return None
    return f"nvidia/cuda:{accel.full_version}-devel-{_CUDA_BASES[base]}"
