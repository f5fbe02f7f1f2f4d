"""A scratch checkout of this project, in which tests run `./pants` as users do."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# What `//:project` brings into a test's sandbox.
PROJECT = (
    "pants",
    "pants.toml",
    "pants.docker.toml",
    "pants.remote.toml",
    "pants.remote-execution.toml",
    "BUILD",
    "pyproject.toml",
    "3rdparty",
    "build_rules",
    "images",
    "packages",
)
FIXTURES = Path("tests/fixtures")

# What a test shares with this machine: all but logs and the hashes of its compilers.
SHARED = ("envs", "tools", "uv", "ccache", "locks")
# What is realised from hash-locked files; everything that holds results starts empty.
LOCKED = ("envs", "tools", "uv")

_STARTED = re.compile(r"\[INFO\] Starting: (.+)")
_COMPLETED = re.compile(r"\[INFO\] Completed: (.+)")
# Pants gives its daemon a minute to start, which a busy machine needs for itself.
_NO_DAEMON = "while waiting for pantsd to start"
_ATTEMPTS = 3
_COUNTER = re.compile(r"^  (\w+): (\d+)$", re.MULTILINE)


def shared_cache(root: Path) -> dict[str, str]:
    """A named cache below `root` with this machine's environments, and otherwise of its own."""
    mine = root / "named/cuda_wheels"
    mine.mkdir(parents=True)
    link_shared(mine)
    return {"PANTS_NAMED_CACHES_DIR": str(root / "named")}


def link_shared(cache: Path) -> None:
    """Lead the directories SHARED of the named cache at `cache` to those of this machine."""
    for name in SHARED:
        (_named_cache() / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(_named_cache() / name)


def own_caches(root: Path) -> dict[str, str]:
    """Caches below `root` for one checkout alone: no result, no object, only the locked environments."""
    mine = root / "named/cuda_wheels"
    mine.mkdir(parents=True)
    for name in LOCKED:
        if (_named_cache() / name).is_dir():
            shutil.copytree(
                _named_cache() / name, mine / name, symlinks=True, copy_function=os.link
            )
    return {
        "PANTS_NAMED_CACHES_DIR": str(root / "named"),
        "PANTS_LOCAL_STORE_DIR": str(root / "store"),
    }


def _named_cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pants/named_caches/cuda_wheels"


@dataclass(frozen=True)
class Run:
    """One finished run of `./pants`."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    @property
    def processes(self) -> list[str]:
        """The descriptions of the processes that ran; those answered from a cache did not.

        Each once: Pants may start a process again in its first second, with other cores.
        """
        return _of_ours(_STARTED.findall(self.output))

    @property
    def completed(self) -> list[str]:
        """Those of `processes` that came to an end.

        Pants starts a process while it asks the remote cache, and cancels it for the cache's answer.
        """
        return _of_ours(_COMPLETED.findall(self.output))

    @property
    def counters(self) -> dict[str, int]:
        return {name: int(value) for name, value in _COUNTER.findall(self.output)}


def _of_ours(names: list[str]) -> list[str]:
    searches = ("Searching for", "Test binary", "Find ")
    return list(dict.fromkeys(name for name in names if not name.startswith(searches)))


class Checkout:
    """A build root of its own; `environment` is added to that of each run.

    As a context manager it ends its pantsd, which would live on for hours.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.environment = dict(environment or {})
        root.mkdir(parents=True)
        for name in PROJECT:
            source = Path(name)
            if source.is_dir():
                shutil.copytree(source, root / name)
            else:
                shutil.copy(source, root / name)

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop_pantsd()

    def add_fixture(self, name: str, build_file: str, directory: str | None = None) -> Path:
        """Copy a package of `tests/fixtures` into the build root, with a BUILD file.

        `directory` is its name there, where it is another.
        """
        target = self.root / FIXTURES / (directory or name)
        shutil.copytree(FIXTURES / name, target, ignore=shutil.ignore_patterns("BUILD"))
        (target / "BUILD").write_text(build_file)
        return target

    def write(self, path: str, content: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        return target

    def pants(self, *arguments: str, env: Mapping[str, str] | None = None) -> Run:
        """Run `./pants`; the counters and the names of processes are in its output.

        Raises AssertionError with the output of the last of three attempts if no daemon starts.
        """
        for _ in range(_ATTEMPTS):
            done = subprocess.run(
                [
                    str(self.root / "pants"),
                    "--no-dynamic-ui",
                    "--stats-log",
                    "--level=info",
                    *arguments,
                ],
                cwd=self.root,
                env=self.process_environment(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0 or _NO_DAEMON not in done.stderr:
                return Run(done.returncode, done.stdout, done.stderr)
        raise AssertionError(
            f"pantsd did not start in {_ATTEMPTS} attempts:\n{done.stdout}{done.stderr}"
        )

    def process_environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """That of a run of `./pants`: the caller's, without what leads its Python elsewhere."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PEX", "PYTEST", "PYTHON", "COVERAGE"))
        }
        return {**inherited, **self.environment, **(env or {})}

    def stop_pantsd(self) -> None:
        """End this build root's pantsd, as a reboot would."""
        for pid_file in self.root.glob(".pids/*/pantsd/pid"):
            try:
                os.kill(int(pid_file.read_text()), signal.SIGTERM)
            except (ProcessLookupError, ValueError):
                continue

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    def wheels(self) -> list[Path]:
        return sorted(self.dist.glob("*.whl"))
