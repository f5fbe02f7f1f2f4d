"""Adds a wheelhouse to a static index: a folder that a web server or a file share gives out.

Request: `house` (the wheelhouse), `row` (its path in the index), `index` (an absolute path),
`date` (`2026.11.30`, or null for today in UTC), `dry_run`. A release is added as a whole under
`<row>/<date>` and never rewritten; a wheelhouse that is there already is not added again. Several
publishers may work at once: the tree changes only under a lock, by renames. `index.json` is made
from the tree each time, so what a killed publisher left undone the next one does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import program
from cuda_wheels.sandbox.program import ProgramError

MANIFEST = "manifest.json"
TAGS = "tags.json"
SUMS = "SHA256SUMS"
INDEX = "index.json"
SCHEMA = 1
_STAGING = ".staging-"
_DATE = re.compile(r"\d{4}\.\d{2}\.\d{2}(\.\d+)?")


def main(request: dict[str, Any]) -> None:
    """Publish, and say in a line what became of it."""
    program.require(request, "house", "row", "index")
    print(
        publish(
            Path(request["house"]),
            Path(request["index"]),
            request["row"],
            date=request.get("date") or f"{datetime.now(UTC):%Y.%m.%d}",
            dry_run=bool(request.get("dry_run")),
        )
    )


def publish(house: Path, index: Path, row: str, *, date: str, dry_run: bool = False) -> str:
    """Add the release; returns a sentence about it."""
    problems = faults(house)
    if not re.fullmatch(r"\d{4}\.\d{2}\.\d{2}", date):
        problems = (*problems, f"the date {date!r} is not written like 2026.11.30")
    if problems:
        raise ProgramError(
            f"{row} was not published to {index}:\n"
            + "\n".join(f"* {problem}." for problem in problems)
            + "\nPackage the wheelhouse again and publish that."
        )
    content = identity(house)
    if dry_run:
        there = released(index, row).get(content)
        return (
            f"{row} is in {index} as {there}: nothing would be done."
            if there
            else f"{row} would be added to {index} as {free_name(index / row, date)}."
        )
    index.mkdir(parents=True, exist_ok=True)
    with staged(index) as staging:
        shutil.copytree(house, staging / "release")
        with locked(index):
            there = released(index, row).get(content)
            name = there or free_name(index / row, date)
            if not there:
                stamp(staging / "release", name)
                flush(staging / "release")
                (index / row).mkdir(parents=True, exist_ok=True)
                os.rename(staging / "release", index / row / name)
            write_index(index)
    return f"{row} {'was in' if there else 'was added to'} {index} {'already ' if there else ''}as {name}."


# --- what is published -------------------------------------------------------------------------


def faults(house: Path) -> tuple[str, ...]:
    """Why a folder is no whole and honest wheelhouse, a clause a fault."""
    try:
        manifest = json.loads((house / MANIFEST).read_text())
        tags = json.loads((house / TAGS).read_text())
        sums = read_sums(house)
        wheels = {wheel["file"]: wheel["sha256"] for wheel in manifest["wheels"]}
        named = {key: tags.get(key) for key in manifest["tags"]}
        failed = [one["package"] for one in manifest["failed"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return (f"{house} is no wheelhouse: {error}",)
    found = {
        str(path.relative_to(house)): path
        for path in house.rglob("*")
        if path.is_file() and path != house / SUMS
    }
    problems = [f"{name} is in {SUMS} but not there" for name in sorted(set(sums) - set(found))]
    problems += [f"{name} is not in {SUMS}" for name in sorted(set(found) - set(sums))]
    for name in sorted(set(found) & set(sums)):
        digest = sha256(found[name])
        if digest != sums[name]:
            problems.append(f"{name} has the sha256 {digest}, but {SUMS} says {sums[name]}")
        if name.endswith(".whl") and wheels.get(name) != digest:
            problems.append(f"{name} is not what {MANIFEST} says of it")
    problems += [
        f"{name} is in {MANIFEST} but not there" for name in sorted(set(wheels) - set(found))
    ]
    if named != manifest["tags"]:
        problems.append(f"{TAGS} has other tags than {MANIFEST}")
    if failed:
        problems.append(f"it is incomplete, {', '.join(failed)} failed")
    return tuple(problems)


def read_sums(house: Path) -> dict[str, str]:
    """Path -> sha256, of SHA256SUMS."""
    lines = (house / SUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def identity(house: Path) -> str:
    """What tells two wheelhouses of a row apart: their files, whatever their dates."""
    sums = read_sums(house)
    manifest = json.loads((house / MANIFEST).read_text())
    manifest.pop("date", None)
    sums[MANIFEST] = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def stamp(release: Path, date: str) -> None:
    """Put the release's date into its manifest, and the manifest's hash into SHA256SUMS."""
    manifest = json.loads((release / MANIFEST).read_text())
    manifest["date"] = date
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    sums = read_sums(release)
    replace(release / MANIFEST, text)
    sums[MANIFEST] = hashlib.sha256(text.encode()).hexdigest()
    replace(release / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the tree ----------------------------------------------------------------------------------


def releases(row: Path) -> list[Path]:
    """The releases of a row, the oldest first."""
    found = (path for path in row.glob("*") if _DATE.fullmatch(path.name))
    return sorted(
        (path for path in found if (path / MANIFEST).is_file()),
        key=lambda path: [int(part) for part in path.name.split(".")],
    )


def released(index: Path, row: str) -> dict[str, str]:
    """`identity` -> name, of the releases of a row."""
    return {identity(path): path.name for path in releases(index / row)}


def free_name(row: Path, date: str) -> str:
    """The date, or the date and a number where other content has it already."""
    name, number = date, 0
    while (row / name).exists():
        number += 1
        name = f"{date}.{number}"
    return name


def write_index(index: Path) -> None:
    """`index.json`: every release in the tree."""
    rows = sorted({path.parent.parent for path in index.glob(f"linux-*/*/*/*/{MANIFEST}")})
    wheelhouses = [
        {
            "path": str(release.relative_to(index)),
            "date": release.name,
            "tags": json.loads((release / TAGS).read_text()),
            "glibc": json.loads((release / MANIFEST).read_text())["glibc"],
            "sha256sums": sha256(release / SUMS),
        }
        for row in rows
        for release in releases(row)
    ]
    document = {"schema": SCHEMA, "wheelhouses": wheelhouses}
    replace(index / INDEX, json.dumps(document, indent=1, sort_keys=True) + "\n")


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


def flush(folder: Path) -> None:
    """Have the disk hold a folder's files before it is renamed into the tree."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


@contextlib.contextmanager
def locked(index: Path) -> Iterator[None]:
    """Alone with the tree until the end of the block."""
    with (index / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def staged(index: Path) -> Iterator[Path]:
    """A folder in the index that no reader looks into, gone after the block.

    What a killed publisher left is removed: the lock of its folder is free.
    """
    with locked(index):
        for left in index.glob(f"{_STAGING}*"):
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                with (left / ".lock").open("w") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
        mine = Path(tempfile.mkdtemp(prefix=_STAGING, dir=index))
        lock = (mine / ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        lock.close()


if __name__ == "__main__":
    program.run(main)
