"""A row of the matrix: what one wheel is built for, and everything that can be wrong with it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cuda_wheels.tables.accelerators import (
    ACCELERATORS,
    SUPPORTED_ARCHES,
    Accelerator,
    find_accelerator,
    image_name,
)
from cuda_wheels.tables.gpu_archs import (
    DEFAULT_GPU_ARCHS,
    is_capability,
    local_suffix,
    normalize_arch,
    nvcc_problem,
)

# Pythons that torch 2.9.1 has wheels for.
PYTHONS: tuple[str, ...] = ("3.10", "3.11", "3.12", "3.13", "3.14")

BUILD_PYTHON = "3.12"
"""The Python that runs the programs of `sandbox/`, and so the one of the environments they make."""

LOCK_DIRECTORY = "3rdparty/torch"

# What others call our architectures.
_OTHER_NAMES: dict[str, str] = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "x64": "amd64",
    "aarch64": "arm64",
    "armv8": "arm64",
}

_TORCH = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


@dataclass(frozen=True)
class Row:
    """What one wheel is built for; `torch` is None where the package does not link it."""

    arch: str
    accel: str
    torch: str | None
    python: str
    cuda_arch: tuple[str, ...] = ()

    @property
    def python_tag(self) -> str:
        """`cp312`"""
        return f"cp{self.python.replace('.', '')}"

    @property
    def variant(self) -> str:
        """`amd64-cu130-torch2.11.0-cp312`, without torch `amd64-cu130-cp312`."""
        torch = (f"torch{self.torch}",) if self.torch else ()
        return "-".join((self.arch, self.accel, *torch, self.python_tag))

    @property
    def lock_path(self) -> str:
        """The locked build environment of the row, relative to the repository."""
        return f"{LOCK_DIRECTORY}/{self.variant}.txt"


def local_version(
    row: Row, narrowed_to: Iterable[str] | None = None, links_torch: bool = True
) -> str:
    """What tells this row's wheel from those of other rows: `cu130.torch2.11.0`.

    A wheel that is compiled for fewer GPU architectures than its row promises names them:
    `cu130.torch2.11.0.sm90`.
    """
    parts = [row.accel]
    if links_torch and row.torch:
        parts.append(f"torch{row.torch}")
    if narrowed_to is not None:
        parts.append(local_suffix(narrowed_to))
    return ".".join(part for part in parts if part)


def row_problems(row: Row, base: str = "manylinux_2_28") -> tuple[str, ...]:
    """Every reason why a row cannot work, each with what would; () if it can.

    `base` is what it is built on, see `accelerators.BASES`.
    """
    accel = find_accelerator(row.accel)
    return (
        *_arch_problems(row.arch),
        *_accel_problems(row.accel),
        *_torch_problems(row.torch, accel),
        *_python_problems(row.python),
        *(_combination_problems(row, accel, base) if accel else ()),
        *(_gpu_arch_problems(row, accel) if accel else ()),
    )


def place_problems(row: Row, base: str) -> tuple[str, ...]:
    """Every reason why there is no toolchain for a row's architecture and accelerator on `base`."""
    accel = find_accelerator(row.accel)
    return (
        *_arch_problems(row.arch),
        *_accel_problems(row.accel),
        *(_combination_problems(row, accel, base) if accel else ()),
    )


