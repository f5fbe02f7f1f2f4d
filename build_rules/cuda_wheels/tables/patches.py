"""The header of a patch: why it is there and which rows it is for.

A patch file starts with such lines, before its first line that begins with `---`:

    Reason: CUDA 13 has no thrust::unary_function.
      A line that is indented goes on with the one above.
    CUDA: >=13.0
    Torch: >=2.9
    Source: where the change comes from
    Relaxes: cumm<0.8.0

`Relaxes` is the requirement of upstream's metadata that the patch loosens; manifests repeat it.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_FIELDS = ("Reason", "CUDA", "Torch", "Source", "Relaxes")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*([^\s].*)")
_LINE = re.compile(r"([A-Za-z][A-Za-z-]*):(?:\s+(.*))?")


@dataclass(frozen=True)
class PatchHeader:
    """`cuda` and `torch` are PEP 440 specifiers; None means every version, and none at all.

    `relaxes` is a requirement of upstream's that the patch loosens.
    """

    reason: str
    cuda: str | None = None
    torch: str | None = None
    source: str | None = None
    relaxes: str | None = None

    @property
    def ranges(self) -> str:
        """What the patch is limited to, for messages."""
        limits = [
            f"{name}: {value}"
            for name, value in (("CUDA", self.cuda), ("Torch", self.torch))
            if value is not None
        ]
        return ", ".join(limits) if limits else "for every row"


def parse_header(name: str, text: str) -> PatchHeader:
    """The header of the patch `name`; a ValueError names everything that is wrong with it."""
    fields, problems = _read(text)
    if not fields.get("Reason"):
        problems.append(
            "it has no `Reason:`. Say in its first lines, before the first `---`, why the patch "
            "is needed"
        )
    for key in ("CUDA", "Torch"):
        if key in fields:
            problems += _specifier_problems(key, fields[key])
    if "Relaxes" in fields:
        problems += _requirement_problems(fields["Relaxes"])
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}.")
    return PatchHeader(
        reason=fields["Reason"],
        cuda=fields.get("CUDA"),
        torch=fields.get("Torch"),
        source=fields.get("Source"),
        relaxes=fields.get("Relaxes"),
    )


def selects(header: PatchHeader, cuda_version: str | None, torch_version: str | None) -> bool:
    """Whether a patch is for a row of this CUDA and torch; None: the row has none."""
    return _contains(header.cuda, cuda_version) and _contains(header.torch, torch_version)


def _read(text: str) -> tuple[dict[str, str], list[str]]:
    """The fields of a header by their names as in _FIELDS, and what is wrong with their lines."""
    names = {field.lower(): field for field in _FIELDS}
    fields: dict[str, str] = {}
    problems: list[str] = []
    current: str | None = None
    for line in text.splitlines():
        if line.startswith("---"):
            break
        if line[:1].isspace() and line.strip() and current:
            fields[current] = f"{fields[current]} {line.strip()}".strip()
            continue
        current = None
        found = _LINE.fullmatch(line)
        if not found:
            continue
        written, value = found.group(1), (found.group(2) or "").strip()
        key = names.get(written.lower())
        if key is None:
            # Lines of a mail (`From:`, `Subject:`) are no concern of ours, misspelt fields are:
            # a range that is not read would put the patch everywhere.
            close = difflib.get_close_matches(written.lower(), names, n=1, cutoff=0.7)
            if close:
                problems.append(f"its line `{line}` is not known; write `{names[close[0]]}:`")
        elif key in fields:
            problems.append(f"it has two lines `{key}:`; write one")
        else:
            fields[key], current = value, key
    return fields, problems


def _specifier_problems(key: str, value: str) -> list[str]:
    example = ">=13.0" if key == "CUDA" else ">=2.9"
    try:
        # One by one: older releases of packaging take anything for a legacy SpecifierSet.
        for part in value.split(","):
            Specifier(part.strip())
        return []
    except InvalidSpecifier:
        pass
    return [f"`{key}: {value}` is no version range; write for instance `{key}: {example}`"]


def _requirement_problems(value: str) -> list[str]:
    found = _REQUIREMENT.fullmatch(value)
    try:
        for part in found[2].split(",") if found else ("",):
            Specifier(part.strip())
        return []
    except InvalidSpecifier:
        return [f"`Relaxes: {value}` is no requirement; write for instance `Relaxes: cumm<0.8.0`"]


def _contains(specifier: str | None, version: str | None) -> bool:
    if specifier is None:
        return True
    if version is None:
        return False
    try:
        public = Version(version).public
    except InvalidVersion:
        return False
    return SpecifierSet(specifier).contains(public, prereleases=True)
