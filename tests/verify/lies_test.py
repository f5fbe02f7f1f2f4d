"""Wheelhouses that lie, each by one change of a good one, and what the tool does with them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from cuda_wheels.audit.fake_lies import LIES
from verify import main as tool


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without pip, which takes wheels for whatever platform, and with a torch."""
    venv = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    torch = fake.write_wheel(venv, "torch", "2.11.0+cu130", "py3-none-any")
    with zipfile.ZipFile(torch) as archive:
        archive.extractall(site)
    return venv / "bin/python"


@pytest.mark.parametrize(("lie", "finding"), LIES, ids=[lie.__name__ for lie, _ in LIES])
@pytest.mark.parametrize("command", ["check", "install"])
def test_a_lie_is_found_and_not_installed(
    tmp_path: Path,
    python: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    lie: Callable[[Path], None],
    finding: str,
) -> None:
    house = fake.write_wheelhouse(tmp_path / "tree")

    def run(beside: Path) -> tuple[int, str]:
        options = ["--in-place", "--venv", str(beside)] if command == "install" else []
        code = tool.main([command, str(house), "--python", str(python), "--json", *options])
        streams = capsys.readouterr()
        if code == 2:
            return code, streams.err
        (stage,) = json.loads(streams.out)["stages"]
        return code, "\n".join(line.get("detail", "") for line in stage["lines"])

    code, said = run(tmp_path / "good")
    assert (code, (tmp_path / "good").exists()) == (0, command == "install"), said
    lie(house)
    code, said = run(tmp_path / "bad")
    # A wheelhouse that cannot even be read is no finding, but a source that is wrong.
    assert code == (2 if "is not JSON" in said else 1)
    assert finding in said
    assert not (tmp_path / "bad").exists()
