"""The recipes that build from git, on repositories of the same shapes that a test made.

Each recipe is taken as it is, with its options and patches; only the commit is the test's. Swin3D's
patches are left out: they are for lines of upstream's kernels.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuda_wheels.sandbox.git_testutil import Repository, git
from cuda_wheels.sandbox.probe import INCLUDE_DIRS
from cuda_wheels.tables.upstreams import github
from integration.checkout import FIXTURES, Checkout, Run, shared_cache
from integration.recipes import TARGET

POINTCEPT = "Pointcept/Pointcept"
SWIN3D = "microsoft/Swin3D"


@dataclass(frozen=True)
class Shape:
    """What a recipe's wheel must be."""

    version: str
    libraries: tuple[str, ...]
    repository: str = POINTCEPT
    has_gpu_code: bool = True
    patches: tuple[str, ...] = ()


WHEELS = {
    "pointgroup_ops": Shape("0.0.0", ("pointgroup_ops_cuda",)),
    "pointops": Shape("1.0", ("pointops/_C",)),
    "pointops2": Shape("1.0", ("pointops2_cuda",)),
    "pointrope": Shape("0.0.0", ("pointrope",)),
    "pointseg": Shape(
        "1.0",
        ("pointseg/_C",),
        has_gpu_code=False,
        patches=("0001-accept-a-python-without-opt.patch",),
    ),
    "swin3d": Shape(
        "0.0.0", ("Swin3D/sparse_dl/attn_cuda", "Swin3D/sparse_dl/knn_cuda"), repository=SWIN3D
    ),
}
SPARSEHASH = "google/dense_hash_map"
HAS_SPARSEHASH = any((place / SPARSEHASH).is_file() for place in INCLUDE_DIRS)


@dataclass(frozen=True)
class Forge:
    """Repositories below one folder; `commits` has the one of each that recipes take."""

    folder: Path
    commits: dict[str, str]

    @property
    def mirrors(self) -> str:
        to = {github(name): (self.folder / name).as_uri() for name in self.commits}
        return f"--cuda-wheels-source-mirrors={json.dumps(to)}"

    def pin(self, checkout: Checkout, package: str, repository: str) -> None:
        """Have a recipe take its repository's commit."""
        build_file = checkout.root / "packages" / package / "BUILD"
        text = build_file.read_text()
        assert f'github("{repository}")' in text
        commit = self.commits[repository]
        text, count = re.subn(r'commit="[0-9a-f]{40}"', f'commit="{commit}"', text)
        assert count == 1
        build_file.write_text(text)


def _build(checkout: Checkout, forge: Forge, packages: list[str]) -> Run:
    return checkout.pants(
        "--cuda-wheels-gpu-archs=9.0",
        forge.mirrors,
        "cuda-build",
        *(f"packages/{package}:{TARGET}" for package in packages),
    )


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    folder = tmp_path_factory.mktemp("forge")
    commits = {}
    for name, fixture in ((POINTCEPT, "pointcept"), (SWIN3D, "swin3d")):
        repository = Repository(folder / name)
        shutil.copytree(FIXTURES / fixture, repository.folder, dirs_exist_ok=True)
        commits[name] = repository.commit()
    return Forge(folder, commits)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, forge: Forge) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("shapes")
    with Checkout(root / "checkout", shared_cache(root)) as checkout:
        for package, shape in WHEELS.items():
            forge.pin(checkout, package, shape.repository)
        forge.pin(checkout, "pointcept", POINTCEPT)
        shutil.rmtree(checkout.root / "packages/swin3d/patches")
        yield checkout


def _facts(checkout: Checkout, package: str) -> dict:
    (path,) = checkout.dist.glob(f"{package}-*.facts.json")
    return json.loads(path.read_text())


def _libraries(checkout: Checkout, package: str) -> dict[str, bytes]:
    """The shared objects of a wheel, by their names without what Python adds."""
    (path,) = checkout.dist.glob(f"{package}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        return {
            name.partition(".")[0]: wheel.read(name)
            for name in wheel.namelist()
            if name.endswith(".so")
        }


def test_the_recipes_build(checkout: Checkout, forge: Forge) -> None:
    packages = [name for name in WHEELS if HAS_SPARSEHASH or name != "pointgroup_ops"]
    run = _build(checkout, forge, packages)
    assert run.returncode == 0, "\n" + run.output
    for package in packages:
        shape = WHEELS[package]
        facts = _facts(checkout, package)
        folder = f", folder libs/{package}" if shape.repository == POINTCEPT else ""
        assert facts["source"].endswith(f"commit {forge.commits[shape.repository]}{folder}")
        assert facts["wheel"]["version"].startswith(f"{shape.version}+cu130.torch2.11.0")
        assert facts["patches"] == list(shape.patches)
        libraries = _libraries(checkout, package)
        assert sorted(libraries) == sorted(shape.libraries)
        # setup.py of some compiles with -g.
        assert not any(b".debug_info" in content for content in libraries.values())
        images = ["sm_90"] if shape.has_gpu_code else []
        assert [list(one["images"]) for one in facts["wheel"]["libraries"]] == [images] * len(
            libraries
        )


def test_a_missing_header_is_told_before_anything_is_fetched(tmp_path: Path, forge: Forge) -> None:
    with Checkout(tmp_path / "checkout", shared_cache(tmp_path)) as checkout:
        # As if the machine lacked the header, whether or not it does.
        for path in (
            "packages/pointgroup_ops/BUILD",
            "build_rules/cuda_wheels/tables/system_headers.py",
        ):
            text = (checkout.root / path).read_text()
            assert f'"{SPARSEHASH}"' in text
            checkout.write(path, text.replace(f'"{SPARSEHASH}"', '"google/not_there"'))
        run = _build(checkout, forge, ["pointgroup_ops"])
    assert run.returncode == 1
    assert "<google/not_there>" in run.output
    assert "apt-get install libsparsehash-dev" in run.output
    assert not any(name.startswith("Fetch") for name in run.processes)


def test_the_code_base_is_packed_whole_and_twice_alike(checkout: Checkout, forge: Forge) -> None:
    commit = forge.commits[POINTCEPT]
    wheels = []
    for store in ("one", "two"):
        # A store of its own each, so that the second is no answer of the first.
        where = f"--local-store-dir={checkout.root.parent / store}"
        run = checkout.pants(where, forge.mirrors, "package", "packages/pointcept")
        assert run.returncode == 0, "\n" + run.output
        assert "Pack packages/pointcept:pointcept" in run.processes
        (path,) = checkout.dist.glob("pointcept-*.whl")
        wheels.append(path.read_bytes())
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
        path.unlink()
    assert path.name == f"pointcept-1.7.0.post8+g{commit[:7]}-py3-none-any.whl"
    assert wheels[0] == wheels[1]
    tracked = git(forge.folder / POINTCEPT, "ls-files", "pointcept", "configs").splitlines()
    assert sorted(name for name in names if ".dist-info/" not in name) == sorted(
        f"pointcept/{name}" if name.startswith("configs/") else name for name in tracked
    )
