"""Where wheelhouses come from: a folder, a tree of them, or such a tree on a web server.

A tree on a server has `index.json` at its top, see docs/verify.md:

    {"schema": 1, "wheelhouses": [{"path": "...", "tags": {...}, "glibc": "2.28",
                                   "date": "2026.11.30", "sha256sums": "..."}]}
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

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

INDEX = "index.json"
TIMEOUT_S = 60


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def find(source: str) -> tuple[Summary, ...]:
    """Every wheelhouse of a source, by path; raises WheelhouseError if there is none."""
    if is_address(source):
        return _on_server(source)
    root = Path(source)
    if not root.is_dir():
        raise WheelhouseError(f"{source} is no folder, and no address (http://, https://).")
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


def _on_server(source: str) -> tuple[Summary, ...]:
    base = source.rstrip("/")
    address = f"{base}/{INDEX}"
    found = []
    for entry in _entries(_json(address), address):
        path = f"{base}/{urllib.parse.quote(entry['path'])}"
        try:
            tags = parse_tags(entry.get("tags"))
        except WheelhouseError as error:
            raise WheelhouseError(f"{address}, {entry['path']}: {error}") from None
        # The index says what is needed to choose; packages and skipped ones stand in the manifest.
        manifest = {"glibc": entry.get("glibc"), "date": entry.get("date")}
        if manifest["glibc"] is None:
            manifest = {**_json(f"{path}/{MANIFEST}"), "date": entry.get("date")}
        summary = summarize(path, tags, entry.get("tags"), manifest)
        found.append(replace(summary, sums=entry.get("sha256sums")))
    if not found:
        raise WheelhouseError(f"{address} lists no wheelhouse.")
    return tuple(found)


def fetch(summary: Summary, into: Path, say: Callable[[str], None] = lambda text: None) -> Path:
    """A wheelhouse of a server, checked file by file; raises WheelhouseError if it lies.

    It appears under its name only when it is complete. What is there already is checked alone.
    """
    target = into / summary.tags.name
    if summary.date and is_inside(summary.date):
        target = target / summary.date
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
        try:
            _download(summary, partial, say)
            partial.chmod(0o755)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    wrong = list(problems(target, summary.sums))
    if not wrong and read_summary(target).tags != summary.tags:
        wrong.append(
            f"the index says {summary.tags.name}, its own tags say another row or other GPUs."
        )
    if wrong:
        raise WheelhouseError(f"{summary.path} is not as it says:\n" + "\n".join(wrong))
    return target


def _download(summary: Summary, folder: Path, say: Callable[[str], None]) -> None:
    sums = folder / SUMS
    _get(f"{summary.path}/{SUMS}", sums)
    for name, digest in parse_sums(sums.read_text(encoding="utf-8", errors="replace")).items():
        say(f"fetching {name}")
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        _get(f"{summary.path}/{urllib.parse.quote(name)}", file)
        if sha256(file) != digest:
            raise WheelhouseError(
                f"{summary.path}/{name} has sha256 {sha256(file)}, but {SUMS} says {digest}."
            )


def _json(address: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "document"
        _get(address, file)
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise WheelhouseError(f"{address} is not JSON: {error}.") from None


def _get(address: str, file: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer, file.open("wb") as out:
            shutil.copyfileobj(answer, out)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise WheelhouseError(f"{address} cannot be fetched: {reason}.") from None
