"""The directory of compilers that a build finds first on its PATH, and its CUDA_HOME."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.sandbox import compiler
from cuda_wheels.sandbox.program import ProgramError

HOST_COMPILERS = ("gcc", "cc", "g++", "c++")


@dataclass(frozen=True)
class Toolchain:
    """The declared compilers; `cuda_home` is None for a build without CUDA."""

    gcc: str
    gxx: str
    cuda_home: Path | None


def check(toolchain: Toolchain) -> None:
    """Report every compiler that is not there."""
    missing = [p for p in (toolchain.gcc, toolchain.gxx) if not os.access(p, os.X_OK)]
    if toolchain.cuda_home and not os.access(toolchain.cuda_home / "bin/nvcc", os.X_OK):
        missing.append(str(toolchain.cuda_home / "bin/nvcc"))
    if missing:
        raise ProgramError(
            f"The toolchain names programs that are not there: {', '.join(missing)}. They were "
            "there when the build was planned; run it again, and `./pants --no-pantsd` if the "
            "message stays."
        )


def gcc_version(gcc: str) -> str:
    """The full version of a gcc."""
    return _first(_output([gcc, "-dumpfullversion"]), r"\d[\w.]*") or "unknown"


def nvcc_version(cuda_home: Path | None) -> str | None:
    """The version of the toolkit's nvcc, such as 13.0.88."""
    if cuda_home is None:
        return None
    return _first(_output([str(cuda_home / "bin/nvcc"), "--version"]), r"V(\d[\d.]*)") or "unknown"


def write_programs(
    directory: Path,
    toolchain: Toolchain,
    config: compiler.Config,
    *,
    ninja: str | None,
) -> Path | None:
    """Write the compilers' stand-ins into `directory`/bin; the CUDA_HOME to build with."""
    programs = directory / "bin"
    programs.mkdir(parents=True)
    settings = directory / "compilers.json"
    settings.write_text(json.dumps(dataclasses.asdict(config)), encoding="utf-8")
    shutil.copyfile(compiler.__file__, directory / "compiler.py")
    start = f"{_base_python()} -I -S {shlex.quote(str(directory / 'compiler.py'))} {settings}"
    for name in HOST_COMPILERS:
        _script(programs / name, f'exec {start} {name} "$@"')
    if ninja:
        _script(programs / "ninja", _ninja(ninja, config.jobs))
    if toolchain.cuda_home is None:
        return None
    _script(programs / "nvcc", f'exec {start} nvcc "$@"')
    return _cuda_home(directory / "cuda", toolchain.cuda_home, programs / "nvcc")


def _ninja(ninja: str, jobs: int) -> str:
    """ninja with a limit where it was given none: some build scripts let it take every core."""
    return (
        'for argument in "$@"; do\n'
        f'  case "$argument" in -j*) exec {shlex.quote(ninja)} "$@";; esac\n'
        "done\n"
        f'exec {shlex.quote(ninja)} -j {jobs} "$@"'
    )


def _cuda_home(home: Path, real: Path, nvcc: Path) -> Path:
    """The real toolkit, but for its nvcc."""
    (home / "bin").mkdir(parents=True)
    for entry in os.listdir(real):
        if entry != "bin":
            (home / entry).symlink_to(real / entry)
    for entry in os.listdir(real / "bin"):
        (home / "bin" / entry).symlink_to(nvcc if entry == "nvcc" else real / "bin" / entry)
    return home


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _base_python() -> str:
    return shlex.quote(os.path.realpath(sys.executable))


def _output(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _first(text: str, pattern: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(match.lastindex or 0) if match else None
