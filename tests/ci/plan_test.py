"""What a CI run builds, decided from the matrix and from what was changed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(".ci/plan").absolute()


def _load() -> Any:
    loader = importlib.machinery.SourceFileLoader("plan", str(PROGRAM))
    spec = importlib.util.spec_from_loader("plan", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["plan"] = module
    loader.exec_module(module)
    return module


plan = _load()


def wheel(address: str, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "arch": "amd64",
        "lock": f"3rdparty/torch/{address.rpartition(':')[2]}.txt",
        "status": "buildable",
        "reasons": (),
        "build_requires": (),
        **changes,
    }
    return plan.Wheel(address, **values)


SKIPPED = {"status": "skipped", "reasons": ("no code for a CPU",)}
TOOLKIT = {"reasons": ("needs an installed CUDA 12.8 toolkit",)}
WHEELS = [
    wheel("packages/cumm:cu130"),
    wheel("packages/spconv:cu130", build_requires=("packages/cumm:cu130",)),
    wheel("packages/scatter:cu130"),
    wheel("packages/cumm:cpu", **SKIPPED),
    wheel("packages/scatter:cpu"),
    wheel("packages/scatter:cu128", **TOOLKIT),
    wheel("packages/scatter:cu129", status="pending", reasons=("no lock",)),
]
HOUSES = [
    plan.House(f"packages:{row}", "amd64", tuple(f"packages/{one}:{row}" for one in names))
    for row, names in {
        "cu130": ("cumm", "spconv", "scatter"),
        "cpu": ("cumm", "scatter"),
        "cu128": ("scatter",),
        "cu129": ("scatter",),
    }.items()
]
CUMM = ["packages/cumm:cu130", "packages/spconv:cu130"]


def decide(
    changed: Collection[str] | None, reached: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    found = plan.decide(WHEELS, HOUSES, changed, reached)
    return list(found.wheels), [house.address for house in found.houses]


def test_without_a_commit_everything_that_can_be_built() -> None:
    found = plan.decide(WHEELS, HOUSES, None)
    assert found.wheels == (*CUMM, "packages/scatter:cu130", "packages/scatter:cpu")
    assert [house.address for house in found.houses] == ["packages:cu130", "packages:cpu"]
    assert found.left_out == {
        "packages/scatter:cu128": "needs an installed CUDA 12.8 toolkit",
        "packages/scatter:cu129": "pending: no lock",
        "packages:cu128": "packages/scatter:cu128: needs an installed CUDA 12.8 toolkit",
        "packages:cu129": "packages/scatter:cu129: pending: no lock",
    }


# What Pants lists for a patch of cumm: its targets, and all that depend on one of them.
PATCHED = ["packages/cumm:src", *CUMM, "packages/cumm:cpu", "packages:cu130", "packages:cpu"]


@pytest.mark.parametrize(
    ("changed", "reached", "wheels", "houses"),
    [
        pytest.param(
            ["packages/cumm/patches/0001-x.patch"], PATCHED, CUMM, ["packages:cu130"], id="patch"
        ),
        pytest.param(["docs/ci.md"], [], [], [], id="document"),
        pytest.param(["build_rules/cuda_wheels/sandbox/x_test.py"], [], [], [], id="test"),
        pytest.param(["build_rules/cuda_wheels/audit/fake_lies.py"], [], [], [], id="fake"),
        pytest.param(
            ["3rdparty/torch/cu130.txt"],
            [],
            [*CUMM, "packages/scatter:cu130"],
            ["packages:cu130"],
            id="lock-of-a-row",
        ),
        pytest.param(
            ["3rdparty/python/pypi.txt"], [], [], ["packages:cu130", "packages:cpu"], id="pure"
        ),
        pytest.param(["x"], ["packages:cpu"], [], ["packages:cpu"], id="the-wheelhouse-itself"),
        pytest.param(
            ["x"], ["packages/cumm:cu130"], CUMM, ["packages:cu130"], id="built-on-what-changed"
        ),
        pytest.param(["x"], ["packages/cumm:cpu", "packages:cpu"], [], [], id="skipped-alone"),
    ],
)
def test_a_change_reaches_what_depends_on_it(
    changed: list[str], reached: list[str], wheels: list[str], houses: list[str]
) -> None:
    assert decide(changed, reached) == (wheels, houses)


@pytest.mark.parametrize(
    "path",
    [
        "build_rules/macros.py",
        "build_rules/cuda_wheels/sandbox/compile.py",
        "images/pins.py",
        "pants.toml",
        "pants.docker.toml",
        "3rdparty/python/wheel-tools.txt",
    ],
)
def test_what_is_in_every_key_reaches_everything(path: str) -> None:
    assert decide([path]) == decide(None)


def test_the_tables_name_files_that_there_are() -> None:
    names = [one for one in (*plan.REACHES_ALL, *plan.REACHES_WHEELHOUSES) if "*" not in one]
    assert [name for name in names if not Path(name).is_file()] == []


def test_no_target_is_built_twice() -> None:
    matrix = {
        "include": [
            {"name": "a", "targets": ["cumm", "x"]},
            {"name": "b", "targets": ["cumm", "y"]},
            {"name": "c", "targets": ["cumm"]},
        ]
    }
    assert plan.once_each(matrix) == {
        "include": [{"name": "a", "targets": ["cumm", "x"]}, {"name": "b", "targets": ["y"]}]
    }


def test_wheelhouses_run_on_machines_of_their_kind() -> None:
    house = plan.House("packages:arm64-cu130", "arm64", ())
    (entry,) = plan.house_matrix([house], {"arm64": "ubuntu-24.04-arm"})["include"]
    assert (entry["name"], entry["runner"]) == ("arm64-cu130", "ubuntu-24.04-arm")
    json.dumps(entry)


def test_a_program_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "pants").write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    (tmp_path / "pants").chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cuda-matrix" in done.stderr and "out of order" in done.stderr