def version_key(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare; 2.9 and 2.9.0 are the same."""
    parts = [int(part) for part in re.findall(r"\d+", version.split("+")[0])]
    return (*parts, 0, 0, 0)[:3]


def _arch_problems(arch: str) -> tuple[str, ...]:
    if arch in SUPPORTED_ARCHES:
        return ()
    hint = _did_you_mean(arch, tuple(SUPPORTED_ARCHES), _OTHER_NAMES)
    return (f"`arch` is {arch!r}, which is unknown.{hint} Known: {', '.join(SUPPORTED_ARCHES)}.",)


def _accel_problems(accel: str) -> tuple[str, ...]:
    names = tuple(known.name for known in ACCELERATORS)
    if accel in names:
        return ()
    listed = [word for word in re.split(r"[\s,;]+", accel) if word]
    if len(listed) > 1 and set(listed) <= set(names):
        once = tuple(dict.fromkeys(listed))
        ways = (
            f"Write {once[0]!r}" if len(once) == 1 else f"Make a row of each of {', '.join(once)}"
        )
        return (f"`accel` is {accel!r}, but a row is for one accelerator. {ways}.",)
    written = accel.lower().replace("cuda", "cu").replace(".", "").replace("-", "")
    hint = _did_you_mean(accel, names, {accel: written} if written in names else {})
    return (f"`accel` is {accel!r}, which is unknown.{hint} Known: {', '.join(names)}.",)


def _torch_problems(torch: str | None, accel: Accelerator | None) -> tuple[str, ...]:
    if torch is None:
        return ()
    if not _TORCH.fullmatch(torch):
        numbers = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", torch)
        hint = f" Did you mean {'.'.join(n or '0' for n in numbers.groups())!r}?" if numbers else ""
        return (
            f"`torch` is {torch!r}, which is no release of torch.{hint} Write three numbers and no "
            "local version, for instance '2.11.0'.",
        )
    if accel is None or accel.min_torch is None or _reaches(torch, accel.min_torch):
        return ()
    older = [
        other.name
        for other in ACCELERATORS
        if other.kind == accel.kind and other.min_torch and _reaches(torch, other.min_torch)
    ]
    or_accel = f", or take {', '.join(older)} with torch {torch}" if older else ""
    return (
        f"torch {torch} was never built for {accel.name}: its first release is {accel.min_torch}. "
        f"Take torch {accel.min_torch} or newer{or_accel}.",
    )


def _reaches(torch: str, minimum: str) -> bool:
    return version_key(torch) >= version_key(minimum)


def _python_problems(python: str) -> tuple[str, ...]:
    if python in PYTHONS:
        return ()
    numbers = re.fullmatch(r"(?:cp|py)?(3)\.?(\d{1,2})(?:\.\d+)?", python)
    meant = f"{numbers.group(1)}.{numbers.group(2)}" if numbers else ""
    hint = _did_you_mean(python, PYTHONS, {python: meant} if meant in PYTHONS else {})
    return (f"`python` is {python!r}, which is unknown.{hint} Known: {', '.join(PYTHONS)}.",)


def _combination_problems(row: Row, accel: Accelerator, base: str) -> tuple[str, ...]:
    problems = []
    available = SUPPORTED_ARCHES.get(row.arch)
    if available is not None and accel.name not in available:
        problems.append(
            f"{accel.name} does not exist for {row.arch}: neither its toolkit nor torch is "
            f"published there. For {row.arch} there are {', '.join(available)}."
        )
    if accel.kind == "rocm" and base.startswith("manylinux"):
        problems.append(
            f"{accel.name} cannot be built on {base}: AMD publishes its toolkit for Ubuntu alone. "
            "Build it on ubuntu24.04 or ubuntu22.04, or take an accelerator of CUDA."
        )
    elif image_name(accel.name, base) is None:
        problems.append(
            f"There is no image of {accel.name} on {base}. Build it on manylinux_2_28, or take a "
            "newer accelerator."
        )
    return tuple(problems)


def _gpu_arch_problems(row: Row, accel: Accelerator) -> tuple[str, ...]:
    if accel.kind == "rocm":
        return ()
    if accel.kind == "cpu":
        return (
            (
                f"`cuda_arch` is {' '.join(row.cuda_arch)}, but `accel` is cpu: there is no GPU "
                "code. Leave it empty.",
            )
            if row.cuda_arch
            else ()
        )
    if not row.cuda_arch:
        usual = DEFAULT_GPU_ARCHS.get((row.arch, accel.name), ("8.0", "9.0"))
        return (
            f"`cuda_arch` is empty, but {accel.name} compiles for GPUs. Name their capabilities, "
            f"for instance {json.dumps(usual)}.",
        )
    problems = []
    for gpu_arch in dict.fromkeys(row.cuda_arch):
        if row.cuda_arch.count(gpu_arch) > 1:
            problems.append(
                f"`cuda_arch` names {gpu_arch} {row.cuda_arch.count(gpu_arch)} times. Once is "
                "enough."
            )
        problem = _capability_problem(gpu_arch) or nvcc_problem(accel.name, gpu_arch)
        if problem:
            problems.append(problem)
    return tuple(problems)


def _capability_problem(gpu_arch: str) -> str | None:
    if is_capability(gpu_arch) and normalize_arch(gpu_arch) == gpu_arch:
        return None
    number = re.fullmatch(r"(?:sm_?|compute_?)?(\d{1,2}?)\.?(\d)[af]?(?:\+PTX)?", gpu_arch)
    hint = f" Did you mean '{number.group(1)}.{number.group(2)}'?" if number else ""
    return (
        f"`cuda_arch` names {gpu_arch!r}, which is no GPU capability.{hint} It is written like "
        "'9.0'; whether PTX is added, the package's `gpu_arch_rule` decides."
    )


def _did_you_mean(written: str, known: tuple[str, ...], others: dict[str, str]) -> str:
    other = others.get(written) or others.get(written.lower())
    close = [other] if other else difflib.get_close_matches(written.lower(), known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
