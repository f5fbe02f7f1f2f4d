"""A toy repository around the real launcher, with locks of wheels that are made here.

The launcher runs unchanged. Its "Pants" is a wheel whose command prints what it was started with,
its pex tool writes a few bytes, and its Python 3.9 copies a ready venv where asked for a new one:
a set-up takes a second instead of a minute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

LAUNCHER = Path("pants").resolve()
OPTIONS = Path("pants.toml").resolve()

PANTS_MAIN = """
import json, os, sys
class ProcessManager:
    class Timeout(Exception):
        pass
def main():
    if sys.argv[1:] == ["busy"]:
        raise ProcessManager.Timeout("exceeded timeout of 60 seconds while waiting for pantsd to start")
    if sys.argv[1:] == ["broken"]:
        raise ValueError("another fault")
    variables = {k: v for k, v in os.environ.items() if k.startswith("PANTS_")}
    print(json.dumps({"arguments": sys.argv[1:], "variables": variables}))
"""
PEX_MAIN = """
import sys
with open(sys.argv[sys.argv.index("-o") + 1], "w") as pex:
    pex.write("a pex tool")
"""
# The programs that the launcher calls: a PATH of these alone holds no Python.
PROGRAMS = (
    "bash cat chmod cut dirname env flock grep mkdir mktemp mv rm sed sha256sum stat uname".split()
)


def write_wheel(directory: Path, name: str, version: str, files: Mapping[str, str]) -> str:
    """A pure wheel of `files`; returns its line in a lock."""
    stem = f"{name.replace('.', '_')}-{version}"
    members = {
        **files,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    path = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in members.items():
            wheel.writestr(member, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record.append(f"{member},sha256={digest.decode().rstrip('=')},{len(text)}")
        wheel.writestr(
            f"{stem}.dist-info/RECORD", "\n".join([*record, f"{stem}.dist-info/RECORD,,"])
        )
    return (
        f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    )


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@dataclass(frozen=True)
class Run:
    """What the launcher did, and what the toy Pants was told."""

    exit_code: int
    stderr: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def set_up(self) -> bool:
        return "setting up Pants" in self.stderr


@dataclass(frozen=True)
class Toy:
    """A repository with the launcher, the wheels of its locks, a Python 3.9 and a PATH."""

    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def wheels(self) -> Path:
        return self.root / "wheels"

    @property
    def python(self) -> Path:
        return self.root / "bin/python3.9"

    @property
    def programs(self) -> Path:
        """A PATH with all that the launcher calls, and no Python."""
        return self.root / "programs"

    def cache(self, name: str) -> Path:
        """What `XDG_CACHE_HOME` names for the caches of one test."""
        return self.root / "caches" / name

    def homes(self, cache: str) -> list[Path]:
        return sorted((self.cache(cache) / "cuda-wheels").glob("pants-*"))

    def environment(self, cache: str, **variables: str) -> dict[str, str]:
        """A user's, with pip's own configuration out of the way."""
        return {
            "PATH": str(self.programs),
            "HOME": str(self.root / "home"),
            "XDG_CACHE_HOME": str(self.cache(cache)),
            "PANTS_PYTHON": str(self.python),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            **variables,
        }

    def start(self, environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.repository / "pants"), *arguments],
            env={name: value for name, value in environment.items() if value != ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, environment: Mapping[str, str], *arguments: str) -> Run:
        return finish(self.start(environment, *arguments))


def finish(process: subprocess.Popen[str]) -> Run:
    out, err = process.communicate()
    told = json.loads(out) if out else {"arguments": (), "variables": {}}
    return Run(process.returncode, err, tuple(told["arguments"]), told["variables"])


def make_light_venv(venv: Path, libraries: Path) -> None:
    """A venv whose pip stands elsewhere, so that a copy of it is a handful of files."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (site,) = venv.glob("lib/python3.*/site-packages")
    site.rename(libraries)
    site.mkdir()
    (site / "pip.pth").write_text(f"{libraries}\n")


def make(root: Path) -> Toy:
    toy = Toy(root)
    locks = toy.repository / "3rdparty/python"
    for directory in (locks, toy.wheels, toy.programs, root / "home"):
        directory.mkdir(parents=True)
    shutil.copy(LAUNCHER, toy.repository / "pants")
    shutil.copy(OPTIONS, toy.repository / "pants.toml")
    pants = {
        "toy_pants.py": PANTS_MAIN,
        "pants/engine/internals/native_engine.so": "",
        "pantsbuild_pants-2.17.1.dist-info/entry_points.txt": (
            "[console_scripts]\npants = toy_pants:main\n"
        ),
    }
    (locks / "pants.txt").write_text(write_wheel(toy.wheels, "pantsbuild.pants", "2.17.1", pants))
    pex = {"pex/__init__.py": "", "pex/__main__.py": PEX_MAIN}
    (locks / "pex.txt").write_text(write_wheel(toy.wheels, "pex", "2.1.163", pex))

    for program in PROGRAMS:
        (toy.programs / program).symlink_to(shutil.which(program) or f"/bin/{program}")
    make_light_venv(root / "venv", root / "pip")
    copy = shutil.which("cp")
    write_program(
        toy.python,
        f"""if [ "$1 $2" = "-m venv" ]; then exec "{copy}" -a "{root}/venv" "$3"; fi\n"""
        f'exec "{sys.executable}" "$@"',
    )
    return toy
