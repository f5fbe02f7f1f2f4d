"""What ran on which GPU, as far as tags may say so: the rows of docs/verification.md as data.

An entry is added when its row is added there, and never before: "built" and "runs" are different
words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RUNS_WORD = "runs"
BUILT_WORD = "built"


@dataclass(frozen=True)
class NativeWheel:
    """A wheel with device code: its distribution, its version without a local part, and the
    variant of its row, `amd64-cu130-torch2.11.0-cp312`."""

    package: str
    version: str
    variant: str


@dataclass(frozen=True)
class VerifiedRun:
    """A wheel whose kernels gave the right results on a GPU of this capability."""

    wheel: NativeWheel
    gpu_arch: str


_H200 = "9.0"
_CU130 = "amd64-cu130-torch2.11.0-cp312"
_CU130_ANY_TORCH = "amd64-cu130-cp312"

VERIFIED_RUNS: tuple[VerifiedRun, ...] = (
    VerifiedRun(NativeWheel("cumm", "0.8.2", _CU130_ANY_TORCH), _H200),
    VerifiedRun(NativeWheel("spconv", "2.3.8", _CU130_ANY_TORCH), _H200),
    VerifiedRun(NativeWheel("torch-cluster", "1.6.3", _CU130), _H200),
    VerifiedRun(NativeWheel("torch-sparse", "0.6.18", _CU130), _H200),
    VerifiedRun(NativeWheel("torch-scatter", "2.1.2", _CU130), _H200),
    VerifiedRun(NativeWheel("vecadd", "1.0", _CU130), _H200),
)


def verification(
    gpu_archs: Iterable[str],
    wheels: Iterable[NativeWheel],
    runs: Iterable[VerifiedRun] = VERIFIED_RUNS,
) -> dict[str, str]:
    """GPU capability -> `runs` if every one of these wheels ran there, otherwise `built`.

    A set without device code ran nowhere.
    """
    known, needed = frozenset(runs), tuple(wheels)
    return {
        arch: (
            RUNS_WORD
            if needed and all(VerifiedRun(wheel, arch) in known for wheel in needed)
            else BUILT_WORD
        )
        for arch in gpu_archs
    }
