"""The matrix as people and programs read it: a table, JSON, and the matrix of a CI.

What becomes of a wheel is decided elsewhere (`rules/status.py`); here it is arranged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuda_wheels.tables.accelerators import ACCELERATORS
from cuda_wheels.tables.names import canonical_name
from cuda_wheels.tables.rows import Row, version_key

BUILDABLE = "buildable"
# Status -> how a table's cell shows it.
MARKS: dict[str, str] = {BUILDABLE: "+", "skipped": "s", "pending": "p", "refused": "x"}
NO_TARGET = "."

# GitHub's runners by our name of the architecture.
RUNNERS: dict[str, str] = {"amd64": "ubuntu-24.04", "arm64": "ubuntu-24.04-arm"}
# What GitHub accepts as one matrix.
GITHUB_LIMIT = 256


@dataclass(frozen=True)
class MatrixWheel:
    """One wheel of the matrix: what it is, and what becomes of it. `timeout` is in seconds."""

    address: str
    name: str
    package: str
    version: str
    row: Row
    environment: str
    status: str
    reasons: tuple[str, ...]
    timeout: int
    memory_per_job_gb: float
    native: bool
    cubins: tuple[str, ...]
    ptx: tuple[str, ...]
    build_requires: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The wheel as JSON; the keys are documented in docs/matrix.md."""
        return {
            "address": self.address,
            "package": self.package,
            "version": self.version,
            "arch": self.row.arch,
            "accel": self.row.accel,
            "torch": self.row.torch,
            "python": self.row.python,
            "cuda_arch": list(self.row.cuda_arch),
            "cubins": list(self.cubins),
            "ptx": list(self.ptx),
            "environment": self.environment,
            "lock": self.row.lock_path,
            "status": self.status,
            "reasons": list(self.reasons),
            "build_requires": list(self.build_requires),
            "native": self.native,
            "memory_per_job_gb": self.memory_per_job_gb,
            "timeout": self.timeout,
        }


@dataclass(frozen=True)
class MatrixRow:
    """One line of the matrix, with the wheels that serve it, by package."""

    name: str
    row: Row
    wheels: tuple[MatrixWheel, ...]

    def of(self, package: str) -> tuple[MatrixWheel, ...]:
        """The wheels of one package; several only where two targets are for the same."""
        return tuple(wheel for wheel in self.wheels if wheel.package == package)


# --------------------------------------------------------------------------------------------
# Selection
# --------------------------------------------------------------------------------------------


class MatrixSelectionError(ValueError):
    """A filter names what is not there, or leaves nothing; the message says what there is."""


def words(values: Iterable[str]) -> tuple[str, ...]:
    """The names in an option's values, each of which may hold several: `amd64,arm64`."""
    return tuple(
        dict.fromkeys(word for value in values for word in re.split(r"[\s,]+", value) if word)
    )


def select(
    wheels: Sequence[MatrixWheel],
    *,
    packages: Sequence[str] = (),
    archs: Sequence[str] = (),
    accels: Sequence[str] = (),
) -> tuple[MatrixWheel, ...]:
    """The wheels that every filter names; a filter without names keeps all.

    Raises MatrixSelectionError for names that no wheel has, all of them at once, and where nothing
    is left.
    """
    filters = (
        (
            "package",
            tuple(map(canonical_name, packages)),
            lambda wheel: canonical_name(wheel.package),
        ),
        ("arch", tuple(archs), lambda wheel: wheel.row.arch),
        ("accel", tuple(accels), lambda wheel: wheel.row.accel),
    )
    problems = [
        problem
        for option, names, key in filters
        for problem in _unknown_names(option, names, tuple(map(key, wheels)))
    ]
    if problems:
        raise MatrixSelectionError("\n".join(problems))
    left = tuple(
        wheel
        for wheel in wheels
        if all(not names or key(wheel) in names for _, names, key in filters)
    )
    if not left:
        wanted = " ".join(f"--{option}={','.join(names)}" for option, names, _ in filters if names)
        raise MatrixSelectionError(
            f"No wheel is left: each name is known, but no wheel has all of {wanted}. Take one out."
        )
    return left


