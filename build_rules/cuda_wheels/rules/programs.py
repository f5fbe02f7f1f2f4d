"""Runs the programs of `sandbox/` as plain processes of the Python 3.12 of an environment.

A program gets one JSON file. Its input files are exactly the modules that it imports from this
package, so that a change elsewhere leaves its cache key alone. What it must know of indexes it reads
from the session's settings (`rules/session_settings.py`), so that addresses and credentials are in
no key either.
"""

from __future__ import annotations

import ast
import json
import os
import pkgutil
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from pants.core.subsystems.python_bootstrap import PythonBootstrap
from pants.core.util_rules.system_binaries import (
    BinaryPath,
    BinaryPathRequest,
    BinaryPaths,
    BinaryPathTest,
)
from pants.engine.env_vars import PathEnvironmentVariable
from pants.engine.fs import (
    EMPTY_DIGEST,
    CreateDigest,
    Digest,
    FileContent,
    MergeDigests,
    PathGlobs,
    Snapshot,
)
from pants.engine.process import Process, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.util.logging import LogLevel

from cuda_wheels.rules.place import Place
from cuda_wheels.rules.session_settings import SessionSettings
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.rows import BUILD_PYTHON

PACKAGE = "cuda_wheels"
CACHE_NAME = "cuda_wheels"
CACHE_DIR = ".cuda_wheels"
REQUEST_FILE = "request.json"
# The locks of our own tools: uv and ccache; what reads, repairs and fetches packages; what describes
# a wheelhouse, what publishes it, and what makes images, apart so that no wheel's key depends on them.
TOOL_LOCKS = {
    "bootstrap_lock": "3rdparty/python/bootstrap-tools.txt",
    "tools_lock": "3rdparty/python/wheel-tools.txt",
    "wheelhouse_lock": "3rdparty/python/wheelhouse-tools.txt",
    "publish_lock": "3rdparty/python/publish-tools.txt",
    "image_lock": "3rdparty/python/image-tools.txt",
}

# The interpreter of the programs. Neither the user's PATH nor their environment is in a key.
PROGRAM_PYTHON = f"python{BUILD_PYTHON}"
PROGRAM_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class MissingToolError(Exception):
    """A tool that the rules themselves need is not there; the message says how to get it."""


def module_file(module: str) -> str | None:
    """The path of a module of this package below the import root; None for a package."""
    path = module.replace(".", "/") + ".py"
    return path if _read(path) is not None else None


def _read(path: str) -> bytes | None:
    try:
        return pkgutil.get_data(PACKAGE, os.path.relpath(path, PACKAGE))
    except FileNotFoundError:
        return None


