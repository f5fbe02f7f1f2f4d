"""A wheelhouse of two small packages, from their sources to an install."""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.checkout import FIXTURES, Checkout, shared_cache
from integration.recipes import TARGET, address, recipe

HOUSE = "house:h"
FOLDER = "linux-amd64/cu130/torch2.11.0-cp312"
NARROW = "--cuda-wheels-gpu-archs=9.0"
ARCHS = ["8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"]


def _house(*wheels: str, more: str = "allow_narrowed=True") -> str:
    return f"""
cuda_wheelhouse(
    name="h",
    wheels={list(wheels)!r},
    requirements="3rdparty/python/pypi.txt",
    arch="amd64",
    accel="cu130",
    torch="2.11.0",
    cuda_arch={ARCHS!r},
    {more},
)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("wheelhouse")
    with Checkout(root / "checkout", shared_cache(root)) as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        # The same code under another name: a second distribution of a row.
        (_renamed(checkout) / "BUILD").write_text(recipe("vecsub"))
        checkout.add_fixture("failing", recipe("failing"))
        yield checkout


def _renamed(checkout: Checkout) -> Path:
    """A copy of the fixture vecadd as the package vecsub."""
    target = checkout.root / FIXTURES / "vecsub"
    for source in sorted((FIXTURES / "vecadd").rglob("*")):
        if source.is_file() and source.name != "BUILD":
            place = target / str(source.relative_to(FIXTURES / "vecadd")).replace(
                "vecadd", "vecsub"
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(source.read_text().replace("vecadd", "vecsub"))
    return target


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _install(environment: Path, source: list[str], *packages: str) -> None:
    """Install into a fresh environment, from this source alone."""
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--isolated"]
    subprocess.run([*pip, "--no-cache-dir", "--no-deps", *source, *packages], check=True)


def test_narrowed_wheels_are_refused_before_anything_is_built(checkout: Checkout) -> None:
    checkout.write("house/BUILD", _house(address("vecadd"), more="allow_narrowed=False"))
    run = checkout.pants(NARROW, "package", HOUSE)
    assert run.returncode != 0
    assert "allow_narrowed" in run.output and "(9.0 of 8.0" in run.output
    assert not any(name.startswith(("Fetch", "Compile")) for name in run.processes)


def test_a_wheelhouse_is_packaged_and_installs(checkout: Checkout, tmp_path: Path) -> None:
    checkout.write("house/BUILD", _house(address("vecadd"), address("vecsub")))
    stale = checkout.write(f"dist/{FOLDER}/stale-1.0-py3-none-any.whl", "")
    run = checkout.pants(NARROW, "package", HOUSE)
    assert run.returncode == 0, "\n" + run.output
    house = checkout.dist / FOLDER
    assert not stale.exists()
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=house, check=True)
    tags = json.loads((house / "tags.json").read_text())
    # vecadd ran there, vecsub did not.
    assert (tags["cuda_arch"], tags["verified"]) == ("9.0", {"9.0": "built"})
    manifest = json.loads((house / "manifest.json").read_text())
    assert [wheel["name"] for wheel in manifest["wheels"]] == ["vecadd", "vecsub"]
    assert all(wheel["toolchain"]["nvcc"].startswith("13.") for wheel in manifest["wheels"])
    for number, source in enumerate(
        (["--no-index", "--find-links", str(house)], ["--index-url", (house / "simple").as_uri()])
    ):
        _install(tmp_path / str(number), source, "vecadd", "vecsub")

    again = checkout.root.parent / "again"
    run = checkout.pants(
        NARROW, f"--local-store-dir={again}", "--pants-distdir=other", "package", HOUSE
    )
    assert run.returncode == 0, "\n" + run.output
    assert f"Describe {HOUSE}" in run.processes
    assert _files(checkout.root / "other" / FOLDER) == _files(house)


def test_a_wheelhouse_is_published_once(checkout: Checkout, tmp_path: Path) -> None:
    checkout.write("house/BUILD", _house(address("vecadd")))
    index = tmp_path / "index"
    options = [NARROW, f"--cuda-publish-to=['{index.as_uri()}']", "--cuda-publish-date=2026.11.30"]
    for word in ("was added to", "already as 2026.11.30"):
        run = checkout.pants(*options, "publish", HOUSE)
        assert run.returncode == 0, "\n" + run.output
        assert word in run.output
    (entry,) = json.loads((index / "index.json").read_text())["wheelhouses"]
    assert entry["path"] == f"{FOLDER}/2026.11.30"
    release = index / entry["path"]
    assert json.loads((release / "manifest.json").read_text())["date"] == "2026.11.30"
    _install(tmp_path / "venv", ["--index-url", (release / "simple").as_uri()], "vecadd")


def test_what_is_finished_is_written_where_a_wheel_fails(checkout: Checkout) -> None:
    checkout.write("house/BUILD", _house(address("vecadd"), address("failing")))
    run = checkout.pants(NARROW, "package", HOUSE)
    assert run.returncode != 0
    assert f"cuda-build {HOUSE}" in run.output
    run = checkout.pants(NARROW, "cuda-build", HOUSE)
    assert run.returncode == 1
    assert "incomplete (1 failed)" in run.stdout
    house = checkout.dist / FOLDER
    assert [path.name.split("-")[0] for path in house.glob("*.whl")] == ["vecadd"]
    manifest = json.loads((house / "manifest.json").read_text())
    (failed,) = manifest["failed"]
    assert (failed["package"], failed["stage"]) == ("failing", "compile")
    assert str(checkout.root) not in failed["message"]
    assert list((checkout.dist / "logs").glob(f"*failing.{TARGET}.log"))
