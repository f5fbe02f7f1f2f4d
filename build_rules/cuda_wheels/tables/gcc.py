"""Which gcc compiles for which accelerator."""

from __future__ import annotations

import re

from cuda_wheels.tables.accelerators import find_accelerator

# Accelerator -> the gcc-toolset of its manylinux image. Every other accelerator: the default.
# Source: the replaced build script.
GCC_TOOLSETS: dict[str, int] = {
    "cu118": 11,
    "cu121": 12,
}
DEFAULT_GCC_TOOLSET = 13

# CUDA -> the newest gcc major that its nvcc accepts as host compiler.
# Source: CUDA_GCC_VERSIONS in torch 2.13.0's torch/utils/cpp_extension.py (12.1 to 13.0); what
# PyG's pyg-lib builds allow agrees (12.6, 12.8, 12.9, 13.x); `#if __GNUC__ > 15` in
# crt/host_config.h of nvidia-cuda-crt 13.0.88 (13.0).
MAX_GCC: dict[str, int] = {
    "11.8": 11,
    "12.1": 12,
    "12.4": 13,
    "12.6": 13,
    "12.8": 14,
    "12.9": 14,
    "13.0": 15,
    "13.1": 15,
    "13.2": 15,
}

# c10/util/C++17.h of torch: "We need GCC 9 or later". nvcc itself would be content with 6.
MIN_GCC = 9


def gcc_toolset(accel: str) -> int:
    """The gcc-toolset that the toolchain image of an accelerator has."""
    return GCC_TOOLSETS.get(accel, DEFAULT_GCC_TOOLSET)


def max_gcc(accel: str) -> int | None:
    """The newest gcc major for an accelerator; None where nothing limits it."""
    found = find_accelerator(accel)
    return MAX_GCC.get(found.cuda_version) if found and found.cuda_version else None


def gcc_problem(accel: str, gcc_version: str) -> str | None:
    """Why a gcc cannot compile for `accel`, and which one can; None if it can."""
    number = re.match(r"\d+", gcc_version)
    if number is None:
        return (
            f"The C++ compiler calls itself version {gcc_version!r}, which is no version of gcc. "
            "Name gcc's g++ in `[cuda-wheels].cxx_compiler`."
        )
    major, newest = int(number.group()), max_gcc(accel)
    if major >= MIN_GCC and (newest is None or major <= newest):
        return None
    wanted = min(gcc_toolset(accel), newest or DEFAULT_GCC_TOOLSET)
    accepted = f"gcc {MIN_GCC} to {newest}" if newest else f"gcc {MIN_GCC} or newer"
    who = "torch's headers refuse" if major < MIN_GCC else f"the nvcc of {accel} refuses"
    return (
        f"{accel} compiles with {accepted}, but the compiler found is gcc {gcc_version}, which "
        f"{who}. Install one in that range (`apt-get install gcc-{wanted} "
        f'g++-{wanted}`) and name it: `[cuda-wheels].c_compiler = "gcc-{wanted}"`, '
        f'`[cuda-wheels].cxx_compiler = "g++-{wanted}"`.'
    )
