"""Whether a wheelhouse fits a host, why not, and which of several is taken. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable

from cuda_wheels.audit.wheelhouse import CAPABILITY_FLOORS, Summary
from cuda_wheels.tables.accelerators import cuda_major, cuda_version, driver_floor, find_accelerator
from cuda_wheels.tables.rows import version_key
from verify.host import Host

# Here spconv's implicit convolution ends in an illegal memory access; its algorithm Native does not.
NATIVE_CAPABILITIES = ("10.3", "12.1")

DISK_NEEDED_GB = 8.0


@dataclass(frozen=True)
class Fit:
    """`reasons` against a wheelhouse, each with what must change; `conditions` on its use."""

    summary: Summary
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class Choice:
    """`chosen` is None where none fits, and where `tied` ones are equally good."""

    chosen: Summary | None
    tied: tuple[Summary, ...]
    fits: tuple[Fit, ...]


def select(summaries: Iterable[Summary], host: Host) -> Choice:
    """Of those that fit: the newest accelerator, then the newest torch, then the newest date."""
    fits = tuple(fit(summary, host) for summary in summaries)
    fitting = [one.summary for one in fits if one.fits]
    if not fitting:
        return Choice(None, (), fits)
    best = max(map(_rank, fitting))
    winners = tuple(summary for summary in fitting if _rank(summary) == best)
    return Choice(winners[0], (), fits) if len(winners) == 1 else Choice(None, winners, fits)


def detailed(choice: Choice, host: Host, describe: Callable[[Summary], Summary]) -> Choice:
    """The same choice, with what `describe` knows of the chosen one beyond what lists it."""
    if choice.chosen is None:
        return choice
    full = describe(choice.chosen)
    fits = tuple(fit(full, host) if one.summary == choice.chosen else one for one in choice.fits)
    return Choice(full, choice.tied, fits)


def _rank(summary: Summary) -> tuple[tuple[int, ...], ...]:
    cuda = cuda_version(summary.tags.accel) or "0"
    # 2026.11.30, and 2026.11.30.1 for a second release of that day.
    date = tuple(int(number) for number in re.findall(r"\d+", summary.date or ""))
    return version_key(cuda), version_key(summary.tags.torch), date


def fit(summary: Summary, host: Host) -> Fit:
    """Every reason against a wheelhouse at once."""
    tags = summary.tags
    reasons = []
    if tags.os != host.system.lower():
        reasons.append(f"It is for {tags.os}, this is {host.system}. There is no wheel for that.")
    if tags.arch != host.arch:
        reasons.append(
            f"It is for {tags.arch}, this machine is {host.machine}. Take one for "
            f"{host.arch or host.machine}."
        )
    if tags.python != host.python:
        reasons.append(
            f"It is for Python {tags.python}, here it is {host.python}. Name one with "
            f"`--python python{tags.python}`."
        )
    reasons += _glibc_reasons(summary, host)
    reasons += _driver_reasons(summary, host)
    reasons += _gpu_reasons(summary, host)
    return Fit(summary, tuple(reasons), conditions(summary, host))


def _glibc_reasons(summary: Summary, host: Host) -> list[str]:
    if summary.glibc is None:
        return []
    if host.glibc is None:
        return [
            f"It needs glibc {summary.glibc} or newer, and this system has another C library. Use "
            "a distribution with glibc."
        ]
    if version_key(host.glibc) < version_key(summary.glibc):
        return [
            f"It needs glibc {summary.glibc} or newer, this system has {host.glibc}. Use a newer "
            "distribution, or a wheelhouse for an older one."
        ]
    return []


def _driver_reasons(summary: Summary, host: Host) -> list[str]:
    accel = summary.tags.accel
    found = find_accelerator(accel)
    if found is None:
        return [f"It is for {accel}, which this tool does not know. Take a newer one of the tool."]
    if found.kind == "rocm":
        return [f"It is for {accel}; this tool knows CUDA and the CPU alone."]
    needed = cuda_version(accel)
    if needed is None:
        return []
    floor = driver_floor(accel)
    if host.driver is None and host.cuda is None:
        return [
            f"It needs an NVIDIA driver for CUDA {needed}, and none answers here. Install driver "
            f"{floor} or newer, until `nvidia-smi` works."
        ]
    if host.cuda is None:
        return [
            f"It needs CUDA {needed}, and the driver {host.driver} does not tell its CUDA. "
            "Make libcuda.so visible here: `nvidia-smi` then names a CUDA version."
        ]
    if version_key(host.cuda) >= version_key(needed):
        return []
    reason = (
        f"It needs CUDA {needed}, the driver {host.driver or 'here'} runs CUDA up to {host.cuda}. "
    )
    if cuda_major(accel) == version_key(host.cuda)[0]:
        return [
            reason + "Install a newer driver, whose `nvidia-smi` names that CUDA; within one major "
            "release an older one runs machine code, but compiles no PTX."
        ]
    return [reason + f"Install driver {floor} or newer, or take a wheelhouse for an older CUDA."]


def _gpu_reasons(summary: Summary, host: Host) -> list[str]:
    tags = summary.tags
    if any(gpu.capability is None for gpu in host.gpus):
        return ["The driver does not tell every GPU's compute capability. Install a newer driver."]
    if not host.gpus:
        if cuda_version(tags.accel) is None:
            return []
        return [f"It is for GPUs ({' '.join(tags.cuda_arch)}), and none answers here."]
    lacking = [arch for arch in host.capabilities if arch not in tags.cuda_arch]
    if not lacking:
        return []
    named = " ".join(tags.cuda_arch) or "none"
    reason = f"Its cuda_arch names {named}, not {' and '.join(lacking)} of this host."
    if len(lacking) < len(host.capabilities):
        served = [arch for arch in host.capabilities if arch in tags.cuda_arch]
        return [
            f"{reason} Take one that names each GPU, or choose for some GPUs alone with `--gpu "
            f"{served[0]}`, and show programs only those (CUDA_VISIBLE_DEVICES)."
        ]
    return [f"{reason} Take one that names each GPU exactly."]


def conditions(summary: Summary, host: Host) -> tuple[str, ...]:
    """What to keep in mind where a wheelhouse is used on this host."""
    found = []
    packages = summary.packages
    native = [arch for arch in host.capabilities if arch in NATIVE_CAPABILITIES]
    if native and "spconv" in packages:
        found.append(
            f"On GPU {' and '.join(native)} spconv needs `ConvAlgo.Native` in every convolution: "
            "its default ends in an illegal memory access there."
        )
    for package, floor in CAPABILITY_FLOORS.items():
        low = [arch for arch in host.capabilities if version_key(arch) < version_key(floor)]
        if low and package in packages:
            found.append(
                f"{package} needs capability {floor}, GPU {' and '.join(low)} is below: it can be "
                "imported but not used. Decide by the capability, not by the import."
            )
    by_ptx = [arch for arch in host.capabilities if arch in summary.ptx_for]
    if by_ptx:
        found.append(
            f"GPU {' and '.join(by_ptx)} is served by PTX, which the driver compiles at first use: "
            "let CUDA_CACHE_PATH name a folder that can be written, so that it does so once."
        )
    statuses = dict(summary.verified)
    unverified = [
        arch
        for arch in host.capabilities
        if arch in summary.tags.cuda_arch and statuses.get(arch) != "runs"
    ]
    if unverified:
        found.append(
            f"Compiled for GPU {' and '.join(unverified)}, but nobody has run it there yet."
        )
    found += [f"Without {package}: {reason}" for package, reason in summary.skipped]
    return tuple(found)
