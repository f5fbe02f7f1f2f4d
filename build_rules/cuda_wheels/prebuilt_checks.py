"""Whether an upstream wheel may stand in for a compiled one; every reason against it is one line.

What its bytes say, `wheel_checks` compares. Here is what its name claims, and what concerns the
wheels that it is used together with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pants.engine.addresses import Address

from cuda_wheels.sources import PrebuiltWheel
from cuda_wheels.tables.accelerators import MACHINES, find_accelerator
from cuda_wheels.tables.names import canonical_name
from cuda_wheels.tables.rows import Row
from cuda_wheels.wheel_facts import WheelFacts

NOT_NAMED = "it has no `prebuilt`."

# Local versions that name torch and accelerator. `pt29cu130` is PyG's: its build workflow drops the
# last number of torch's version and the dots, so `pt210` is 2.10. The other is what the repair
# step adds.
_PYG = re.compile(r"pt(\d)(\d+)(cpu|cu\d+)")
_OURS = re.compile(r"(cpu|cu\d+)\.torch(\d+\.\d+\.\d+)(?:\..*)?")

# Name and version specifier of a requirement in METADATA. `packaging.requirements` would do, but
# the import of the one that Pants has warns its users of its own parser.
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()@]*)\)?\s*(?:;.*)?")


def named_torch(version: str) -> tuple[str, str] | None:
    """The torch release, of two numbers or three, and the accelerator that a version names."""
    local = Version(version).local or ""
    pyg, ours = _PYG.fullmatch(local), _OURS.fullmatch(local)
    if pyg:
        return f"{pyg[1]}.{pyg[2]}", pyg[3]
    return (ours[2], ours[1]) if ours else None


def torch_reasons(prebuilt: PrebuiltWheel, row: Row) -> tuple[str, ...]:
    """Why a wheel that links torch does not link the row's; `row.torch` is None if it links none.

    Two patch releases of torch have one C++ interface, two builds of it have not: the accelerator
    is that of the torch wheel.
    """
    if row.torch is None:
        return ()
    accel = find_accelerator(row.accel)
    wanted = f"torch {row.torch} of {accel.torch_index if accel else row.accel}"
    named = named_torch(prebuilt.version)
    if named is None:
        return (
            f"declared {wanted}, but {prebuilt.version} does not say which torch it was built for "
            "(as `+pt29cu130` does).",
        )
    torch, built_for = named
    fits = row.torch == torch or (torch.count(".") == 1 and row.torch.startswith(f"{torch}."))
    if fits and wanted.endswith(f" {built_for}"):
        return ()
    return (f"declared {wanted}, found torch {torch} of {built_for} in {prebuilt.version}.",)


def tag_reasons(filename: str, row: Row) -> tuple[str, ...]:
    """Why the platform tags of a wheel's file name are not those of the row's machine.

    The repair step gives it others, so a wrong one would be seen no more.
    """
    machine = MACHINES.get(row.arch, row.arch)
    tags = filename.removesuffix(".whl").rsplit("-", 1)[-1].split(".")
    wrong = [tag for tag in tags if tag != "any" and not tag.endswith(f"_{machine}")]
    if not wrong:
        return ()
    return (f"{filename}: declared arch {row.arch} ({machine}), found the tag {'.'.join(wrong)}.",)


def requirement_reasons(wheel: WheelFacts, others: Iterable[WheelFacts]) -> tuple[str, ...]:
    """Which of its own requirements the prebuilts that it is taken together with do not meet."""
    versions = {canonical_name(other.name): other for other in others}
    reasons = []
    for text in wheel.requires_dist:
        requirement = _REQUIREMENT.fullmatch(text)
        found = versions.get(canonical_name(requirement[1])) if requirement else None
        if requirement is None or found is None:
            continue
        if not _accepts(requirement[2], found.version):
            reasons.append(
                f"{wheel.name} {wheel.version} requires {text}, found {found.version} in "
                f"{found.filename}."
            )
    return tuple(reasons)


def _accepts(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def as_reasons(message: str) -> tuple[str, ...]:
    """What an inspection found, a line a finding, without the advice, which is for a compiled wheel."""
    return tuple(line.split(" Usual cause:")[0] for line in message.splitlines() if line.strip())


def as_reason(message: str) -> str:
    """What a program said, as one line, without its ways out, which are for a compiled wheel."""
    lines = (line.strip().rstrip(".") for line in message.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith("Ways out:")) + "."


def group_of(wheel: Address, requires: Mapping[Address, Sequence[Address]]) -> tuple[Address, ...]:
    """All wheels that share a process with `wheel`: that are built with it, or it with them.

    `requires` has what each wheel needs while it is compiled.
    """
    neighbours: dict[Address, set[Address]] = {}
    for one, needed in requires.items():
        for other in needed:
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
    found, waiting = {wheel}, [wheel]
    while waiting:
        new = neighbours.get(waiting.pop(), set()) - found
        found |= new
        waiting += sorted(new)
    return tuple(sorted(found))


def group_reasons(wheel: Address, reasons: Mapping[Address, tuple[str, ...]]) -> tuple[str, ...]:
    """Why a prebuilt does not stand in for `wheel`, one of a group; empty if it does.

    `reasons` has, for each of the group, what its own prebuilt lacks. C++ classes that two wheels
    share are found at run time only if one compiler made both: all of a group or none.
    """
    return (
        *reasons[wheel],
        *(
            f"{other} is compiled: {own[0]} Wheels that are built with one another come from one "
            "compiler."
            for other, own in sorted(reasons.items())
            if other != wheel and own
        ),
    )
