"""Which compilers an environment has, whether they will do, and their part of the cache key."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.process import Process, ProcessCacheScope, ProcessResult
from pants.engine.rules import Get, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from cuda_wheels.rules.place import Place
from cuda_wheels.rules.programs import PROGRAM_ENV, ProgramProcess
from cuda_wheels.rules.session_settings import SessionSettings
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.accelerators import MACHINES, cuda_version
from cuda_wheels.tables.gcc import gcc_problem
from cuda_wheels.tables.rows import Row
from cuda_wheels.tables.system_headers import SYSTEM_HEADERS, missing_header
from cuda_wheels.tables.torch import toolkit_version

# torch 2.11.0 with CUDA 13.0's compiler took 4.8 GB unpacked; its downloads stay in uv's cache.
ENVIRONMENT_GB = 8.0
OBJECTS_GB = 2.0


@dataclass(frozen=True)
class Host:
    """What the probe found where the wheels are compiled; absent things are None.

    Compared by what can change a wheel: free disk space and GPUs are not compared. `headers` are
    those of `tables.system_headers` that are there, each with a sha256 over its content.
    `compilers` are the names that `gcc` and `gxx` were looked for by.
    """

    machine: str
    glibc: str | None
    python_version: str
    python_headers: bool
    python_venv: bool
    gcc: Compiler | None
    gxx: Compiler | None
    git: str | None
    cuda_home: CudaHome | None
    headers: FrozenDict[str, str] = FrozenDict()
    image: ToolchainImage | None = None
    compilers: tuple[str, str] = ("gcc", "g++")

    @property
    def toolchain_identity(self) -> str:
        """sha256 over everything of the host's toolchain that can change an object's bytes."""
        return self.identity_with(())

    def identity_with(self, headers: Iterable[str]) -> str:
        """The toolchain's identity for a package that includes these headers of the system."""
        facts = [self.machine, self.glibc, self.python_version]
        facts += [repr(self.gcc), repr(self.gxx), repr(self.cuda_home)]
        facts += [f"{name} {self.headers.get(name)}" for name in sorted(headers)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass(frozen=True)
class Compiler:
    """A host compiler; `sha256` is over the driver and the programs that it runs.

    `links_cxx`: it links the library of C++. Where it does not nothing is compiled, so the
    toolchain's identity, which the other three are in, goes without.
    """

    path: str
    version: str
    sha256: str
    links_cxx: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class CudaHome:
    """An installed CUDA toolkit; `sha256` is over the programs of its compiler."""

    path: str
    nvcc_version: str
    sha256: str


@dataclass(frozen=True)
class ToolchainImage:
    """What a toolchain image says of itself; its compilers are those of `Host`.

    `name` has the tag that stands for all it is made of. `platform_policy` is the manylinux policy
    that its C library allows; None for an image whose wheels are for its own system.
    """

    name: str
    base: str
    arch: str
    accel: str
    platform_policy: str | None
    cuda_home: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """What the probe found that changes between two runs and must not reach a cache key.

    `no_cuda_home` is the directory that the option names, where it holds no toolkit. `nvidia_smi`
    is that program's path; `driver` and `driver_cuda`, the newest CUDA that the driver runs, are
    None where it does not tell.
    """

    disk_free_gb: float
    environments: tuple[str, ...]
    gpus: tuple[str, ...]
    no_cuda_home: str | None = None
    nvidia_smi: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None


@dataclass(frozen=True)
class ProbeResult:
    """What the probe found, in the part that cache keys may hold and the part that they must not."""

    host: Host
    surroundings: Surroundings


def parse_probe(
    facts: Mapping[str, Any], cuda_home: str | None, compilers: tuple[str, str] = ("gcc", "g++")
) -> ProbeResult:
    """The probe's JSON as values; the others are the options that it was asked about."""

    def compiler(name: str) -> Compiler | None:
        found = facts[name]
        if not found:
            return None
        links_cxx = found.get("links_cxx", True)
        return Compiler(found["path"], found["version"], found["sha256"], links_cxx)

    home = facts["cuda_home"]
    image = facts.get("image")
    if image:
        cuda_home, compilers = image["cuda_home"], (image["gcc"], image["gxx"])
    return ProbeResult(
        host=Host(
            machine=facts["machine"],
            glibc=facts["glibc"],
            python_version=facts["python"]["version"],
            python_headers=facts["python"]["include_ok"],
            python_venv=facts["python"]["venv_ok"],
            gcc=compiler("gcc"),
            gxx=compiler("gxx"),
            git=facts["git"]["path"] if facts["git"] else None,
            cuda_home=(
                CudaHome(home["path"], home["nvcc_version"], home["sha256"]) if home else None
            ),
            headers=FrozenDict(facts["headers"]),
            image=(
                ToolchainImage(
                    name=image["name"],
                    base=image["base"],
                    arch=image["arch"],
                    accel=image["accel"],
                    platform_policy=image["platform_policy"],
                    cuda_home=image["cuda_home"],
                )
                if image
                else None
            ),
            compilers=compilers,
        ),
        surroundings=Surroundings(
            disk_free_gb=float(facts["disk_free_gb"]),
            environments=tuple(facts["environments"]),
            gpus=tuple(facts["gpus"]),
            no_cuda_home=cuda_home if cuda_home and not home else None,
            nvidia_smi=facts["nvidia_smi"],
            driver=facts["driver"],
            driver_cuda=facts["driver_cuda"],
        ),
    )


@rule(desc="Look at the toolchain", level=LogLevel.DEBUG)
async def probe(
    options: CudaWheelsSubsystem, settings: SessionSettings, place: Place
) -> ProbeResult:
    environment = await Get(EnvironmentVars, EnvironmentVarsRequest(["PATH"]))
    request = ProgramProcess.create(
        "probe",
        {
            # A worker has settings of its own: another may run the next action, and addresses with
            # credentials have no business in the server's store.
            "settings": None if place.is_remote else json.loads(settings.content),
            "cuda_home": options.cuda_home,
            "compilers": {"gcc": options.c_compiler, "gxx": options.cxx_compiler},
            "headers": {name: header.content for name, header in SYSTEM_HEADERS.items()},
        },
        description="Look at the toolchain",
        locks=(),
        # The host can change under a live pantsd; the settings file must be this session's.
        cache_scope=ProcessCacheScope.PER_SESSION,
        env=tuple({**PROGRAM_ENV, "PATH": environment.get("PATH", os.defpath)}.items()),
    )
    result = await Get(ProcessResult, Process, await Get(Process, ProgramProcess, request))
    compilers = (options.c_compiler, options.cxx_compiler)
    return parse_probe(json.loads(result.stdout), options.cuda_home, compilers)


@rule
async def host_of(found: ProbeResult) -> Host:
    return found.host


@rule
async def surroundings_of(found: ProbeResult) -> Surroundings:
    return found.surroundings


def image_problems(host: Host, row: Row) -> tuple[str, ...]:
    """A sentence if the toolchain image that wheels are compiled in is for other rows."""
    image = host.image
    if image is None or (image.arch, image.accel) == (row.arch, row.accel):
        return ()
    return (
        f"The target is for {row.arch} and {row.accel}, but the image of its environment, "
        f"{image.name}, is for {image.arch} and {image.accel}. Have the `environment` of the target "
        f"name the one of its row, `{row.arch}-{row.accel}`.",
    )


def host_problems(host: Host, row: Row) -> tuple[str, ...]:
    """Everything that this host lacks to compile for a row, each with what installs it."""
    if host.machine != MACHINES.get(row.arch):
        return (
            f"The target is for {row.arch}, but the machine that its environment leads to is "
            f"{host.machine}. A worker of a cluster that says `Arch={row.arch}` of itself, and is "
            "none, must be given the name of its own architecture.",
        )
    return tuple(
        problem
        for problem in (
            *_python_problems(host),
            _missing_compiler(host.gcc, host.compilers[0], "C compiler", "gcc", "c_compiler"),
            _missing_compiler(host.gxx, host.compilers[1], "C++ compiler", "g++", "cxx_compiler"),
            host.gxx and gcc_problem(row.accel, host.gxx.version),
            host.gxx and _no_cxx_problem(host.gxx),
            _missing_git(host),
            _nvcc_problem(host, row),
        )
        if problem
    )


def header_problems(host: Host, headers: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each known header that a package includes and this host lacks."""
    return tuple(
        missing_header(name)
        for name in headers
        if name in SYSTEM_HEADERS and name not in host.headers
    )


def cuda_home_problems(surroundings: Surroundings) -> tuple[str, ...]:
    """A sentence if `cuda_home` names no toolkit: another compiler than that is no substitute."""
    home = surroundings.no_cuda_home
    if home is None:
        return ()
    relative = "" if os.path.isabs(home) else " It is not absolute."
    return (
        f"`[cuda-wheels].cuda_home` is {home!r}, but {os.path.join(home, 'bin/nvcc')} is not there "
        f"or tells no version.{relative} Point it to an installed CUDA toolkit, or leave it out: "
        "CUDA 13's compiler comes with the build environment.",
    )


def disk_problems(surroundings: Surroundings, lock_sha256: str) -> tuple[str, ...]:
    """Whether there is room for what a row still needs: its objects, and its build environment.

    `lock_sha256` is the digest of its lock, which the name of a build environment begins with.
    """
    there = any(lock_sha256.startswith(name.split("-")[0]) for name in surroundings.environments)
    needed = OBJECTS_GB if there else OBJECTS_GB + ENVIRONMENT_GB
    if surroundings.disk_free_gb >= needed:
        return ()
    what = "The objects of a package" if there else "A build environment and a package's objects"
    return (
        f"The disk of Pants' named caches has {surroundings.disk_free_gb:.1f} GB free. {what} "
        f"need {needed:.0f} GB. Free some, or move the caches with `[GLOBAL].named_caches_dir` and "
        "`[GLOBAL].local_store_dir`.",
    )


def _missing_compiler(
    found: Compiler | None, asked: str, what: str, default: str, option: str
) -> str | None:
    if found is not None:
        return None
    # Debian's packages are called like the compilers in them.
    package = asked if re.fullmatch(rf"{re.escape(default)}-\d+", asked) else default
    return (
        f"`[cuda-wheels].{option}` is `{asked}`, but no {what} of that name is there and runs. "
        f"Install it (`apt-get install {package}`), or name another one there."
    )


def _no_cxx_problem(found: Compiler) -> str | None:
    if found.links_cxx:
        return None
    name = os.path.basename(found.path)
    return (
        f"`[cuda-wheels].cxx_compiler` leads to {found.path}, which does not link the library of C++: "
        f"it is a C compiler. Name the C++ compiler, for instance `{name.replace('gcc', 'g++')}`."
    )


def _missing_git(host: Host) -> str | None:
    if host.git is not None:
        return None
    return "git, which applies patches, was not found on PATH. Install it (`apt-get install git`)."


def _python_problems(host: Host) -> tuple[str, ...]:
    version = ".".join(host.python_version.split(".")[:2])
    problems = []
    if not host.python_headers:
        problems.append(
            f"Python {version} has no headers (Python.h). Install them "
            f"(`apt-get install python{version}-dev`), or use a Python that has them "
            f"(`pyenv install {version}`, `uv python install {version}`)."
        )
    if not host.python_venv:
        problems.append(
            f"Python {version} cannot make virtual environments (no `venv` or `ensurepip`). "
            f"Install them (`apt-get install python{version}-venv`)."
        )
    return tuple(problems)


def _nvcc_problem(host: Host, row: Row) -> str | None:
    declared = cuda_version(row.accel)
    if declared is None:
        return None
    if host.cuda_home is None:
        return no_nvcc_problem(row)
    found = host.cuda_home.nvcc_version
    if found.split(".")[:2] == declared.split("."):
        return None
    return (
        f"`{row.accel}` is CUDA {declared}; the toolkit in `[cuda-wheels].cuda_home` "
        f"({host.cuda_home.path}) is CUDA {found}. Point the option to a CUDA {declared} toolkit."
    )


def no_nvcc_problem(row: Row) -> str | None:
    """That no lock can hold the row's compiler: CUDA 12's nvcc is not on the package index."""
    declared = cuda_version(row.accel)
    if declared is None or toolkit_version(row.arch, row.accel, row.torch):
        return None
    return (
        f"`{row.accel}` needs the compiler of CUDA {declared}, which the package index does not "
        "have, so the build environment's lock holds none. Point `[cuda-wheels].cuda_home` to an "
        f"installed CUDA {declared} toolkit."
    )


def rules():
    return collect_rules()
