"""Torch releases: where their wheels are, and what a build environment for one is made of.

A build environment is locked by uv from `build_requirements`, for `uv_platform`, with
`lock_indexes` beside the package index.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuda_wheels.tables.accelerators import MACHINES, find_accelerator
from cuda_wheels.tables.upstreams import torch_index

PYPI = "pypi"
TORCH_INDEX = "torch-index"


@dataclass(frozen=True)
class TorchBuild:
    """One torch release for one accelerator and architecture.

    `host`: where the wheel is taken from: the package index ("pypi"), whose one build a release is
    of this accelerator, or the PyTorch index ("torch-index"), where it has a local version.
    `toolkit`: the version of `cuda-toolkit` whose libraries this torch pins.
    """

    torch: str
    accel: str
    arch: str
    host: str
    toolkit: str | None = None

    @property
    def requirement(self) -> str:
        """What uv is asked for: `torch==2.11.0`, with a local version on the PyTorch index."""
        if self.host == PYPI:
            return f"torch=={self.torch}"
        found = find_accelerator(self.accel)
        return f"torch=={self.torch}+{found.torch_index if found else self.accel}"


# Sources: METADATA and torch/version.py of the wheels on PyPI (2.9.1 to 2.13.0); the nvidia-*
# pins of the PyTorch index's wheels in public lock files (2.9.1: nvidia-cuda-runtime 13.0.48 is
# CUDA 13.0.0's, 2.10.0: 13.0.96 is 13.0.2's).
TORCH_BUILDS: tuple[TorchBuild, ...] = (
    TorchBuild("2.9.1", "cu126", "amd64", TORCH_INDEX),
    TorchBuild("2.9.1", "cu126", "arm64", TORCH_INDEX),
    TorchBuild("2.9.1", "cu128", "amd64", PYPI),
    TorchBuild("2.9.1", "cu128", "arm64", TORCH_INDEX),
    TorchBuild("2.9.1", "cu129", "amd64", TORCH_INDEX),
    TorchBuild("2.9.1", "cu129", "arm64", TORCH_INDEX),
    TorchBuild("2.9.1", "cu130", "amd64", TORCH_INDEX, "13.0.0"),
    TorchBuild("2.9.1", "cu130", "arm64", TORCH_INDEX, "13.0.0"),
    TorchBuild("2.9.1", "cpu", "amd64", TORCH_INDEX),
    TorchBuild("2.9.1", "cpu", "arm64", PYPI),
    TorchBuild("2.10.0", "cu128", "amd64", PYPI),
    TorchBuild("2.10.0", "cu128", "arm64", TORCH_INDEX),
    TorchBuild("2.10.0", "cu130", "amd64", TORCH_INDEX, "13.0.2"),
    TorchBuild("2.10.0", "cu130", "arm64", TORCH_INDEX, "13.0.2"),
    TorchBuild("2.10.0", "cpu", "arm64", PYPI),
    TorchBuild("2.11.0", "cu130", "amd64", PYPI, "13.0.2"),
    TorchBuild("2.11.0", "cu130", "arm64", PYPI, "13.0.2"),
    TorchBuild("2.12.0", "cu130", "amd64", PYPI, "13.0.2"),
    TorchBuild("2.13.0", "cu130", "amd64", PYPI, "13.0.3"),
    TorchBuild("2.13.0", "cu130", "arm64", PYPI, "13.0.3"),
)

# Accelerator -> the `cuda-toolkit` for wheels that do not link torch and for torch releases that
# are not listed. 13.0.2 is what most torch releases for cu130 pin; 13.0.3 has the same nvcc.
# CUDA 12 is not listed: its packages hold no nvcc, an image or an installed toolkit has to.
DEFAULT_TOOLKITS: dict[str, str] = {
    "cu130": "13.0.2",
    "cu131": "13.1.2",
    "cu132": "13.2.1",
}

# What a compiler needs of `cuda-toolkit`. Torch itself brings the libraries that its headers
# include: cublas, cufft, curand, cusolver, cusparse, cupti, nvrtc, nvtx (its METADATA).
_COMPILER_PARTS: tuple[str, ...] = ("cccl", "crt", "cudart", "nvcc", "nvvm", "profiler")

# What the packages that do not link torch include and link on top; without torch nobody brings
# it. Source: the include lines of cumm 0.8.2 and spconv 2.3.8.
_LIBRARY_PARTS: tuple[str, ...] = ("cublas", "curand", "nvrtc")

# Tools of every build. setuptools: torch 2.11 wants <82, torch 2.13 >=77, and packages whose
# setup.py imports pkg_resources or distutils want one that has them without a warning for each.
_TOOLS = ("ninja", "numpy", "packaging", "pip", "psutil", "setuptools==80.9.0", "wheel")

# What the packages that do not link torch generate their code with: pccm and its requirements
# (METADATA of pccm 0.4.16, cumm 0.8.2 and spconv 2.3.8). cumm and spconv must share one pybind11.
_GENERATORS = (
    "ccimport>=0.4.4",
    "fire",
    "lark>=1.0",
    "pccm==0.4.16",
    "portalocker>=2.3.2",
    "pybind11==2.13.6",
    "sympy",
)


def find_torch_build(torch: str, accel: str, arch: str) -> TorchBuild | None:
    """The known build of a torch release for an accelerator and an architecture."""
    return next(
        (row for row in TORCH_BUILDS if (row.torch, row.accel, row.arch) == (torch, accel, arch)),
        None,
    )


def torch_build(torch: str, accel: str, arch: str) -> TorchBuild:
    """The known build, or what a release that is not listed here most likely looks like."""
    return find_torch_build(torch, accel, arch) or TorchBuild(
        torch, accel, arch, TORCH_INDEX, DEFAULT_TOOLKITS.get(accel)
    )


def toolkit_version(arch: str, accel: str, torch: str | None) -> str | None:
    """The `cuda-toolkit` to lock for a row; None where the package index has no compiler."""
    if torch is None:
        return DEFAULT_TOOLKITS.get(accel)
    return torch_build(torch, accel, arch).toolkit


def build_requirements(arch: str, accel: str, torch: str | None) -> tuple[str, ...]:
    """What a row's build environment is locked from, in a fixed order.

    `torch` is None for the packages that do not link it.
    """
    requirements = [*_TOOLS]
    parts = _COMPILER_PARTS
    if torch is None:
        requirements += _GENERATORS
        parts = (*_COMPILER_PARTS, *_LIBRARY_PARTS)
    else:
        requirements.append(torch_build(torch, accel, arch).requirement)
    toolkit = toolkit_version(arch, accel, torch)
    if toolkit:
        requirements.append(f"cuda-toolkit[{','.join(sorted(parts))}]=={toolkit}.*")
    return tuple(sorted(requirements))


def lock_indexes(arch: str, accel: str, torch: str | None) -> tuple[str, ...]:
    """The indexes that a row's requirements need beside the package index."""
    if torch is None or torch_build(torch, accel, arch).host == PYPI:
        return ()
    return (torch_index(accel),)


def uv_platform(arch: str) -> str:
    """uv's `--python-platform` for an architecture."""
    return f"{MACHINES[arch]}-manylinux_2_28"
