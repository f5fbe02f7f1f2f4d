"""Whether wheels go together: what no wheel by itself can show."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from cuda_wheels.tables.libraries import needed_problems
from cuda_wheels.tables.names import PIN, canonical_name
from cuda_wheels.tables.rows import Row
from cuda_wheels.wheelhouse_manifest import HouseWheel

# A requirement in METADATA that counts everywhere: one with a marker (`; extra == "x"`) is none.
# `packaging.requirements` would do, but the import of the one that Pants has warns its users.
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()@]*)\)?\s*")


def requirements_problems(path: str, content: str) -> tuple[str, ...]:
    """A sentence for each pin without a hash, and for a file with none at all."""
    pins = [one for one in re.split(r"^(?=\S)", content, flags=re.MULTILINE) if PIN.match(one)]
    if not pins:
        return (
            f"`requirements` names {path}, which pins nothing (`name==version --hash=...`). Lock "
            "it: `3rdparty/python/lock pypi`.",
        )
    bare = [one.split("==")[0] for one in pins if "--hash=sha256:" not in one]
    if not bare:
        return ()
    return (
        f"`requirements` names {path}, which has no hash for {', '.join(bare)}. Lock it again: "
        "`3rdparty/python/lock pypi`.",
    )


def row_mismatches(address: str, row: Row, house: Row) -> tuple[str, ...]:
    """A sentence if a wheel is of another row than its wheelhouse.

    A wheel without torch serves every torch.
    """
    found, declared = (
        {"arch": one.arch, "accel": one.accel, "python": one.python} for one in (row, house)
    )
    problems = []
    if found != declared or row.torch not in (None, house.torch):
        problems.append(
            f"`wheels` names {address}, which is for {row.variant}, but this wheelhouse is for "
            f"{house.variant}. Name that package's wheel for this row."
        )
    elif set(row.cuda_arch) != set(house.cuda_arch):
        problems.append(
            f"`wheels` names {address}, which promises the GPUs {' '.join(row.cuda_arch) or '-'}, "
            f"but this wheelhouse {' '.join(house.cuda_arch) or '-'}. A consumer selects by the "
            "latter: give both the same `cuda_arch`."
        )
    return tuple(problems)


def twins(packages: Mapping[str, str], field: str = "`wheels`") -> tuple[str, ...]:
    """A sentence for each distribution that several addresses have; `packages` is by address."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for address, name in packages.items():
        by_name[canonical_name(name)].append(address)
    return tuple(
        f"{field} has two wheels of {name}: {', '.join(sorted(addresses))}. An installer takes one "
        "of them, whichever it likes. Name one."
        for name, addresses in sorted(by_name.items())
        if len(addresses) > 1
    )


def set_problems(
    row: Row, wheels: Sequence[HouseWheel], pins: Mapping[str, str]
) -> tuple[str, ...]:
    """Everything that speaks against these finished wheels as one set, a sentence a fault."""
    return (
        *twins({wheel.address: wheel.facts.name for wheel in wheels}),
        *_other_cuda(row, wheels),
        *_toolchains(wheels),
        *_pinned_too(wheels, pins),
        *_unmet(row, wheels, pins),
        *_unlocked(row, wheels, pins),
    )


def _other_cuda(row: Row, wheels: Iterable[HouseWheel]) -> tuple[str, ...]:
    """Libraries of another CUDA line, in the words of the table that knows them."""
    return tuple(
        f"{wheel.address}: {library.path} in {wheel.facts.filename} {problem} Build it again, or "
        "take it out."
        for wheel in wheels
        for library in wheel.facts.libraries
        for problem in needed_problems(row.accel, library.needed)
    )


def _toolchains(wheels: Sequence[HouseWheel]) -> tuple[str, ...]:
    """Wheels that were compiled against each other share C++ classes: one compiler made both."""
    by_address = {wheel.address: wheel for wheel in wheels}
    problems = []
    for wheel in wheels:
        for needed in wheel.build_requires:
            other = by_address.get(needed)
            if other is None or other.identity == wheel.identity:
                continue
            made = [f"{one.address} by {_maker(one)}" for one in (wheel, other)]
            problems.append(
                f"{wheel.address} was compiled against {other.address}, but two toolchains made "
                f"them: {', '.join(made)}. C++ classes that they share are then found by neither. "
                "Build both with one."
            )
    return tuple(problems)


def _maker(wheel: HouseWheel) -> str:
    if wheel.prebuilt or not wheel.identity:
        return "upstream's"
    gcc = (wheel.document.get("compile") or {}).get("gcc")
    return f"gcc {gcc} ({wheel.identity[:12]})" if gcc else wheel.identity[:12]


def _pinned_too(wheels: Iterable[HouseWheel], pins: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{wheel.address} is {wheel.facts.name} {wheel.facts.version}, which `requirements` pins "
        f"too, as {pins[canonical_name(wheel.facts.name)]} of the package index. Take it out of "
        "one of them."
        for wheel in wheels
        if canonical_name(wheel.facts.name) in pins
    )


def _versions(row: Row, wheels: Iterable[HouseWheel], pins: Mapping[str, str]) -> dict[str, str]:
    """Normalized name -> version, of all that an environment has after the installation."""
    versions = {canonical_name(one.facts.name): one.facts.version for one in wheels}
    return {**pins, **versions, **({"torch": row.torch} if row.torch else {})}


def _unlocked(row: Row, wheels: Sequence[HouseWheel], pins: Mapping[str, str]) -> tuple[str, ...]:
    """Requirements that neither the lock nor a wheel has, where there is a lock."""
    found = _versions(row, wheels, pins)
    return tuple(
        f"{wheel.address} requires `{text}`, which neither `requirements` pins nor a wheel is: an "
        "installation would take whatever the package index has that day. Name it in the package's "
        "requirements.in and lock it: `3rdparty/python/lock pypi`."
        for wheel in wheels
        for text in wheel.facts.requires_dist
        for requirement in [_REQUIREMENT.fullmatch(text)]
        if pins and requirement and canonical_name(requirement[1]) not in found
    )


def _unmet(row: Row, wheels: Sequence[HouseWheel], pins: Mapping[str, str]) -> tuple[str, ...]:
    """Requirements that a wheel or a pin of the set has, in a version that does not do."""
    found = _versions(row, wheels, pins)
    problems = []
    for wheel in wheels:
        for text in wheel.facts.requires_dist:
            requirement = _REQUIREMENT.fullmatch(text)
            version = found.get(canonical_name(requirement[1])) if requirement else None
            if requirement is None or version is None or _accepts(requirement[2], version):
                continue
            problems.append(
                f"{wheel.address} requires `{text}`, but the wheelhouse has {requirement[1]} "
                f"{version}: pip refuses the two together. Take the version that it requires, or "
                "loosen the requirement with a patch (`Relaxes:`)."
            )
    return tuple(problems)


def _accepts(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False
