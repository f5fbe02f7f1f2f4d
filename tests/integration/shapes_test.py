"""The recipes of Pointcept's own libraries, on a repository of the same shape that a test made.

Each recipe is taken as it is, with its options and patches; only the commit is the test's.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_wheels.sandbox.git_testutil import Repository, git
from cuda_wheels.sandbox.probe import INCLUDE_DIRS
from cuda_wheels.tables.upstreams import github
from integration.checkout import FIXTURES, Checkout, Run, shared_cache
from integration.recipes import TARGET

POINTCEPT = "Pointcept/Pointcept"
# What each recipe's wheel must be: its version, and whether it has code for GPUs.
WHEELS = {
    "pointgroup_ops": ("0.0.0", True),
    "pointops": ("1.0", True),
    "pointrope": ("0.0.0", True),
    "pointseg": ("1.0", False),
}
HAS_SPARSEHASH = any((place / "google/dense_hash_map").is_file() for place in INCLUDE_DIRS)


def _pin(checkout: Checkout, package: str, commit: str) -> None:
    """Have a recipe take this commit of the repository."""
    build_file = checkout.root / "packages" / package / "BUILD"
    text = build_file.read_text()
    assert f'github("{POINTCEPT}")' in text
    text, count = re.subn(r'commit="[0-9a-f]{40}"', f'commit="{commit}"', text)
    assert count == 1
    build_file.write_text(text)


def _mirrors(forge: Path) -> str:
    mirrors = {github("Pointcept/"): f"{forge.as_uri()}/"}
    return f"--cuda-wheels-source-mirrors={json.dumps(mirrors)}"


def _build(checkout: Checkout, forge: Path, packages: list[str]) -> Run:
    return checkout.pants(
        "--cuda-wheels-gpu-archs=9.0",
        _mirrors(forge),
        "cuda-build",
        *(f"packages/{package}:{TARGET}" for package in packages),
    )


@pytest.fixture(scope="module")
def commit_and_forge(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    forge = tmp_path_factory.mktemp("forge")
    repository = Repository(forge / "Pointcept")
    shutil.copytree(FIXTURES / "pointcept", repository.folder, dirs_exist_ok=True)
    return repository.commit(), forge


@pytest.fixture(scope="module")
def checkout(
    tmp_path_factory: pytest.TempPathFactory, commit_and_forge: tuple[str, Path]
) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("shapes")
    with Checkout(root / "checkout", shared_cache(root)) as checkout:
        for package in (*WHEELS, "pointcept"):
            _pin(checkout, package, commit_and_forge[0])
        yield checkout


def _facts(checkout: Checkout, package: str) -> dict:
    (path,) = checkout.dist.glob(f"{package}-*.facts.json")
    return json.loads(path.read_text())


def _libraries(checkout: Checkout, package: str) -> list[bytes]:
    (path,) = checkout.dist.glob(f"{package}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        return [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]


def test_the_recipes_build(checkout: Checkout, commit_and_forge: tuple[str, Path]) -> None:
    commit, forge = commit_and_forge
    packages = [name for name in WHEELS if HAS_SPARSEHASH or name != "pointgroup_ops"]
    run = _build(checkout, forge, packages)
    assert run.returncode == 0, "\n" + run.output
    for package in packages:
        version, has_gpu_code = WHEELS[package]
        facts = _facts(checkout, package)
        assert facts["source"].endswith(f"commit {commit}, folder libs/{package}")
        assert facts["wheel"]["version"].startswith(f"{version}+cu130.torch2.11.0")
        (library,) = facts["wheel"]["libraries"]
        assert list(library["images"]) == (["sm_90"] if has_gpu_code else [])
        # setup.py of some compiles with -g.
        assert not any(b".debug_info" in content for content in _libraries(checkout, package))
    assert _facts(checkout, "pointseg")["patches"] == ["0001-accept-a-python-without-opt.patch"]


@pytest.mark.skipif(HAS_SPARSEHASH, reason="the header is there")
def test_a_missing_header_is_told_before_anything_is_fetched(
    checkout: Checkout, commit_and_forge: tuple[str, Path]
) -> None:
    run = _build(checkout, commit_and_forge[1], ["pointgroup_ops"])
    assert run.returncode == 1
    assert "<google/dense_hash_map>" in run.output
    assert "apt-get install libsparsehash-dev" in run.output
    assert not any(name.startswith("Fetch") for name in run.processes)


def test_the_code_base_is_packed_whole_and_twice_alike(
    checkout: Checkout, commit_and_forge: tuple[str, Path]
) -> None:
    commit, forge = commit_and_forge
    wheels = []
    for store in ("one", "two"):
        # A store of its own each, so that the second is no answer of the first.
        where = f"--local-store-dir={checkout.root.parent / store}"
        run = checkout.pants(where, _mirrors(forge), "package", "packages/pointcept")
        assert run.returncode == 0, "\n" + run.output
        assert "Pack packages/pointcept:pointcept" in run.processes
        (path,) = checkout.dist.glob("pointcept-*.whl")
        wheels.append(path.read_bytes())
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
        path.unlink()
    assert path.name == f"pointcept-1.7.0.post8+g{commit[:7]}-py3-none-any.whl"
    assert wheels[0] == wheels[1]
    tracked = git(forge / "Pointcept", "ls-files", "pointcept", "configs").splitlines()
    assert sorted(name for name in names if ".dist-info/" not in name) == sorted(
        f"pointcept/{name}" if name.startswith("configs/") else name for name in tracked
    )
