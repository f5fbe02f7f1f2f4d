"""What the benchmarks share: a scratch checkout with caches of its own, a stopwatch, and the result."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cuda_wheels.sandbox import environment
from integration.checkout import Checkout, Run

GPU_ARCH = "9.0"
BOOTSTRAP_LOCK = Path("3rdparty/python/bootstrap-tools.txt")
BUILD_LOCK = Path("3rdparty/torch/amd64-cu130-torch2.11.0-cp312.txt")
ROW = "amd64-cu130-torch2.11.0"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="cuda-wheels-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_checkout() -> Iterator[Checkout]:
    """A checkout whose Pants caches start empty."""
    with scratch() as folder:
        caches = {
            "PANTS_NAMED_CACHES_DIR": str(folder / "named"),
            "PANTS_LOCAL_STORE_DIR": str(folder / "store"),
        }
        with Checkout(folder / "checkout", caches) as checkout:
            yield checkout


def named_cache(checkout: Checkout) -> Path:
    return Path(checkout.environment["PANTS_NAMED_CACHES_DIR"]) / "cuda_wheels"


def without_objects(checkout: Checkout) -> None:
    """Forget every object of the compiler cache."""
    shutil.rmtree(named_cache(checkout) / "ccache", ignore_errors=True)


def package(checkout: Checkout, address: str) -> Run:
    run = checkout.pants(f"--cuda-wheels-gpu-archs={GPU_ARCH}", "package", address)
    if run.returncode:
        sys.exit(run.output)
    return run


def seconds(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def build_environment(cache: Path) -> Path:
    """The row's build environment in `cache`, made if it is not there."""
    bootstrap = environment.ensure_bootstrap(cache, BOOTSTRAP_LOCK)
    return environment.ensure_environment(cache, BUILD_LOCK, bootstrap=bootstrap, kind="envs")


def bare_pip_wheel(env: Path, tree: Path, out: Path, variables: Mapping[str, str]) -> None:
    """What a user types: `pip wheel` in the build environment, with nothing of ours around it."""
    subprocess.run(
        [
            str(env / "bin/python"),
            *("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"),
            *("--no-cache-dir", "-q", "-w", str(out), str(tree)),
        ],
        env={
            "PATH": f"{env / 'bin'}:{env / 'cuda/bin'}:/usr/bin:/bin",
            "HOME": str(out),
            "CUDA_HOME": str(env / "cuda"),
            "CUDA_VISIBLE_DEVICES": "",
            "TORCH_CUDA_ARCH_LIST": GPU_ARCH,
            "MAX_JOBS": str(os.cpu_count()),
            **variables,
        },
        stdin=subprocess.DEVNULL,
        check=True,
    )


def report(ours: tuple[str, float], other: tuple[str, float]) -> None:
    """Print both sides and how many times the other's time ours is."""
    for what, value in (ours, other):
        print(f"{value:9.1f} s  {what}", flush=True)
    print(
        f"{ours[1] / other[1]:9.2f}    times; {ours[1] - other[1]:+.1f} s, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f} over the last 5 minutes"
    )
