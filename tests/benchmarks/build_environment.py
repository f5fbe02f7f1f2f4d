"""A build environment from nothing, against `uv pip sync` of the same lock from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.comparison import BOOTSTRAP_LOCK, BUILD_LOCK, report, scratch, seconds
from cuda_wheels.sandbox import environment


def bare_sync(folder: Path, uv: Path) -> None:
    venv = folder / "venv"
    env = {**os.environ, "UV_CACHE_DIR": str(folder / "uv")}
    subprocess.run([str(uv), "venv", "-q", "-p", sys.executable, str(venv)], env=env, check=True)
    command = [str(uv), "pip", "sync", "-q", "--require-hashes", "--python", str(venv)]
    subprocess.run([*command, str(BUILD_LOCK)], env=env, check=True)


def main() -> None:
    with scratch() as folder:
        cache = folder / "cache"
        bootstrap = environment.ensure_bootstrap(cache, BOOTSTRAP_LOCK)
        other = seconds(lambda: bare_sync(folder / "bare", bootstrap / "bin/uv"))
        ours = seconds(
            lambda: environment.ensure_environment(
                cache, BUILD_LOCK, bootstrap=bootstrap, kind="envs"
            )
        )
    report(("build environment, empty cache", ours), ("uv pip sync, empty cache", other))


if __name__ == "__main__":
    main()
