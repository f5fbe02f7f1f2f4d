"""The locks of 3rdparty/torch, and what docs/locks.md says of them, against the tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Dict, Tuple

import pytest

from cuda_wheels.tables.accelerators import find_accelerator
from cuda_wheels.tables.rows import LOCK_DIRECTORY, Row, row_problems
from cuda_wheels.tables.torch import (
    PYPI,
    build_requirements,
    find_torch_build,
    toolkit_version,
    torch_build,
)

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / LOCK_DIRECTORY).glob("*.txt"))
PAGE = (ROOT / "docs/locks.md").read_text(encoding="utf-8")

# `cuda-toolkit` -> the nvcc that it pins (its METADATA).
NVCC_OF_TOOLKIT = {"13.0.0": "13.0.48", "13.0.2": "13.0.88", "13.0.3": "13.0.88"}

_NAME = re.compile(r"(?P<arch>\w+)-(?P<accel>\w+)(-torch(?P<torch>[\d.]+))?-cp3(?P<minor>\d+)")
_PIN = re.compile(r"([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
_DOC_ROW = re.compile(r"^\| `([a-z0-9.-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)

Pins = Dict[str, Tuple[str, Tuple[str, ...]]]


def row_of(lock: Path) -> Row:
    match = _NAME.fullmatch(lock.stem)
    assert match, f"{lock.name} names no row"
    arch, accel, torch = match["arch"], match["accel"], match["torch"]
    found = find_accelerator(accel)
    gpus = ("9.0",) if found and found.kind == "cuda" else ()
    return Row(arch, accel, torch, f"3.{match['minor']}", gpus)


def pins_of(lock: Path) -> Pins:
    """Name -> version and hashes; a line that is neither a pin nor one of its hashes is an error."""
    text = lock.read_text(encoding="utf-8")
    assert _PIN.sub("", text) == "", f"{lock.name}: not every line is a pin with its hashes"
    found = {
        match[1]: (match[2], tuple(re.findall(r"sha256:(\w+)", match[3])))
        for match in _PIN.finditer(text)
    }
    assert len(found) == len(_PIN.findall(text)), f"{lock.name}: a package is pinned twice"
    return found


def name_and_version(requirement: str) -> Tuple[str, str]:
    """("cuda-toolkit", "13.0.2.*") of `cuda-toolkit[nvcc]==13.0.2.*`; "" where none is pinned."""
    match = re.match(r"([\w-]+)(?:\[[^\]]*\])?(?:==(\S+))?", requirement)
    assert match
    return match[1].lower(), match[2] or ""


def matches(version: str, wanted: str) -> bool:
    if wanted.endswith(".*"):
        return version == wanted[:-2] or version.startswith(wanted[:-1])
    return wanted in ("", version)


def by_name(lock: Path) -> str:
    return lock.stem


def test_there_are_locks() -> None:
    assert LOCKS


@pytest.mark.parametrize("lock", LOCKS, ids=by_name)
def test_a_lock_is_named_after_a_row_that_can_work(lock: Path) -> None:
    row = row_of(lock)
    assert row.lock_path == f"{LOCK_DIRECTORY}/{lock.name}"
    assert row_problems(row) == ()


@pytest.mark.parametrize("lock", LOCKS, ids=by_name)
def test_a_lock_has_what_its_row_asks_for_with_hashes_and_no_address(lock: Path) -> None:
    row = row_of(lock)
    pins = pins_of(lock)
    assert "://" not in lock.read_text(encoding="utf-8")
    for requirement in build_requirements(row.arch, row.accel, row.torch):
        name, wanted = name_and_version(requirement)
        assert name in pins, f"{requirement} is not locked"
        assert matches(pins[name][0], wanted), f"{requirement}, but {pins[name][0]} is locked"


@pytest.mark.parametrize("lock", LOCKS, ids=by_name)
def test_torch_is_that_of_the_row(lock: Path) -> None:
    row = row_of(lock)
    locked = pins_of(lock).get("torch")
    if row.torch is None:
        assert locked is None
        return
    # A guess about a release that is not listed is no base for a lock.
    assert find_torch_build(row.torch, row.accel, row.arch)
    assert locked
    assert f"torch=={locked[0]}" == torch_build(row.torch, row.accel, row.arch).requirement


@pytest.mark.parametrize("lock", LOCKS, ids=by_name)
def test_the_compiler_is_that_of_the_toolkit(lock: Path) -> None:
    row = row_of(lock)
    pins = pins_of(lock)
    toolkit = toolkit_version(row.arch, row.accel, row.torch)
    parts = {name: pins.get(name, ("",))[0] for name in ("nvidia-cuda-nvcc", "nvidia-nvvm")}
    parts["nvidia-cuda-crt"] = pins.get("nvidia-cuda-crt", ("",))[0]
    assert set(parts.values()) == {NVCC_OF_TOOLKIT[toolkit] if toolkit else ""}


@pytest.mark.parametrize("lock", LOCKS, ids=by_name)
def test_cuda_libraries_are_those_of_the_accelerator(lock: Path) -> None:
    found = find_accelerator(row_of(lock).accel)
    major = found.cuda_major if found else None
    suffixes = {re.search(r"-cu(\d+)$", name) for name in pins_of(lock)} - {None}
    assert {match[1] for match in suffixes if match} <= {str(major)}


# --------------------------------------------------------------------------------------------
# docs/locks.md
# --------------------------------------------------------------------------------------------


def rows_under(heading: str) -> Dict[str, Tuple[str, str, str]]:
    """The rows of the table below a heading: the first column -> the other three."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {match[1]: (match[2], match[3], match[4]) for match in _DOC_ROW.finditer(section)}


def test_the_page_has_every_lock_and_the_hash_of_its_torch() -> None:
    documented = rows_under("Where each lock's torch comes from")
    assert sorted(documented) == [lock.stem for lock in LOCKS]
    for lock in LOCKS:
        wheel, digest, _ = documented[lock.stem]
        torch = pins_of(lock).get("torch")
        if torch is None:
            assert (wheel, digest) == ("none", "-")
            continue
        assert wheel.startswith(f"{torch[0]}, ")
        row = row_of(lock)
        place = (
            "package"
            if torch_build(row.torch or "", row.accel, row.arch).host == PYPI
            else "PyTorch"
        )
        assert wheel == f"{torch[0]}, {place} index"
        assert any(known.startswith(digest.strip("`")) for known in torch[1])


def test_what_the_page_calls_pending_is_what_the_matrix_has_no_lock_for() -> None:
    matrix = runpy.run_path(str(ROOT / "build_rules/macros.py"))["MATRIX"]
    wanted_rows = {Row(*row[:4]).variant for row in matrix}
    pending = rows_under("Pending")
    assert set(pending) == wanted_rows - {lock.stem for lock in LOCKS}
    for name, (wanted, _, _) in pending.items():
        row = row_of(Path(f"{name}.txt"))
        assert row.torch
        assert wanted == f"`{torch_build(row.torch, row.accel, row.arch).requirement}`"