def imported_modules(source: bytes) -> tuple[str, ...]:
    """The names that `source` imports from this package, modules and attributes alike."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(name for name in names if name.split(".")[0] == PACKAGE)


def program_files(program: str) -> dict[str, bytes]:
    """Path below the import root -> content, of `sandbox/<program>.py` and all that it imports."""
    files: dict[str, bytes] = {}
    waiting = [f"{PACKAGE}.sandbox.{program}"]
    while waiting:
        module = waiting.pop()
        path = module_file(module)
        if path is None or path in files:
            continue
        content = _read(path)
        assert content is not None
        files[path] = content
        waiting.extend(imported_modules(content))
        for package in _parents(module):
            files.setdefault(f"{package}/__init__.py", b"")
    return files


def _parents(module: str) -> tuple[str, ...]:
    parts = module.split(".")[:-1]
    return tuple("/".join(parts[: i + 1]) for i in range(len(parts)))


@dataclass(frozen=True)
class ToolLockRequest:
    """A lock of our own tools, by its path in the repository."""

    path: str


@dataclass(frozen=True)
class ToolLock:
    """The file of a ToolLockRequest."""

    digest: Digest


@rule
async def find_tool_lock(request: ToolLockRequest) -> ToolLock:
    snapshot = await Get(Snapshot, PathGlobs([request.path]))
    if not snapshot.files:
        raise MissingToolError(
            f"The lock of the build tools {request.path} is not there. It is part of the "
            "repository: restore it from version control."
        )
    return ToolLock(snapshot.digest)


@dataclass(frozen=True)
class ProgramPython:
    """The Python 3.12 of the environment that runs the programs of `sandbox/`."""

    binary: BinaryPath


@rule(desc="Find Python 3.12", level=LogLevel.DEBUG)
async def find_program_python(
    bootstrap: PythonBootstrap, options: CudaWheelsSubsystem, path: PathEnvironmentVariable
) -> ProgramPython:
    found = await Get(
        BinaryPaths,
        BinaryPathRequest(
            binary_name=PROGRAM_PYTHON,
            search_path=bootstrap.interpreter_search_paths,
            check_file_entries=True,
            test=BinaryPathTest(args=["-c", "import sys; print(sys.version)"]),
        ),
    )
    if found.first_path is not None:
        return ProgramPython(found.first_path)
    # Without it the probe of everything else cannot run, so that is looked up here.
    tools = {options.c_compiler: "gcc", options.cxx_compiler: "g++", "git": "git"}
    others = await MultiGet(
        Get(BinaryPaths, BinaryPathRequest(binary_name=name, search_path=path)) for name in tools
    )
    missing = [package for package, paths in zip(tools.values(), others) if not paths.paths]
    raise MissingToolError(missing_python(bootstrap.interpreter_search_paths, missing))


def missing_python(searched: Iterable[str], missing: Iterable[str]) -> str:
    """What to say where there is no Python 3.12; `missing` are packages that lack as well."""
    lines = [
        f"The build programs run on Python 3.12; `{PROGRAM_PYTHON}` was not found in "
        f"{', '.join(searched) or 'an empty search path'}.",
        "Install it (`apt-get install python3.12 python3.12-venv python3.12-dev`, "
        "`pyenv install 3.12` or `uv python install 3.12`), or add its directory to "
        "`[python-bootstrap].search_path`.",
    ]
    lines += [
        f"`{package}` was not found on PATH either. Install it (`apt-get install {package}`)."
        for package in missing
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class ProgramProcess:
    """A run of `sandbox/<program>.py`.

    `request` is its JSON file; the cache directory and the named `locks` are added to it.
    `concurrency` is the number of processor cores that the program can make use of.
    """

    program: str
    request: str
    description: str
    locks: tuple[str, ...] = ("bootstrap_lock", "tools_lock")
    input_digest: Digest = EMPTY_DIGEST
    output_files: tuple[str, ...] = ()
    output_directories: tuple[str, ...] = ()
    timeout: int | None = None
    concurrency: int = 0
    cache_scope: ProcessCacheScope = ProcessCacheScope.SUCCESSFUL
    env: tuple[tuple[str, str], ...] = tuple(PROGRAM_ENV.items())

    @classmethod
    def create(cls, program: str, request: Mapping[str, Any], **kwargs: Any) -> ProgramProcess:
        """A run of `program`; `request` becomes JSON that is equal for equal requests."""
        return cls(program, json.dumps(request, indent=1, sort_keys=True), **kwargs)


@rule
async def program_process(
    request: ProgramProcess, python: ProgramPython, settings: SessionSettings, place: Place
) -> Process:
    document = {
        "cache": CACHE_DIR,
        **{name: TOOL_LOCKS[name] for name in request.locks},
        **json.loads(request.request),
    }
    program = await Get(
        Digest,
        CreateDigest(
            [
                *(FileContent(path, data) for path, data in program_files(request.program).items()),
                FileContent(REQUEST_FILE, json.dumps(document, indent=1, sort_keys=True).encode()),
            ]
        ),
    )
    locks = await MultiGet(
        Get(ToolLock, ToolLockRequest(TOOL_LOCKS[name])) for name in request.locks
    )
    inputs = await Get(
        Digest,
        MergeDigests([program, request.input_digest, *(lock.digest for lock in locks)]),
    )
    argv = [python.binary.path, "-m", f"{PACKAGE}.sandbox.{request.program}", REQUEST_FILE]
    # Of a worker Pants knows no cores: the number would be that of its own requests.
    concurrency = 0 if place.is_remote else request.concurrency
    if concurrency:
        argv.append("--concurrency={pants_concurrency}")
    return Process(
        argv,
        description=request.description,
        input_digest=inputs,
        env=dict(request.env),
        output_files=request.output_files,
        output_directories=request.output_directories,
        append_only_caches={CACHE_NAME: CACHE_DIR, **settings.append_only_caches},
        timeout_seconds=request.timeout,
        concurrency_available=concurrency,
        cache_scope=request.cache_scope,
    )


def rules():
    return collect_rules()
