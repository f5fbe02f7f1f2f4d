from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import publish_file
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.wheel_testutil import refusal_of

ROW = "linux-amd64/cu130/torch2.11.0-cp312"
TAGS = {"os": "linux", "arch": "amd64", "accel": "cu130", "cuda_arch": "9.0"}


def house(folder: Path, content: str = "x", **changes: Any) -> Path:
    """A small wheelhouse, whole and honest."""
    folder.mkdir(parents=True)
    (folder / "a-1-py3-none-any.whl").write_text(content)
    wheel = {
        "file": "a-1-py3-none-any.whl",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }
    manifest = {"tags": TAGS, "glibc": "2.28", "wheels": [wheel], "failed": [], **changes}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    (folder / "tags.json").write_text(json.dumps({**TAGS, "verified": {}}))
    (folder / "simple").mkdir()
    (folder / "simple/index.html").write_text("page")
    seal(folder)
    return folder


def seal(folder: Path) -> None:
    """Write SHA256SUMS."""
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    )
    lines = (f"{publish_file.sha256(folder / name)}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text("".join(lines))


def publish(folder: Path, index: Path, date: str = "2026.11.30", **more: Any) -> str:
    return publish_file.publish(folder, index, ROW, date=date, **more)


def listed(index: Path) -> list[str]:
    document = json.loads((index / "index.json").read_text())
    assert document["schema"] == 1
    return [one["path"] for one in document["wheelhouses"]]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_a_release_is_added_and_whole(tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert publish(house(tmp_path / "h"), index).endswith("as 2026.11.30.")
    assert listed(index) == [f"{ROW}/2026.11.30"]
    release = index / ROW / "2026.11.30"
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=release, check=True)
    assert json.loads((release / "manifest.json").read_text())["date"] == "2026.11.30"
    (entry,) = json.loads((index / "index.json").read_text())["wheelhouses"]
    assert (entry["glibc"], entry["tags"]["cuda_arch"]) == ("2.28", "9.0")
    assert entry["sha256sums"] == publish_file.sha256(release / "SHA256SUMS")


def test_the_same_again_is_nothing(tmp_path: Path) -> None:
    index = tmp_path / "index"
    publish(house(tmp_path / "h"), index)
    before = tree(index)
    assert "already as 2026.11.30" in publish(tmp_path / "h", index, date="2026.12.01")
    assert tree(index) == before


def test_other_content_never_replaces_a_release(tmp_path: Path) -> None:
    index = tmp_path / "index"
    publish(house(tmp_path / "one"), index)
    before = tree(index / ROW / "2026.11.30")
    publish(house(tmp_path / "two", "y"), index)
    publish(house(tmp_path / "three", "z"), index, date="2026.12.01")
    assert listed(index) == [
        f"{ROW}/{name}" for name in ("2026.11.30", "2026.11.30.1", "2026.12.01")
    ]
    assert tree(index / ROW / "2026.11.30") == before


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    index = tmp_path / "index"
    text = publish(house(tmp_path / "h"), index, dry_run=True)
    assert "would be added" in text and "2026.11.30" in text
    assert not index.exists()
    publish(tmp_path / "h", index)
    assert "nothing would be done" in publish(tmp_path / "h", index, dry_run=True)


def _swap(folder: Path) -> None:
    (folder / "a-1-py3-none-any.whl").write_text("other")


def _swap_and_seal(folder: Path) -> None:
    _swap(folder)
    seal(folder)


def _widen(folder: Path) -> None:
    (folder / "tags.json").write_text(json.dumps({**TAGS, "cuda_arch": "9.0 12.0"}))
    seal(folder)


def _edit(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("2.28", "2.17"))


def _add(folder: Path) -> None:
    (folder / "b-1-py3-none-any.whl").write_text("b")


def _remove(folder: Path) -> None:
    (folder / "a-1-py3-none-any.whl").unlink()
    seal(folder)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_swap, "a-1-py3-none-any.whl has the sha256"),
        (_swap_and_seal, "not what manifest.json says"),
        (_widen, "tags.json has other tags"),
        (_edit, "manifest.json has the sha256"),
        (_add, "b-1-py3-none-any.whl is not in SHA256SUMS"),
        (_remove, "in manifest.json but not there"),
    ],
)
def test_a_wheelhouse_that_lies_is_refused(
    tmp_path: Path, lie: Callable[[Path], None], words: str
) -> None:
    good = house(tmp_path / "good")
    bad = tmp_path / "bad"
    shutil.copytree(good, bad)
    lie(bad)
    with pytest.raises(ProgramError, match=words):
        publish(bad, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    publish(good, tmp_path / "index")


def test_an_incomplete_one_is_refused(tmp_path: Path) -> None:
    failed = [{"package": "thing", "stage": "compile", "message": "x"}]
    with pytest.raises(ProgramError, match="thing failed"):
        publish(house(tmp_path / "h", failed=failed), tmp_path / "index")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    folder = house(tmp_path / "h")
    _swap(folder)
    _add(folder)
    with pytest.raises(ProgramError) as caught:
        publish(folder, tmp_path / "index", date="today")
    assert len([line for line in str(caught.value).splitlines() if line.startswith("*")]) == 4


def test_a_killed_publisher_leaves_nothing_that_the_next_keeps(tmp_path: Path) -> None:
    index = tmp_path / "index"
    left = index / ".staging-dead"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    (left / "release").mkdir()
    # Killed between the rename and the index.
    publish(house(tmp_path / "one"), index)
    (index / "index.json").unlink()
    publish(house(tmp_path / "two", "y"), index)
    assert len(listed(index)) == 2
    assert not list(index.glob(".staging-*"))


def test_a_full_disk_leaves_no_half_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    publish(house(tmp_path / "one"), index)
    before = tree(index)

    def full(source: Path, target: Path) -> None:
        os.makedirs(target)
        (target / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish_file.shutil, "copytree", full)
    with pytest.raises(OSError, match="No space"):
        publish(house(tmp_path / "two", "y"), index)
    assert tree(index) == before


def test_publishers_at_once_lose_nothing(tmp_path: Path) -> None:
    index = tmp_path / "index"
    houses = [house(tmp_path / f"h{number}", str(number)) for number in range(4)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=publish, args=(one, index)) for one in houses]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(listed(index)) == len(houses)
    contents = {
        (path / "a-1-py3-none-any.whl").read_text() for path in publish_file.releases(index / ROW)
    }
    assert contents == {"0", "1", "2", "3"}


def test_the_program_names_what_its_request_lacks(tmp_path: Path) -> None:
    assert "house" in refusal_of("publish_file", tmp_path)
