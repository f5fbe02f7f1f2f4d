"""pip and uv install from a published wheelhouse in each of its forms, with nothing but its files."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest
from uv import find_uv_bin

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.sandbox import publish_file, publish_oci, publish_pypi
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.publish_oci import Repository
from cuda_wheels.sandbox.publish_pypi import PackageIndex
from cuda_wheels.sandbox.servers_testutil import oci_registry, package_index
from verify import main as tool
from verify.host import Host
from verify.testutil import web_server

TAGS = {"accel": "cpu", "cuda_arch": "", "python": "3.12"}
ROW = "linux-amd64/cpu/torch2.11.0-cp312"
DATE = "2026.11.30"
NOBODY = Credentials()
WHEELS = {"spconv": "2.3.8+cpu.torch2.11.0", "torch-scatter": "2.1.2+cpu.torch2.11.0"}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return fake.write_wheelhouse(tmp_path / "house", TAGS, "cpu.torch2.11.0", "py3")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """What a package index has: torch, and what the wheelhouse pins."""
    folder = tmp_path / "others"
    folder.mkdir()
    fake.write_wheel(folder, "torch", "2.11.0", "py3-none-any")
    fake.write_wheel(folder, *fake.LEAF)
    return folder


class Installer:
    """pip or uv with an environment of its own, and nothing of the shell's settings."""

    def __init__(self, name: str, folder: Path) -> None:
        venv.create(folder, with_pip=name == "pip")
        python = str(folder / "bin/python")
        pip = [python, "-m", "pip", "install", "--isolated", "--no-cache-dir"]
        uv = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", python]
        self._command = pip if name == "pip" else uv
        self._check = [python, "-m", "pip", "check"]
        if name == "uv":
            self._check = [find_uv_bin(), "pip", "check", "--python", python]
        self._python = python

    def install(self, *options: object) -> None:
        self._run([*self._command, *map(str, options)])

    def check(self) -> None:
        """Nothing that a package requires is missing."""
        self._run(self._check)

    def versions(self) -> dict[str, str]:
        code = (
            "import importlib.metadata as m, json, spconv, torch_scatter;"
            "print(json.dumps({one.name.replace('_', '-'): one.version for one in m.distributions()}))"
        )
        return dict(json.loads(self._run([self._python, "-c", code])))

    def _run(self, command: Sequence[str]) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON"))}
        done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest, tmp_path: Path) -> Installer:
    return Installer(str(request.param), tmp_path / "venv")


def complete(installer: Installer, requirements: Path, others: Path, *wheels: object) -> None:
    """As docs/wheelhouse.md has it: torch, what is pinned, then the wheels."""
    from_others = ("--no-index", "--find-links", others)
    installer.install(*from_others, "torch==2.11.0")
    installer.install(*from_others, "--require-hashes", "--no-deps", "-r", requirements)
    installer.install("--no-deps", *wheels, *WHEELS)
    installer.check()
    found = installer.versions()
    assert {**WHEELS, "leaf": "1.0", "torch": "2.11.0"}.items() <= found.items()


def test_from_a_static_index(
    tmp_path: Path, house: Path, others: Path, installer: Installer
) -> None:
    publish_file.publish(house, tmp_path / "index", ROW, date=DATE)
    release = tmp_path / "index" / ROW / DATE
    with web_server(tmp_path / "index") as address:
        index = f"{address}/{ROW}/{DATE}/simple/"
        complete(installer, release / "requirements-pypi.txt", others, "--index-url", index)


def test_from_a_registry(
    tmp_path: Path,
    house: Path,
    others: Path,
    installer: Installer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = Host("Linux", "x86_64", "2.35", "3.12", None, None, (), 100.0, "/c", True)
    monkeypatch.setattr(tool, "read_host", lambda python, folder: at)
    (scratch := tmp_path / "scratch").mkdir()
    with oci_registry(tmp_path / "server") as server:
        repository = Repository(server.url, "team/wheels", NOBODY, scratch)
        publish_oci.publish(house, repository, ROW, date=DATE)
        source = f"oci:{server.url}/team/wheels"
        assert tool.main(["select", source, "--download", str(tmp_path / "got")]) == 0
    got = tmp_path / "got" / ROW / DATE
    wheels = ("--no-index", "--find-links", got)
    complete(installer, got / "requirements-pypi.txt", others, *wheels)


def test_from_a_package_index(
    tmp_path: Path, house: Path, others: Path, installer: Installer
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    with package_index(tmp_path / "server") as server:
        index = PackageIndex(f"{server.url}/", f"{server.url}/simple/", NOBODY, scratch)
        publish_pypi.publish(house, index, ROW, date=DATE)
        options = ("--index-url", f"{server.url}/simple/", "--find-links", others)
        version = "2026.11.30+linux.amd64.cpu.torch2.11.0.cp312"
        installer.install(*options, f"cuda-wheelhouse=={version}")
        installer.check()
    found = installer.versions()
    assert {**WHEELS, "leaf": "1.0", "cuda-wheelhouse": version}.items() <= found.items()
