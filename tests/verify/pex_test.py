"""The one file that users get, started by each Python that is here."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from verify.testutil import find_python

# Where `./pants test` puts what `./pants package` makes.
PEX = Path("verify.pex")
TORCH = "__version__ = '2.11.0+cpu'\nclass version: cuda = None\n"
TORCH += "class cuda: is_available = staticmethod(lambda: False)\n"


def run(python: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [str(python), str(PEX.absolute()), *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_it_finds_the_torch_of_the_venv_whose_python_starts_it(
    version: str, tmp_path: Path
) -> None:
    base = find_python(version)
    if base is None:
        pytest.skip(f"there is no Python {version} here")
    venv = tmp_path / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    torch = fake.write_wheel(tmp_path, "torch", "2.11.0+cpu", "py3-none-any", {"torch.py": TORCH})
    with zipfile.ZipFile(torch) as archive:
        archive.extractall(site)
    tags = {"accel": "cpu", "cuda_arch": "", "python": version}
    house = fake.write_wheelhouse(tmp_path / "tree", tags, "cpu.torch2.11.0", "py3")
    code, found = run(venv / "bin/python", "install", house, "--in-place")
    assert (code, found["stages"][0]["verdict"]) == (0, "passed"), found["stages"]
    assert found["host"]["python"] == version
    (torch_line,) = [line for line in found["stages"][0]["lines"] if line["subject"] == "torch"]
    assert torch_line["version"] == "2.11.0+cpu"
