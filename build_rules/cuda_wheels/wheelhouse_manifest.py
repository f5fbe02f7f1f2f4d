"""The documents of a wheelhouse, from the facts of its wheels: `manifest.json` and `tags.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cuda_wheels.tables.rows import Row
from cuda_wheels.tables.verified import NativeWheel, verification
from cuda_wheels.wheel_facts import WheelFacts, version_number
from cuda_wheels.wheel_symbols import claimed_glibc

SCHEMA = 1


@dataclass(frozen=True)
class HouseWheel:
    """A finished wheel of a wheelhouse.

    `package` and `version` are its target's, `facts` what was measured in it, and `document` the
    rest of its `.facts.json`: how it came to be. `native`: it has device code.
    """

    address: str
    package: str
    version: str
    row: Row
    native: bool
    build_requires: tuple[str, ...]
    facts: WheelFacts
    document: dict[str, Any]

    @property
    def prebuilt(self) -> bool:
        """Whether it is upstream's."""
        return self.document.get("origin") == "prebuilt"

    @property
    def identity(self) -> str | None:
        """The toolchain that compiled it; None for upstream's."""
        toolchain = self.document.get("toolchain") or {}
        return toolchain.get("identity")

    @property
    def gpu_archs(self) -> tuple[str, ...]:
        """The capabilities that it was made for."""
        return tuple(self.document.get("gpu_archs", ()))


def folder(row: Row) -> str:
    """Where a wheelhouse lies: `linux-amd64/cu130/torch2.11.0-cp312`."""
    return f"linux-{row.arch}/{row.accel}/torch{row.torch}-{row.python_tag}"


def served_archs(row: Row, wheels: Iterable[HouseWheel]) -> tuple[str, ...]:
    """The capabilities of a row that all wheels with device code were made for."""
    native = [wheel for wheel in wheels if wheel.native]
    return tuple(arch for arch in row.cuda_arch if all(arch in one.gpu_archs for one in native))


def row_tags(row: Row, wheels: Iterable[HouseWheel]) -> dict[str, str]:
    """The six tags that a consumer selects by."""
    return {
        "os": "linux",
        "arch": row.arch,
        "accel": row.accel,
        "torch": row.torch or "",
        "python": row.python,
        "cuda_arch": " ".join(served_archs(row, wheels)),
    }


def tags_document(row: Row, wheels: Sequence[HouseWheel]) -> dict[str, Any]:
    """`tags.json`: the tags, and of each GPU capability whether all wheels ran there."""
    native = [
        NativeWheel(wheel.package, wheel.version, wheel.row.variant)
        for wheel in wheels
        if wheel.native
    ]
    return {
        **row_tags(row, wheels),
        "verified": verification(served_archs(row, wheels), native),
    }


def manifest_document(
    row: Row,
    wheels: Sequence[HouseWheel],
    skipped: Iterable[tuple[str, str]] = (),
    failed: Iterable[tuple[str, str, str]] = (),
) -> dict[str, Any]:
    """`manifest.json`. `skipped` has package and reason, `failed` package, stage and message."""
    floors = [
        floor for floor in (claimed_glibc(one.facts.platform_tags) for one in wheels) if floor
    ]
    return {
        "schema": SCHEMA,
        "tags": row_tags(row, wheels),
        "glibc": _dotted(max(floors, default=None)),
        "local": any((one.document.get("toolchain") or {}).get("local") for one in wheels),
        "wheels": sorted(map(_wheel, wheels), key=lambda wheel: str(wheel["file"])),
        "skipped": [{"package": package, "reason": reason} for package, reason in sorted(skipped)],
        "failed": [
            {"package": package, "stage": stage, "message": _first_line(message)}
            for package, stage, message in sorted(failed)
        ],
    }


def _wheel(wheel: HouseWheel) -> dict[str, Any]:
    facts, document = wheel.facts, wheel.document
    compiled = document.get("compile") or {}
    return {
        "file": facts.filename,
        "name": facts.name,
        "version": facts.version,
        "sha256": facts.sha256,
        "size": facts.size,
        "origin": document["origin"],
        "source": document["source"],
        "patches": document.get("patches", []),
        "pin_relaxations": document.get("pin_relaxations", []),
        "lock": document.get("lock"),
        "lock_sha256": document.get("lock_sha256"),
        # The number of jobs and the hits of the compiler cache say nothing about the wheel.
        "toolchain": (
            None
            if wheel.prebuilt
            else {
                "identity": wheel.identity,
                **{key: compiled.get(key) for key in ("gcc", "nvcc", "network", "build_path")},
            }
        ),
        "env": document.get("env", {}),
        "gpu_archs": {
            "asked": list(wheel.gpu_archs),
            "cubins": list(facts.cubins),
            "ptx": list(facts.ptx),
        },
        "platform": ".".join(facts.platform_tags),
        "glibc": measured_glibc(facts),
    }


def measured_glibc(facts: WheelFacts) -> str | None:
    """The glibc that a wheel's symbols ask for; None for one without libraries."""
    policy = claimed_glibc((facts.symbol_policy or facts.policy,))
    if policy:
        return _dotted(policy)
    needs = [need for need in (one.newest("GLIBC") for one in facts.libraries) if need]
    return max((need.version for need in needs), key=version_number, default=None)


def _dotted(version: tuple[int, ...] | None) -> str | None:
    return ".".join(map(str, version)) if version else None


def _first_line(message: str) -> str:
    """What failed, without the log of it, which differs from machine to machine."""
    return next((line.strip("* ") for line in message.splitlines() if line.strip("* ")), "")
