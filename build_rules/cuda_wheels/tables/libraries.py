"""Shared libraries that a wheel uses but must not carry, and the CUDA that they belong to."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from cuda_wheels.tables.accelerators import find_accelerator

# Patterns of auditwheel's `--exclude`: no versions in them, a new major changes no list. A second
# copy of one of these in a process that has loaded torch's is a conflict.
EXCLUDED_LIBRARIES: tuple[str, ...] = (
    "libtorch*",  # from here to libgomp*: in torch's own wheel; the replaced build script
    "libc10*",
    "libshm*",
    "libcaffe2*",
    "libgomp*",
    "libcuda.so*",  # the driver's; the replaced build script
    "libnvidia-ml.so*",  # the driver's
    "libcudart*",  # from here to libnvshmem*: in nvidia-* wheels; the replaced build script
    "libnvrtc*",
    "libcublas*",
    "libcusparse*",
    "libcurand*",
    "libcufft*",
    "libcusolver*",
    "libnvJitLink*",
    "libnvToolsExt*",
    "libcudnn*",
    "libnccl*",
    "libcupti*",
    "libnvshmem*",
    "libcufile*",  # in nvidia-cufile; once bundled by wheels whose list lacked it
    "libnvblas*",  # in nvidia-cublas
    "libnvvm*",  # in nvidia-nvvm
    "libnvfatbin*",  # in nvidia-nvfatbin
    "libnvptxcompiler*",  # in nvidia-nvptxcompiler
    "libnvjpeg*",  # in nvidia-nvjpeg
    "libnpp*",  # in nvidia-npp
    "libnvtx3interop*",  # in nvidia-nvtx 13
    "libnvperf*",  # in nvidia-cuda-cupti
)

# Of those, torch's and the driver's: they say nothing about CUDA's version.
_WITHOUT_CUDA: tuple[str, ...] = ("libtorch*", "libc10*", "libshm*", "libcaffe2*", "libgomp*")

# (library, number in its soname) -> the CUDA majors that ship it. Libraries that count as CUDA
# does are not listed. Source of CUDA 13: the nvidia-* wheels that torch 2.11.0 pins (13.0, where
# libcusparse stays at 12). CUDA 11 and 12: general knowledge, not read in a wheel or an image.
SONAME_CUDA_MAJORS: dict[tuple[str, int], tuple[int, ...]] = {
    ("libcufft", 10): (11,),
    ("libcufft", 11): (12,),
    ("libcufft", 12): (13,),
    ("libcufftw", 10): (11,),
    ("libcufftw", 11): (12,),
    ("libcufftw", 12): (13,),
    ("libcurand", 10): (11, 12, 13),
    ("libcusolver", 11): (11, 12),
    ("libcusolver", 12): (13,),
    ("libcusolverMg", 11): (11, 12),
    ("libcusolverMg", 12): (13,),
    ("libcusparse", 11): (11,),
    ("libcusparse", 12): (12, 13),
    ("libnvToolsExt", 1): (11, 12),
}

# Libraries whose soname counts as CUDA does: libcudart.so.13 is CUDA 13's.
_COUNT_AS_CUDA: tuple[str, ...] = (
    "libcudart",
    "libcublas",
    "libcublasLt",
    "libnvblas",
    "libcupti",
    "libnvJitLink",
    "libnvfatbin",
    "libnvjpeg",
    "libnvrtc",
    "libnvrtc-builtins",
    "libnppc",
    "libnppial",
    "libnppicc",
    "libnppidei",
    "libnppif",
    "libnppig",
    "libnppim",
    "libnppist",
    "libnppisu",
    "libnppitc",
    "libnpps",
)

# `libcudart.so.13`, and `libcudart-1f2e3d4c.so.13.0.96` as a repair tool renames it.
_SONAME = re.compile(r"(lib[A-Za-z0-9_]+(?:-builtins)?)(?:-[0-9a-f]{8,})?\.so\.(\d+)(?:\.\d+)*")


def is_foreign(soname: str) -> bool:
    """Whether a library is CUDA's, torch's or torch's OpenMP: never to be put into a wheel."""
    return _matches(soname, EXCLUDED_LIBRARIES)


def is_cuda(soname: str) -> bool:
    """Whether a library is part of CUDA or of what comes with it."""
    return is_foreign(soname) and not _matches(soname, _WITHOUT_CUDA)


def cuda_majors_of(soname: str) -> tuple[int, ...]:
    """Every CUDA major that ships a library of this soname; () if that is not known."""
    found = _SONAME.fullmatch(soname)
    if found is None:
        return ()
    name, number = found.group(1), int(found.group(2))
    if name in _COUNT_AS_CUDA:
        return (number,)
    return SONAME_CUDA_MAJORS.get((name, number), ())


def needed_problems(accel: str, sonames: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each needed library of another CUDA than that of `accel`."""
    found = find_accelerator(accel)
    if found is None:
        return ()
    if found.cuda_major is None:
        return tuple(
            f"needs {soname}, a library of CUDA, but the wheel is for {accel}."
            for soname in sonames
            if is_cuda(soname) or _matches(soname, ("libtorch_cuda*", "libc10_cuda*"))
        )
    return tuple(
        f"needs {soname}, which is CUDA {' or '.join(map(str, majors))}'s, but the wheel is for "
        f"{accel}, CUDA {found.cuda_major}."
        for soname, majors in ((soname, cuda_majors_of(soname)) for soname in sonames)
        if majors and found.cuda_major not in majors
    )


def _matches(soname: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(soname, pattern) for pattern in patterns)
