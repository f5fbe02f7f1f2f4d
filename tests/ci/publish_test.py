"""`.ci/publish`: wheelhouses that another job built, published without Pants."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.sandbox.servers_testutil import PASSWORD, USER, oci_registry
from cuda_wheels.sandbox.testutil import script
from cuda_wheels.tables.publish_addresses import PublishAddressError, parse_address

PROGRAM = Path(".ci/publish").absolute()


def publish(folder: Path, address: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PEX", "ORAS"))}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), address],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two wheelhouses, as the artefacts of several jobs are put together."""
    fake.write_wheelhouse(tmp_path / "built")
    fake.write_wheelhouse(tmp_path / "built", {"torch": "2.13.0"}, "cu130.torch2.13.0")
    return tmp_path / "built"


def test_all_of_a_folder(folder: Path, tmp_path: Path) -> None:
    done = publish(folder, (tmp_path / "index").as_uri())
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "index/index.json").read_text())
    rows = ["linux-amd64/cu130/torch2.11.0-cp312", "linux-amd64/cu130/torch2.13.0-cp312"]
    assert [one["path"].rpartition("/")[0] for one in document["wheelhouses"]] == rows


def test_one_that_lies_does_not_keep_the_others(folder: Path, tmp_path: Path) -> None:
    next(folder.glob("linux-*/*/torch2.11*/*.whl")).write_bytes(b"other")
    done = publish(folder, (tmp_path / "index").as_uri())
    assert done.returncode == 1
    assert "SHA256SUMS says" in done.stderr
    (entry,) = json.loads((tmp_path / "index/index.json").read_text())["wheelhouses"]
    assert "torch2.13.0" in entry["path"]


def test_to_a_registry_with_a_password(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(next(folder.glob("linux-*/*/torch2.13*")))
    with oci_registry(tmp_path / "server", password=True) as server:
        # Of the owner's name on the other side, capitals are not wanted here.
        to = f"oci:{server.url}/Team/wheels"
        done = publish(folder, to, ORAS_USER=USER, ORAS_PASS=PASSWORD)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr + server.said()
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, server.url, USER, PASSWORD)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        with opener.open(f"{server.url}/v2/team/wheels/tags/list") as answer:
            (tag,) = json.loads(answer.read())["tags"]
    assert tag.startswith("linux-amd64-cu130-torch2.11.0-cp312-")


def load_program() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("ci_publish", str(PROGRAM))
    spec = importlib.util.spec_from_loader("ci_publish", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_python_that_does_not_start_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, real = load_program(), sys.executable
    # As pyenv's for a version that is installed and not chosen.
    shim = script(tmp_path / "shims/python3.12", "echo pyenv: not found >&2; exit 127")
    older = script(tmp_path / "older/python3.12", "exit 1")
    monkeypatch.setattr(program.sys, "executable", shim)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{Path(shim).parent}:{Path(older).parent}:{tmp_path}/nowhere")
    with pytest.raises(
        SystemExit, match="needs Python 3.12, and none that starts is on PATH or in"
    ):
        program.find_python()
    chosen = script(tmp_path / "pyenv/versions/3.12.9/bin/python3.12", f'exec {real} "$@"')
    assert program.find_python() == chosen


@pytest.mark.parametrize(
    "address",
    ["https://wheels.example", "file:wheels", "pypi:https://x/?a=b", "oci:https://ada:hush@host/a"],
)
def test_an_address_is_refused_as_the_goal_refuses_it(folder: Path, address: str) -> None:
    done = publish(folder, address)
    with pytest.raises(PublishAddressError) as error:
        parse_address(address, {})
    assert (done.returncode, done.stderr.strip()) == (1, str(error.value))
    assert "hush" not in done.stderr


def test_a_folder_without_wheelhouses(tmp_path: Path) -> None:
    done = publish(tmp_path, "file:///x")
    assert done.returncode == 1 and "There is no wheelhouse" in done.stderr
