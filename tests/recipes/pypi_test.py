"""The lock of what a wheelhouse takes from the package index, against what the packages ask for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from uv import find_uv_bin

LOCK = Path("3rdparty/python/pypi.txt")
REQUIREMENTS = sorted(Path("packages").glob("*/requirements.in"))
# What is built here, and what comes from the index as it is.
NATIVE = [path for path in REQUIREMENTS if "native_package(" in path.with_name("BUILD").read_text()]
PURE = [path for path in REQUIREMENTS if path not in NATIVE]


def locked(lock: Path) -> dict[str, Version]:
    pins = re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in pins}


def requirements(path: Path) -> list[Requirement]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_these_packages_come_from_the_index() -> None:
    assert [path.parent.name for path in PURE] == ["ocnn", "pccm", "torch-geometric"]


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.parent.name)
def test_a_pure_package_asks_for_itself(path: Path) -> None:
    (wanted,) = requirements(path)
    assert wanted.name == path.parent.name


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.parent.name)
def test_the_lock_has_what_a_package_asks_for(path: Path) -> None:
    for wanted in requirements(path):
        assert locked(LOCK)[canonicalize_name(wanted.name)] in wanted.specifier


def test_the_lock_is_complete(tmp_path: Path) -> None:
    """Each package that it pins finds what it requires there too, but for torch's own index."""
    uv = find_uv_bin()
    environment = tmp_path / "venv"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, environment], check=True)
    python = str(environment / "bin/python")
    options = ["--python", python, "--no-deps", "--require-hashes", "--only-binary=:all:"]
    subprocess.run([uv, "pip", "install", "-q", *options, "-r", str(LOCK)], check=True)
    checked = subprocess.run(
        [uv, "pip", "check", "--python", python], capture_output=True, text=True, check=False
    )
    missing = re.findall(r"requires `([\w.-]+)", checked.stderr)
    assert {canonicalize_name(name) for name in missing} <= {"torch", "torchvision"}, checked.stderr


def test_every_pin_has_hashes() -> None:
    pins = re.split(r"^(?=\S)", LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert pins and all("--hash=sha256:" in pin for pin in pins)


def test_torch_never_comes_from_there() -> None:
    assert not {"torch", "torchvision", "triton"}.intersection(locked(LOCK))


def test_torch_geometric_does_not_need_pyg_lib() -> None:
    assert locked(LOCK)["torch-geometric"] < Version("2.8")


def test_pccm_is_the_one_that_cumm_and_spconv_are_compiled_with() -> None:
    environments = [locked(path) for path in Path("3rdparty/torch").glob("*.txt")]
    versions = {lock["pccm"] for lock in environments if "pccm" in lock}
    assert versions == {locked(LOCK)["pccm"]}
