"""A wheelhouse as it is published: proven, told apart from others, and given its date.

Every kind of index has releases of a row, named by a date. What was published already is known by
its `identity`, whatever its date.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from cuda_wheels.audit.wheelhouse import (
    MANIFEST,
    SUMS,
    TAGS,
    WheelhouseError,
    load,
    parse_tags,
    problems,
)
from cuda_wheels.sandbox.program import ProgramError

_DATE = re.compile(r"\d{4}\.\d{2}\.\d{2}")


def today() -> str:
    """In UTC, as releases are named: `2026.11.30`."""
    return f"{datetime.now(UTC):%Y.%m.%d}"


def require_honest(house: Path, row: str, date: str, where: str) -> None:
    """Raises ProgramError, with every fault, for what must not be published to `where`."""
    found = list(faults(house, row))
    if not _DATE.fullmatch(date):
        found.append(f"The date {date!r} is not written like 2026.11.30.")
    if found:
        raise ProgramError(
            f"{row} was not published to {where}:\n"
            + "\n".join(f"* {problem}" for problem in found)
            + "\nPackage the wheelhouse again and publish that."
        )


def faults(house: Path, row: str) -> tuple[str, ...]:
    """Why a folder is no whole and honest wheelhouse of a row, a sentence a fault."""
    found = list(problems(house))
    try:
        tags = parse_tags(load(house / TAGS))
        failed = [str(one["package"]) for one in load(house / MANIFEST).get("failed", ())]
    except WheelhouseError:
        return tuple(found)
    except (AttributeError, KeyError, TypeError) as error:
        return (*found, f"{MANIFEST} does not say what failed: {error!r}.")
    if tags.name != row:
        found.append(f"It is to be published as {row}, but its tags are those of {tags.name}.")
    if failed:
        found.append(f"It is incomplete, {', '.join(failed)} failed.")
    return tuple(found)


def read_sums(house: Path) -> dict[str, str]:
    """Path -> sha256, of SHA256SUMS."""
    lines = (house / SUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def identity(house: Path) -> str:
    """What tells two wheelhouses of a row apart: their files, whatever their dates."""
    return identity_of((house / SUMS).read_text(), (house / MANIFEST).read_text())


def identity_of(sums: str, manifest: str) -> str:
    """The same, of the texts of SHA256SUMS and of the manifest."""
    digests = {name: digest for digest, name in (line.split("  ", 1) for line in sums.splitlines())}
    document = json.loads(manifest)
    document.pop("date", None)
    digests[MANIFEST] = json.dumps(document, sort_keys=True)
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def free_name(date: str, taken: Iterable[str]) -> str:
    """The date, or the date and a number where another release has it already."""
    names = set(taken)
    name, number = date, 0
    while name in names:
        number += 1
        name = f"{date}.{number}"
    return name


def stamp(release: Path, date: str) -> None:
    """Put the release's date into its manifest, and the manifest's hash into SHA256SUMS."""
    manifest = json.loads((release / MANIFEST).read_text())
    manifest["date"] = date
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    sums = read_sums(release)
    replace(release / MANIFEST, text)
    sums[MANIFEST] = hashlib.sha256(text.encode()).hexdigest()
    replace(release / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def replace(path: Path, text: str) -> None:
    """Write a file that is seen whole or as it was."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".new-", delete=False, encoding="utf-8"
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
            os.rename(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
