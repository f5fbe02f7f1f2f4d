from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.audit.fake_lies import LIES, add_wheel, swap_wheel
from cuda_wheels.sandbox import publish_file
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.servers_testutil import on_small_disk
from cuda_wheels.sandbox.wheel_testutil import refusal_of

ROW = "linux-amd64/cu130/torch2.11.0-cp312"


def house(folder: Path, content: str = "x", **changes: Any) -> Path:
    """A small wheelhouse, whole and honest, whose wheels hold `content`."""
    made = fake.write_wheelhouse(folder, content=content)
    if changes:
        path = made / "manifest.json"
        fake.write_json(path, {**json.loads(path.read_text()), **changes})
        fake.write_sums(made)
    return made


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
    assert (entry["glibc"], entry["tags"]["cuda_arch"]) == ("2.28", "8.0 9.0 12.1")
    assert entry["sha256sums"] == publish_file.sha256(release / "SHA256SUMS")


def test_the_same_again_is_nothing(tmp_path: Path) -> None:
    index = tmp_path / "index"
    folder = house(tmp_path / "h")
    publish(folder, index)
    before = tree(index)
    assert "already as 2026.11.30" in publish(folder, index, date="2026.12.01")
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
    folder = house(tmp_path / "h")
    text = publish(folder, index, dry_run=True)
    assert "would be added" in text and "2026.11.30" in text
    assert not index.exists()
    publish(folder, index)
    assert "nothing would be done" in publish(folder, index, dry_run=True)


@pytest.mark.parametrize(("lie", "finding"), LIES, ids=[lie.__name__ for lie, _ in LIES])
def test_a_wheelhouse_that_lies_is_refused(
    tmp_path: Path, lie: Callable[[Path], None], finding: str
) -> None:
    good = house(tmp_path / "good")
    bad = tmp_path / "bad" / ROW
    shutil.copytree(good, bad)
    lie(bad)
    with pytest.raises(ProgramError) as caught:
        publish(bad, tmp_path / "index")
    assert finding in str(caught.value)
    assert not (tmp_path / "index").exists()
    publish(good, tmp_path / "index")


def test_a_wheelhouse_of_another_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="its tags are those of linux-amd64/cu128/"):
        publish(fake.write_wheelhouse(tmp_path, {"accel": "cu128"}, "x"), tmp_path / "index")


def test_an_incomplete_one_is_refused(tmp_path: Path) -> None:
    failed = [{"package": "thing", "stage": "compile", "message": "x"}]
    with pytest.raises(ProgramError, match="thing failed"):
        publish(house(tmp_path / "h", failed=failed), tmp_path / "index")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    folder = house(tmp_path / "h")
    swap_wheel(folder)
    add_wheel(folder)
    with pytest.raises(ProgramError) as caught:
        publish(folder, tmp_path / "index", date="today")
    text = str(caught.value)
    for words in ("but manifest.json says", "not in manifest.json", "The date 'today'"):
        assert words in text


@pytest.mark.parametrize("step", ["copy", "stamp", "flush", "write_index"])
def test_a_killed_publisher_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    index = tmp_path / "index"
    publish(house(tmp_path / "one"), index)
    mine = house(tmp_path / "two", "y")

    def kill(*arguments: Any, **more: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(publish_file, step, kill)
        process = multiprocessing.get_context("fork").Process(target=publish, args=(mine, index))
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    # Whoever reads the index sees nothing of it, also where its folder is there already.
    assert listed(index) == [f"{ROW}/2026.11.30"]
    publish(mine, index)
    assert listed(index) == [f"{ROW}/{name}" for name in ("2026.11.30", "2026.11.30.1")]
    assert not list(index.glob(".staging-*"))


# Publishes to a disk that has room for one small wheelhouse, and again when there is more.
ON_A_FULL_DISK = """
import errno, sys
from pathlib import Path
from cuda_wheels.sandbox import publish_file
small, large, index = map(Path, sys.argv[1:4])
def publish(house):
    return publish_file.publish(house, index, sys.argv[4], date="2026.11.30")
def tree():
    return {str(one): one.read_bytes() for one in index.rglob("*") if one.is_file()}
publish(small)
(index / "filler").write_bytes(b"x" * 200_000)
before = tree()
try:
    publish(large)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
else:
    raise AssertionError("there was room")
assert tree() == before, sorted(tree())
assert not list(index.glob(".staging-*"))
(index / "filler").unlink()
print(publish(large))
"""


def test_a_full_disk_leaves_no_half_release(tmp_path: Path) -> None:
    (index := tmp_path / "index").mkdir()
    small = house(tmp_path / "small")
    large = fake.write_wheelhouse(tmp_path / "large", content="y" * 100_000)
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(small), str(large), str(index), ROW]
    done = subprocess.run(
        on_small_disk(index, "400k", command),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("as 2026.11.30.1.\n")


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
    published = {path.read_bytes() for path in index.glob(f"{ROW}/*/spconv-*.whl")}
    assert published == {next(one.glob("spconv-*.whl")).read_bytes() for one in houses}


def test_the_program_names_what_its_request_lacks(tmp_path: Path) -> None:
    assert "house" in refusal_of("publish_file", tmp_path)
