"""The compilers that a build calls: `gcc`, `g++`, `cc`, `c++` and `nvcc` on its PATH are this.

Each call is turned into one of the declared compiler, behind ccache where it compiles. Whatever
build system a package has, no more compilers run at once than the build has jobs: a call that
compiles first takes one of as many file locks. They free themselves when a process dies.

Run as `python3.12 -I -S compiler.py CONFIG.json NAME ARGUMENTS...`; it imports little, since a
large build starts it a thousand times.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass

_COMPILES = {"-c", "-S"}
_NVCC_COMPILES = {"-c", "--compile", "-dc", "--device-c", "-dw", "--device-w"}
_NVCC_WRITES = {*_NVCC_COMPILES, "-dlink", "--device-link", "-cubin", "--cubin", "-ptx", "--ptx"}
_NVCC_WRITES |= {"-fatbin", "--fatbin"}
_HOST_COMPILER = {"-ccbin", "--compiler-bindir"}
_POLL_SECONDS = 0.03


@dataclass(frozen=True)
class Config:
    """What a build's compilers are."""

    gcc: str
    gxx: str
    nvcc: str | None
    ccache: str | None
    slots: str
    jobs: int
    keep: str
    link_objects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call of a real compiler."""

    argv: list[str]
    slot: bool
    keep: str | None = None


def plan(config: Config, name: str, arguments: list[str], directory: str) -> Call:
    """What to run for a call of `name` with these arguments in this directory."""
    if name == "nvcc":
        return _plan_nvcc(config, arguments, directory)
    real = config.gxx if name in ("g++", "c++") else config.gcc
    if _COMPILES.intersection(arguments):
        launcher = [config.ccache] if config.ccache else []
        return Call([*launcher, real, *arguments], slot=True)
    if "-shared" in arguments:
        return Call([real, *arguments, *config.link_objects], slot=False)
    return Call([real, *arguments], slot=False)


def _plan_nvcc(config: Config, arguments: list[str], directory: str) -> Call:
    if config.nvcc is None:
        raise SystemExit("nvcc: this build has no CUDA toolkit")
    if not _NVCC_WRITES.intersection(arguments):
        return Call([config.nvcc, *arguments], slot=False)
    compiles = bool(_NVCC_COMPILES.intersection(arguments))
    launcher = [config.ccache] if config.ccache and compiles else []
    # nvcc hashes the names of its temporary files into symbols. By default they hold the process
    # id; kept files have names of their own, so that the same input gives the same object.
    output = os.path.join(directory, _output_of(arguments))
    keep = os.path.join(config.keep, hashlib.sha256(output.encode()).hexdigest()[:16])
    argv = [*launcher, config.nvcc, "-ccbin", config.gxx, "-keep", "-keep-dir", keep]
    return Call([*argv, *_without_host_compiler(arguments)], slot=True, keep=keep)


def _output_of(arguments: list[str]) -> str:
    for flag, value in zip(arguments, arguments[1:]):
        if flag in ("-o", "--output-file"):
            return value
    return " ".join(a for a in arguments if not a.startswith("-"))


def _without_host_compiler(arguments: list[str]) -> list[str]:
    """nvcc refuses two of them, and torch passes on whatever CC is."""
    kept = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _HOST_COMPILER:
            skip = True
        elif argument.split("=")[0] not in _HOST_COMPILER:
            kept.append(argument)
    return kept


def take_slot(directory: str, jobs: int) -> int:
    """Wait for one of the locks; it is held until the descriptor is closed."""
    os.makedirs(directory, exist_ok=True)
    while True:
        for number in range(jobs):
            path = os.path.join(directory, str(number))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        time.sleep(_POLL_SECONDS)


def execute(config: Config, call: Call) -> int:
    """Run the call; the exit code, 128 + N after signal N."""
    if not call.slot:
        os.execv(call.argv[0], call.argv)
    slot = take_slot(config.slots, config.jobs)
    try:
        if call.keep:
            os.makedirs(call.keep, exist_ok=True)
        pid = os.posix_spawn(call.argv[0], call.argv, os.environ)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(slot)
        if call.keep:
            shutil.rmtree(call.keep, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> int:
    """Read the configuration and run the real compiler."""
    with open(sys.argv[1], encoding="utf-8") as handle:
        data = json.load(handle)
    data["link_objects"] = tuple(data.get("link_objects", ()))
    config = Config(**data)
    return execute(config, plan(config, sys.argv[2], sys.argv[3:], os.getcwd()))


if __name__ == "__main__":
    sys.exit(main())
