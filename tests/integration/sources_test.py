"""A package in a folder of a git repository, with a submodule, built through a mirror."""

from __future__ import annotations

import json
import shutil
import uuid
import zipfile
from pathlib import Path

from cuda_wheels.sandbox.git_testutil import Repository
from cuda_wheels.tables.upstreams import github
from integration.checkout import FIXTURES, Checkout, Run, shared_cache
from integration.recipes import TARGET

BUILD_FILE = """
native_package(
    "vecadd",
    "1.0",
    source=git_source(
        github("example/vecadd"), commit="{commit}", subdirectory="libs/vecadd"
    ),
    memory_per_job_gb=2.0,
)
"""


def _forge(root: Path) -> str:
    """Two repositories that make up vecadd; the commit of the one that is declared."""
    kernels = FIXTURES / "vecadd/csrc"
    submodule = Repository(
        root / "vecadd-kernels", {path.name: path.read_bytes() for path in kernels.iterdir()}
    )
    # Never the same commit twice, so that no earlier run's result answers.
    repository = Repository(root / "vecadd", {"README": f"{uuid.uuid4()}\n"})
    package = repository.folder / "libs/vecadd"
    package.mkdir(parents=True)
    shutil.copy(FIXTURES / "vecadd/setup.py", package)
    shutil.copytree(FIXTURES / "vecadd/vecadd", package / "vecadd")
    (package / "vecadd/again.py").symlink_to("__init__.py")
    repository.commit()
    return repository.add_submodule("libs/vecadd/csrc", "../vecadd-kernels", submodule.head)


def _build(checkout: Checkout, forge: Path) -> Run:
    mirrors = {github("example/"): f"{forge.as_uri()}/"}
    run = checkout.pants(
        # Nothing is remembered but in the store.
        "--no-pantsd",
        "--cuda-wheels-gpu-archs=9.0",
        f"--cuda-wheels-source-mirrors={json.dumps(mirrors)}",
        "cuda-build",
        f"packages/vecadd:{TARGET}",
    )
    assert run.returncode == 0, "\n" + run.output
    return run


def test_a_commit_is_built_and_its_mirror_is_in_no_key(tmp_path: Path) -> None:
    commit = _forge(tmp_path / "forge")
    with Checkout(tmp_path / "checkout", shared_cache(tmp_path)) as checkout:
        checkout.write("packages/vecadd/BUILD", BUILD_FILE.format(commit=commit))
        first = _build(checkout, tmp_path / "forge")
        assert f"Fetch git {github('example/vecadd')}" in first.processes
        (wheel,) = checkout.wheels()
        names = zipfile.ZipFile(wheel).namelist()
        assert "vecadd/again.py" in names and any("vecadd/_C." in name for name in names)
        facts = json.loads(wheel.with_suffix(".facts.json").read_text())
        assert facts["source"] == (
            f"git {github('example/vecadd')}, commit {commit}, folder libs/vecadd"
        )

        (tmp_path / "forge").rename(tmp_path / "moved")
        second = _build(checkout, tmp_path / "moved")
        assert not [name for name in second.processes if name.startswith(("Fetch", "Compile"))]
