"""Where wheelhouses come from: a folder, a tree of them on a disk or a web server, a registry, an index.

A tree on a server has `index.json` at its top, see docs/verify.md:

    {"schema": 1, "wheelhouses": [{"path": "...", "tags": {...}, "glibc": "2.28",
                                   "date": "2026.11.30", "sha256sums": "..."}]}

`registry` reads an OCI registry, `package_index` what an upload API fills.
"""

from __future__ import annotations

import os
import tempfile
import urllib.parse
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Protocol

from cuda_wheels.audit.wheelhouse import (
    MANIFEST,
    SUMS,
    TAGS,
    Summary,
    WheelhouseError,
    is_inside,
    load,
    parse_sums,
    parse_tags,
    problems,
    read_summary,
    sha256,
    summarize,
)
from verify import package_index, registry
from verify.package_index import PackageIndex
from verify.registry import Registry
from verify.web import Client, require_plain

INDEX = "index.json"


class Source(Protocol):
    """A server that has wheelhouses; each raises WheelhouseError for what it cannot read."""

    @property
    def names_one(self) -> bool:
        """Whether its address is that of one release."""

    def find(self) -> tuple[Summary, ...]:
        """All of them, by what is needed to choose."""

    def describe(self, summary: Summary) -> Summary:
        """One of them with packages, and with what is skipped."""

    def download(self, summary: Summary, folder: Path, say: Callable[[str], None]) -> None:
        """All files of one of them, each compared with its sha256."""


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://", registry.SCHEME, package_index.SCHEME))


def open_source(source: str) -> Source:
    """The server that an address names; raises WheelhouseError for one that is malformed."""
    if source.startswith(registry.SCHEME):
        return Registry.parse(source)
    if source.startswith(package_index.SCHEME):
        return PackageIndex.parse(source)
    require_plain(source, None)
    return Tree(source.rstrip("/"))


def find(source: str) -> tuple[Summary, ...]:
    """Every wheelhouse of a source, by path; raises WheelhouseError if there is none."""
    if is_address(source):
        return open_source(source).find()
    root = Path(source)
    if not root.is_dir():
        raise WheelhouseError(
            f"{source} is no folder, and no address (http://, https://, oci:, pypi:)."
        )
    found = []
    sums = _sums_of_index(root)
    for folder, folders, files in os.walk(root):
        folders.sort()
        if TAGS in files and MANIFEST in files:
            folders.clear()
            summary = read_summary(Path(folder))
            expected = sums.get(os.path.relpath(folder, root))
            found.append(replace(summary, sums=expected))
    if not found:
        raise WheelhouseError(
            f"There is no wheelhouse in {source}: no folder has {TAGS} and {MANIFEST}."
        )
    return tuple(sorted(found, key=lambda summary: summary.path))


def _sums_of_index(root: Path) -> dict[str, str]:
    """Path -> sha256 of SHA256SUMS, where the tree has an index."""
    if not (root / INDEX).is_file():
        return {}
    entries = _entries(load(root / INDEX), str(root / INDEX))
    return {entry["path"]: entry["sha256sums"] for entry in entries if entry.get("sha256sums")}


def _entries(document: Any, where: str) -> list[dict[str, Any]]:
    wheelhouses = document.get("wheelhouses") if isinstance(document, dict) else None
    if not isinstance(wheelhouses, list) or document.get("schema") != 1:
        raise WheelhouseError(f"{where} is no index of wheelhouses of schema 1.")
    for entry in wheelhouses:
        path = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(path, str) or not is_inside(path):
            raise WheelhouseError(
                f"{where} has an entry whose path is {path!r}: none inside the tree."
            )
    return wheelhouses


@dataclass(frozen=True)
class Tree:
    """A tree of wheelhouses on a web server."""

    address: str

    @property
    def names_one(self) -> bool:
        return False

    def find(self) -> tuple[Summary, ...]:
        address = f"{self.address}/{INDEX}"
        found = []
        for entry in _entries(self._client.read(address).json(), address):
            path = f"{self.address}/{urllib.parse.quote(entry['path'])}"
            try:
                tags = parse_tags(entry.get("tags"))
            except WheelhouseError as error:
                raise WheelhouseError(f"{address}, {entry['path']}: {error}") from None
            manifest = {"glibc": entry.get("glibc"), "date": entry.get("date")}
            sums = entry.get("sha256sums")
            summary = summarize(path, tags, entry.get("tags"), manifest, sums)
            # The index says what is needed to choose, but may leave this out.
            found.append(summary if summary.glibc is not None else self.describe(summary))
        if not found:
            raise WheelhouseError(f"{address} lists no wheelhouse.")
        return tuple(found)

    def describe(self, summary: Summary) -> Summary:
        manifest = self._client.read(f"{summary.path}/{MANIFEST}").json()
        tags = {"verified": dict(summary.verified)}
        full = summarize(summary.path, summary.tags, tags, manifest, summary.sums)
        return replace(full, date=summary.date)

    def download(self, summary: Summary, folder: Path, say: Callable[[str], None]) -> None:
        sums = folder / SUMS
        self._client.save(f"{summary.path}/{SUMS}", sums)
        for name, digest in parse_sums(sums.read_text("utf-8", "replace")).items():
            say(f"fetching {name}")
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._client.save(f"{summary.path}/{urllib.parse.quote(name)}", file)
            if sha256(file) != digest:
                raise WheelhouseError(
                    f"{summary.path}/{name} has sha256 {sha256(file)}, but {SUMS} says {digest}."
                )

    @cached_property
    def _client(self) -> Client:
        return Client(self.address)


def fetch(
    source: Source, summary: Summary, into: Path, say: Callable[[str], None] = lambda text: None
) -> Path:
    """A wheelhouse of a server, checked file by file; raises WheelhouseError if it lies.

    It appears under its name only when it is complete and was checked. What is there already is
    checked alone.
    """
    name = Path(summary.tags.name)
    if summary.date and is_inside(summary.date):
        name = name / summary.date
    target = into / name
    if target.exists():
        _require_promised(summary, target)
        return target
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=into) as partial:
        folder = Path(partial) / name
        folder.mkdir(parents=True)
        source.download(summary, folder, say)
        _require_promised(summary, folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
    return target


def _require_promised(summary: Summary, folder: Path) -> None:
    """Raises WheelhouseError where a folder contradicts itself or what lists it."""
    wrong = list(problems(folder, summary.sums))
    if not wrong and read_summary(folder).tags != summary.tags:
        wrong.append(
            f"the index says {summary.tags.name}, its own tags say another row or other GPUs."
        )
    if wrong:
        raise WheelhouseError(f"{summary.path} is not as it says:\n" + "\n".join(wrong))