def _unknown_names(option: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    there = sorted(set(known))
    problems = []
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name.lower(), there, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            problems.append(
                f"`--{option}` names {name!r}, which no wheel of the selection has.{hint} There "
                f"are: {', '.join(there)}."
            )
    return problems


# --------------------------------------------------------------------------------------------
# Rows
# --------------------------------------------------------------------------------------------

_Key = tuple  # (arch, accel, torch, python)


def _key(row: Row) -> _Key:
    return (row.arch, row.accel, row.torch, row.python)


def _order(row: Row) -> tuple[Any, ...]:
    names = [accel.name for accel in ACCELERATORS]
    place = names.index(row.accel) if row.accel in names else len(names)
    return (row.arch, place, row.accel, version_key(row.torch or ""), version_key(row.python))


def matrix_rows(wheels: Sequence[MatrixWheel]) -> tuple[MatrixRow, ...]:
    """The lines of the matrix in order.

    A wheel that links no torch serves the rows of every torch. It has a line of its own only where
    there is none.
    """
    by_key: dict[_Key, list[MatrixWheel]] = {}
    for wheel in wheels:
        by_key.setdefault(_key(wheel.row), []).append(wheel)
    rows = []
    for (arch, accel, torch, python), own in by_key.items():
        shared = by_key.get((arch, accel, None, python), [])
        if torch is None:
            if any(key[0::3] == (arch, python) and key[1] == accel and key[2] for key in by_key):
                continue
            shared = []
        names = {wheel.name for wheel in own}
        name = names.pop() if len(names) == 1 else own[0].row.variant
        everyone = sorted([*own, *shared], key=lambda wheel: (wheel.package, wheel.address))
        rows.append(MatrixRow(name, own[0].row, tuple(everyone)))
    return tuple(sorted(rows, key=lambda line: (_order(line.row), line.name)))


def packages_of(wheels: Iterable[MatrixWheel]) -> tuple[str, ...]:
    """The names of the packages, each once, in order."""
    return tuple(sorted({wheel.package for wheel in wheels}))


# --------------------------------------------------------------------------------------------
# Table
# --------------------------------------------------------------------------------------------


def format_table(wheels: Sequence[MatrixWheel]) -> str:
    """A line a row, a column a package, and below them the reasons, equal ones once."""
    rows, packages = matrix_rows(wheels), packages_of(wheels)
    width = max(len(line.name) for line in rows)
    lines = [
        f"{'':{width}}  {'|  ' * place}{package}".rstrip() for place, package in enumerate(packages)
    ]
    for line in rows:
        cells = ("".join(MARKS[wheel.status] for wheel in line.of(package)) for package in packages)
        lines.append(f"{line.name:{width}}  {'  '.join(cell or NO_TARGET for cell in cells)}")
    return "\n".join([*lines, "", _legend(wheels, rows, packages), *_reason_lines(wheels)])


def _legend(
    wheels: Sequence[MatrixWheel], rows: Sequence[MatrixRow], packages: Sequence[str]
) -> str:
    counted = {
        status: sum(wheel.status == status for wheel in wheels)
        for status in MARKS
        if any(wheel.status == status for wheel in wheels)
    }
    parts = [f"{MARKS[status]} {count} {status}" for status, count in counted.items()]
    absent = sum(not line.of(package) for line in rows for package in packages)
    if absent:
        parts.append(f"{NO_TARGET} {absent} without a target")
    return "   ".join(parts)


def _reason_lines(wheels: Sequence[MatrixWheel]) -> list[str]:
    lines = []
    for status in MARKS:
        groups = grouped_reasons(wheel for wheel in wheels if wheel.status == status)
        if groups:
            lines += ["", f"{status}:"]
        for reason, members in groups.items():
            lines += [f"* {reason}", *(f"    {text}" for text in _members(members))]
    return lines


def grouped_reasons(wheels: Iterable[MatrixWheel]) -> dict[str, tuple[MatrixWheel, ...]]:
    """Each reason once, with the wheels that have it.

    Reasons that differ in their wheel's own address alone are one, in the words of the first.
    """
    groups: dict[str, list[MatrixWheel]] = {}
    first: dict[str, str] = {}
    for wheel in wheels:
        for reason in wheel.reasons:
            common = re.sub(rf"{re.escape(wheel.address)}(?![\w.-])", "", reason)
            first.setdefault(common, reason)
            groups.setdefault(common, []).append(wheel)
    return {first[common]: tuple(members) for common, members in groups.items()}


def _members(wheels: Iterable[MatrixWheel]) -> list[str]:
    """`torch-cluster, torch-scatter: amd64-cu129, arm64-cu129`"""
    rows: dict[str, list[str]] = {}
    for wheel in wheels:
        rows.setdefault(wheel.package, []).append(wheel.name)
    packages: dict[str, list[str]] = {}
    for package, names in sorted(rows.items()):
        packages.setdefault(", ".join(dict.fromkeys(names)), []).append(package)
    return [f"{', '.join(names)}: {targets}" for targets, names in packages.items()]


# --------------------------------------------------------------------------------------------
# JSON
# --------------------------------------------------------------------------------------------


def to_json(wheels: Sequence[MatrixWheel], host: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything; the keys are documented in docs/matrix.md."""
    rows, packages = matrix_rows(wheels), packages_of(wheels)
    return {
        "host": dict(host) if host else None,
        "rows": [
            {
                "name": line.name,
                "arch": line.row.arch,
                "accel": line.row.accel,
                "torch": line.row.torch,
                "python": line.row.python,
                "cuda_arch": list(line.row.cuda_arch),
                "wheels": {
                    package: [wheel.address for wheel in line.of(package)] for package in packages
                },
            }
            for line in rows
        ],
        "wheels": [
            wheel.to_json()
            for wheel in sorted(wheels, key=lambda wheel: (_order(wheel.row), wheel.address))
        ],
    }


# --------------------------------------------------------------------------------------------
# GitHub
# --------------------------------------------------------------------------------------------


def to_github(wheels: Sequence[MatrixWheel], *, by_wheel: bool = False) -> dict[str, Any]:
    """The `include` list of a CI matrix for what is buildable: an entry a row, or a wheel.

    The longest comes first, by the packages' own `timeout`, so that it does not start last.
    """
    buildable = [wheel for wheel in wheels if wheel.status == BUILDABLE]
    if by_wheel:
        entries = [
            _entry(f"{wheel.package}-{wheel.name}", wheel.row, (wheel,)) for wheel in buildable
        ]
    else:
        entries = [_entry(line.name, line.row, line.wheels) for line in matrix_rows(buildable)]
    return {"include": sorted(entries, key=lambda entry: (-entry["timeout"], entry["name"]))}


def _entry(name: str, row: Row, wheels: Sequence[MatrixWheel]) -> dict[str, Any]:
    longest_first = sorted(wheels, key=lambda wheel: (-wheel.timeout, wheel.address))
    seconds = sum(wheel.timeout for wheel in wheels)
    return {
        "name": name,
        "arch": row.arch,
        "accel": row.accel,
        "torch": row.torch,
        "python": row.python,
        "environment": longest_first[0].environment,
        "targets": [wheel.address for wheel in longest_first],
        "runner": RUNNERS[row.arch],
        "timeout": -(-seconds // 60),
    }
