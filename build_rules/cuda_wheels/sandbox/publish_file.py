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
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cuda_wheels.audit.wheelhouse import MANIFEST, SUMS, TAGS, sha256
from cuda_wheels.sandbox import program
from cuda_wheels.sandbox.release import (
    free_name,
    identity,
    replace,
    require_honest,
    stamp,
    today,
)

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
            date=request.get("date") or today(),
            dry_run=bool(request.get("dry_run")),
        )
    )


def publish(house: Path, index: Path, row: str, *, date: str, dry_run: bool = False) -> str:
    """Add the release; returns a sentence about it."""
    require_honest(house, row, date, str(index))
    content = identity(house)
    if dry_run:
        there = released(index, row).get(content)
        return (
            f"{row} is in {index} as {there}: nothing would be done."
            if there
            else f"{row} would be added to {index} as {free_name(date, names(index / row))}."
        )
    index.mkdir(parents=True, exist_ok=True)
    with staged(index) as staging:
        copy(house, staging / "release")
        with locked(index):
            there = released(index, row).get(content)
            name = there or free_name(date, names(index / row))
            if not there:
                stamp(staging / "release", name)
                flush(staging / "release")
                (index / row).mkdir(parents=True, exist_ok=True)
                os.rename(staging / "release", index / row / name)
            write_index(index)
    return f"{row} {'was in' if there else 'was added to'} {index} {'already ' if there else ''}as {name}."


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


def names(row: Path) -> list[str]:
    """What no release of the row can be called any more."""
    return [path.name for path in row.glob("*")]


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


def copy(house: Path, release: Path) -> None:
    """A folder's files; stops at the first that fails, as when the disk is full."""
    for path in sorted(house.rglob("*")):
        target = release / path.relative_to(house)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


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
