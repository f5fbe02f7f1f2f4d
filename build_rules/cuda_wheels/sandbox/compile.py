"""Compile one wheel: `pip wheel` on a source tree, shut in, with the declared compilers.

    python3.12 -m cuda_wheels.sandbox.compile request.json [--concurrency=N]

Runs anywhere that this package is on PYTHONPATH; Pants is not needed. Paths in the request are
relative to the working directory. Writes `<out>/*.whl`, `build.log` and `compile.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from cuda_wheels.sandbox import environment, failure, machine, namespace, toolchain
from cuda_wheels.sandbox.build import Build
from cuda_wheels.sandbox.namespace import FIXED
from cuda_wheels.sandbox.program import ProgramError, run
from cuda_wheels.sandbox.request import Request
from cuda_wheels.tables import jobs

RESERVE_GB = 1.0
"""Left to the system and to the build's own Python processes."""


class Log:
    """The build's log: in the cache, where it can be followed, and a copy among the outputs."""

    def __init__(self, path: Path, copy: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lines: list[str] = []
        self._files: list[TextIO] = [
            open(path, "a", buffering=1, encoding="utf-8"),
            open(copy, "w", buffering=1, encoding="utf-8"),
        ]

    def write(self, line: str) -> None:
        """Append one line to both and flush it."""
        self.lines.append(line)
        for file in self._files:
            file.write(line + "\n")

    def copy_from(self, stream: TextIO) -> None:
        """Append the stream's lines until it ends."""
        for line in stream:
            self.write(line.rstrip("\r\n"))


class Interrupted(Exception):
    """SIGTERM or SIGINT arrived."""


def concurrency(argv: Iterable[str]) -> int:
    """The cores that Pants gave this process; all that it may use where it gave no number."""
    for argument in argv:
        name, _, value = argument.partition("=")
        if name == "--concurrency" and value.isdigit() and int(value) > 0:
            return int(value)
    return machine.read_cores()


def plan_jobs(
    given: int, memory_per_job_gb: float, memory: machine.Memory, usable: int | None = None
) -> failure.Plan:
    """How many compilers this build runs, and why.

    `given` are the cores that Pants has for it, which knows of no container's limits; `usable`
    those that there are, as `machine.read_cores` finds them.
    """
    usable = usable or machine.read_cores()
    cores = min(given, usable)
    # As large a part of the memory as of the cores: several builds fit beside each other.
    share = cores / usable * max(0.0, memory.available_gb - RESERVE_GB)
    count = jobs.job_count(cores, share, memory_per_job_gb)
    return failure.Plan(count, cores, memory_per_job_gb, memory)


def main(data: dict[str, Any]) -> None:
    """Compile the wheel that the request describes."""
    request = Request.parse(data)
    log = Log(request.cache / "logs" / request.log, Path("build.log"))
    title = f"{request.distribution} {request.version} for {request.variant}"
    try:
        with interruptible():
            _build(request, log, title, FIXED)
    except ProgramError as error:
        log.write(str(error))
        raise
    except OSError as error:
        raise _explained(error, request, log) from error
    except Interrupted:
        log.write("Interrupted: the build was stopped; what is in ccache is kept.")
        print(f"{title}: interrupted.", file=sys.stderr)
        sys.exit(130)


def _build(request: Request, log: Log, title: str, fixed: Path) -> None:
    started = time.monotonic()
    plan = plan_jobs(concurrency(sys.argv), request.memory_per_job_gb, machine.read_memory())
    log.write(f"== {title}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}")
    log.write(f"{request.distribution}: {plan}")
    log.write(f"Build environment from {request.build_lock.name}")
    with prepared(request, plan.jobs, fixed, log) as (inside, layout):
        outcome = _run_logged(inside, layout, log)
        if outcome.returncode != 0:
            places = [inside.staging.parent, request.cache]
            why = failure.hint(outcome.returncode, log.lines, plan, places)
            raise ProgramError(
                failure.describe(log.lines, log.path, why, f"{title}: the build failed.")
            )
        wheel = _only_wheel(inside.staging, log, title)
        request.out.mkdir(parents=True, exist_ok=True)
        os.replace(wheel, request.out / wheel.name)
        counts = read_statistics(inside.statistics)
        facts = {
            "network": outcome.isolation.network,
            "build_path": outcome.isolation.build_path,
            "gcc": toolchain.gcc_version(request.gcc),
            "nvcc": toolchain.nvcc_version(inside.real_cuda),
            "jobs": plan.jobs,
            "ccache": counts,
        }
        _write_json(Path("compile.json"), facts)
        log.write(
            f"{wheel.name}: {time.monotonic() - started:.0f} s, ccache {counts['hits']} hits "
            f"and {counts['misses']} misses"
        )


@contextlib.contextmanager
def prepared(
    request: Request, jobs: int, fixed: Path, log: Log
) -> Iterator[tuple[Build, namespace.Layout]]:
    """What is to run shut in, and where its files lie; both are gone afterwards.

    Raises ProgramError where the build environment or a compiler will not do.
    """
    bootstrap = environment.ensure_bootstrap(request.cache, request.bootstrap_lock)
    env = environment.ensure_environment(
        request.cache, request.build_lock, bootstrap=bootstrap, kind="envs"
    )
    _warm_up(env, request, log)
    real_cuda = request.cuda_home or (env / "cuda" if (env / "cuda").exists() else None)
    toolchain.check(toolchain.Toolchain(request.gcc, request.gxx, real_cuda))
    # Beside the working directory's other files: a rename into place needs one file system.
    scratch = Path(tempfile.mkdtemp(prefix=".compile-", dir=Path.cwd()))
    try:
        layout = namespace.Layout(
            work=scratch / "work",
            read_only={"env": env, **({"toolkit": request.cuda_home} if request.cuda_home else {})},
            fixed=fixed,
        )
        staging, statistics = scratch / "dist", scratch / "ccache.log"
        yield Build(request, fixed, jobs, bootstrap, real_cuda, staging, statistics), layout
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _warm_up(env: Path, request: Request, log: Log) -> None:
    """Import once what every build imports, so that the bytecode is written.

    A build sees its environment read-only, and would compile torch's modules each time.
    """
    marker = env / ".imported"
    if marker.exists():
        return
    if not list(env.glob("lib/python3*/site-packages/pip/__init__.py")):
        raise ProgramError(
            f"The build environment of {request.build_lock.name} has no pip, which builds the "
            "wheels. Write the lock again with `./pants cuda-lock`."
        )
    modules = ["pip._internal.cli.main"]
    for package, module in (("setuptools", "setuptools"), ("torch", "torch.utils.cpp_extension")):
        if list(env.glob(f"lib/python3*/site-packages/{package}/__init__.py")):
            modules.append(module)
    done = subprocess.run(
        [str(env / "bin/python"), "-I", "-c", f"import {', '.join(modules)}"],
        env={"PATH": os.defpath, "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        log.write(line)
    if done.returncode:
        raise ProgramError(
            f"The build environment of {request.build_lock.name} does not work: importing "
            f"{', '.join(modules)} failed.\n{done.stdout.strip()}\nThe whole log: {log.path}"
        )
    marker.touch()


def _run_logged(inside: Build, layout: namespace.Layout, log: Log) -> namespace.Outcome:
    read, write = os.pipe()
    try:
        running = namespace.start(inside, layout, output=write)
    finally:
        os.close(write)
    try:
        with open(read, encoding="utf-8", errors="replace") as stream:
            log.copy_from(stream)
        return running.wait()
    finally:
        running.kill()


def read_statistics(path: Path) -> dict[str, int]:
    """Count hits and misses in ccache's statistics log."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    hits = sum(line in ("direct_cache_hit", "preprocessed_cache_hit") for line in lines)
    return {"hits": hits, "misses": lines.count("cache_miss")}


def _only_wheel(staging: Path, log: Log, title: str) -> Path:
    wheels = sorted(staging.glob("*.whl"))
    if len(wheels) == 1:
        return wheels[0]
    found = ", ".join(wheel.name for wheel in wheels) or "none"
    raise ProgramError(
        failure.describe(
            log.lines, log.path, None, f"{title}: one wheel was expected, {found} came."
        )
    )


def _write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _explained(error: OSError, request: Request, log: Log) -> ProgramError:
    places = [Path.cwd(), request.cache]
    plan = failure.Plan(0, 0, request.memory_per_job_gb, machine.Memory(0, "the machine"))
    why = failure.hint(1, [str(error)], plan, places)
    return ProgramError(f"{why or error}\nThe whole log: {log.path}")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into an exception, so that everything is cleaned up."""

    def handle(number: int, frame: FrameType | None) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted

    before = [(n, signal.signal(n, handle)) for n in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


if __name__ == "__main__":
    run(main)
