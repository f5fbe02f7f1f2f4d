"""Which symbol versions of a library are newer than a platform has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cuda_wheels.tables.glibc import POLICIES, Policy, exceeds
from cuda_wheels.wheel_facts import LibraryFacts, version_number

_PEP_600 = re.compile(r"manylinux_(\d+)_(\d+)_.+")
# The names that platforms had before PEP 600.
_LEGACY_PLATFORMS = {
    "manylinux1": "manylinux_2_5",
    "manylinux2010": "manylinux_2_12",
    "manylinux2014": "manylinux_2_17",
}


def claimed_glibc(platform_tags: Sequence[str]) -> tuple[int, ...] | None:
    """The oldest glibc that platform tags promise to work with; None if they promise none."""
    claimed = []
    for tag in platform_tags:
        for legacy, name in _LEGACY_PLATFORMS.items():
            if tag.startswith(f"{legacy}_"):
                tag = name + tag[len(legacy) :]
        match = _PEP_600.fullmatch(tag)
        if match:
            claimed.append((int(match[1]), int(match[2])))
    return min(claimed, default=None)


def needs_beyond(library: LibraryFacts, glibc: tuple[int, ...]) -> tuple[str, ...]:
    """What a library asks for that the platform with this glibc lacks, a sentence a version."""
    policy = _policy_of(glibc)
    return tuple(
        (
            f"{library.path} needs {need.name} for {some(need.symbols, 8)}"
            if need.symbols
            else f"{library.path} needs {need.name}"
        )
        for need in library.version_needs
        if exceeds(need.name, policy)
    )


def _policy_of(glibc: tuple[int, ...]) -> Policy:
    """The policy of a glibc. One between two policies has the older one's libstdc++."""
    known = [policy for policy in POLICIES if version_number(policy.glibc) <= glibc]
    nearest = known[-1] if known else POLICIES[0]
    return replace(nearest, glibc=".".join(map(str, glibc)))


def some(items: Sequence[str], limit: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    shown = ", ".join(items[:limit])
    return f"{shown} and {len(items) - limit} more" if len(items) > limit else shown
