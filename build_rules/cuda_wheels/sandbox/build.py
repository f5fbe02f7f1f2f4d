"""The part of a build that runs shut in: the tree at its fixed path, the compilers, pip.

Everything that a compiler is told to read lies under the fixed path, so that no path of this
machine reaches a wheel, and two machines make the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.sandbox import compiler, cuda_toolkit, extensions, shims, toolchain
from cuda_wheels.sandbox.namespace import Isolation
from cuda_wheels.sandbox.request import Request

CCACHE_SIZE = "20G"

Step = Callable[[list[str], dict[str, str], Path], int]
"""Runs a program with these variables in this directory; its exit code is returned."""

# What the interpreter was built with (debug information, search paths of the machine that built
# it) must not reach a wheel: these replace sysconfig's. A target's `env` goes over them.
DEFAULT_FLAGS = {
    "CC": "gcc",
    "CXX": "g++",
    "CFLAGS": "-fno-strict-overflow -DNDEBUG -O3",
    "CXXFLAGS": "-fno-strict-overflow -DNDEBUG -O3",
    "LDSHARED": "gcc -shared",
    "LDCXXSHARED": "g++ -shared",
    "NVCC_THREADS": "1",
}


def call(argv: list[str], env: dict[str, str], directory: Path) -> int:
    """Run a program, with its command line in the log."""
    print("$ " + " ".join(argv), flush=True)
    done = subprocess.run(argv, env=env, cwd=directory, stdin=subprocess.DEVNULL, check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@dataclass(frozen=True)
class Build:
    """What runs shut in; `staging` gets the wheel, and ccache counts in `statistics`.

    `last_step` is given what builds the wheel when everything is prepared.
    """

    request: Request
    fixed: Path
    jobs: int
    bootstrap: Path
    real_cuda: Path | None
    staging: Path
    statistics: Path
    last_step: Step = call

    @property
    def work(self) -> Path:
        return self.fixed / "work"

    @property
    def env(self) -> Path:
        return self.fixed / "env"

    def __call__(self, isolation: Isolation) -> int:
        request = self.request
        print(f"network: {isolation.network}, build path: {isolation.build_path}", flush=True)
        # The modes of files are part of a wheel.
        os.umask(0o022)
        source = self.work / "source"
        copy_tree(request.source, source)
        for name in ("home", "tmp", "hooks"):
            (self.work / name).mkdir()
        shutil.copyfile(extensions.__file__, self.work / "hooks/sitecustomize.py")
        cuda_home = self._write_toolchain()
        env = self._environment(isolation, cuda_home)
        python = str(self.env / "bin/python")
        pip = [python, "-m", "pip"]
        if request.wheels:
            overlay = ["--target", str(self.work / "overlay"), *map(str, request.wheels)]
            flags = ["--no-deps", "--no-index", "--no-compile", "--quiet"]
            code = call([*pip, "install", *flags, *overlay], env, self.work)
            if code:
                return code
        flags = ["--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", "--verbose"]
        self.staging.mkdir(parents=True)
        wheel = [*pip, "wheel", *flags, "-w", str(self.staging), "."]
        return self.last_step(wheel, env, source)

    def _write_toolchain(self) -> Path | None:
        request = self.request
        real = None
        if self.real_cuda:
            real = self.fixed / "toolkit" if request.cuda_home else self.env / "cuda"
        tools = toolchain.Toolchain(request.gcc, request.gxx, real)
        config = compiler.Config(
            gcc=request.gcc,
            gxx=request.gxx,
            nvcc=str(real / "bin/nvcc") if real else None,
            ccache=str(self.bootstrap / "bin/ccache"),
            slots=str(self.work / "slots"),
            jobs=self.jobs,
            keep=str(self.work / "keep"),
            link_objects=tuple(
                str(path)
                for path in shims.compile_shims(
                    request.glibc_shims, request.gcc, self.work / "shims"
                )
            ),
        )
        own = self.env / "bin/ninja"
        ninja = str(own) if own.exists() else shutil.which("ninja")
        return toolchain.write_programs(self.work / "tools", tools, config, ninja=ninja)

    def _environment(self, isolation: Isolation, cuda_home: Path | None) -> dict[str, str]:
        request = self.request
        compilers = cuda_toolkit.cuda_digest(self.real_cuda) if self.real_cuda else ""
        path = [self.work / "tools/bin", self.work / "overlay/bin", self.env / "bin"]
        path += [Path(request.gcc).parent, Path("/usr/bin"), Path("/bin")]
        env = {
            **DEFAULT_FLAGS,
            "CUDA_VISIBLE_DEVICES": "",
            "LC_ALL": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            **request.env,
            **isolation.environment(),
            "PATH": ":".join(map(str, path)),
            "PYTHONPATH": f"{self.work / 'hooks'}:{self.work / 'overlay'}",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.work / "home"),
            "TMPDIR": str(self.work / "tmp"),
            "SOURCE_DATE_EPOCH": str(request.source_date_epoch),
            "MAX_JOBS": str(self.jobs),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1",
            **ccache_environment(request.cache, f"{request.identity} {compilers}"),
            "CCACHE_STATSLOG": str(self.statistics),
            "CCACHE_TEMPDIR": str(self.work / "tmp/ccache"),
        }
        if cuda_home:
            env["CUDA_HOME"] = env["CUDA_PATH"] = str(cuda_home)
        return env


def ccache_environment(cache: Path, compilers: str) -> dict[str, str]:
    """How ccache keeps objects; `compilers` tells the compilers of this build from all others."""
    return {
        "CCACHE_DIR": str(cache / "ccache"),
        "CCACHE_MAXSIZE": CCACHE_SIZE,
        # A compiler is known by what it is, not by the time that its file was written.
        "CCACHE_COMPILERCHECK": f"string:{compilers}",
        # Another environment made from uv's cache meanwhile links these headers, which changes
        # their ctime alone: without this, what was compiled at that moment would not be kept.
        "CCACHE_SLOPPINESS": "include_file_ctime",
    }


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with plain modes: 755 for directories and programs, 644 for other files."""
    target.mkdir(parents=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        destination = target / entry.name
        if entry.is_symlink():
            destination.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            copy_tree(Path(entry.path), destination)
        else:
            shutil.copyfile(entry.path, destination)
            destination.chmod(0o755 if entry.stat().st_mode & 0o100 else 0o644)
