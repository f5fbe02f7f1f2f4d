"""Builds the real packages and proves what is rebuilt when a patch of one changes.

    ./pants run tests/e2e/packages.py -- [PACKAGE...]

Takes an hour or more where nothing is cached yet. Uses this machine's Pants caches, so that it goes on
where an earlier run was stopped, and narrows to one GPU architecture. The wheels and their facts are
in `dist/e2e` afterwards.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from integration.checkout import Checkout, Run

ROW = "amd64-cu130-torch2.11.0"
GPU_ARCH = "9.0"
EVERY_SESSION = "Look at the toolchain"
OUT = Path("dist/e2e")

# A comment in a file of the wheel, so that every stage after it has something new to do; another one
# in each run, since this machine's caches know those of earlier runs.
PATCH = """\
Reason: an end-to-end test of what is rebuilt.
--- a/{module}/__init__.py
+++ b/{module}/__init__.py
@@ -1,2 +1,3 @@
+# change {token}
 import importlib
 {second}
"""
SECOND_LINES = {
    "torch-scatter": "import os",
    "torch-cluster": "import os.path as osp",
    "torch-sparse": "import os.path as osp",
}


def address(package: str) -> str:
    return f"packages/{package}:{ROW}"


def build(checkout: Checkout, packages: tuple[str, ...]) -> Run:
    run = checkout.pants(
        f"--cuda-wheels-gpu-archs={GPU_ARCH}", "cuda-build", *map(address, packages)
    )
    print(run.stdout, flush=True)
    if run.returncode:
        sys.exit(run.stderr)
    return run


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"{what}: {wanted} was expected, {found} ran.")
    print(f"ok  {what}: {found}", flush=True)


def touch(checkout: Checkout, package: str) -> None:
    module = package.replace("-", "_")
    checkout.write(
        f"packages/{package}/patches/9999-change.patch",
        PATCH.format(module=module, second=SECOND_LINES[package], token=secrets.token_hex(8)),
    )


def main(packages: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="cuda-wheels-e2e-") as folder:
        with Checkout(Path(folder) / "checkout") as checkout:
            build(checkout, packages)
            OUT.mkdir(parents=True, exist_ok=True)
            for file in (*checkout.wheels(), *checkout.dist.glob("*.facts.json")):
                shutil.copy(file, OUT)
            expect("nothing changed", build(checkout, packages).processes, [EVERY_SESSION])
            checkout.stop_pantsd()
            expect("pantsd stopped", build(checkout, packages).processes, [EVERY_SESSION])
            for package in packages:
                touch(checkout, package)
                run = build(checkout, packages)
                stages = [
                    f"Patch packages/{package}:src",
                    *(f"{stage} {address(package)}" for stage in ("Compile", "Repair", "Inspect")),
                ]
                expect(
                    f"{package}'s patch", sorted(run.processes), sorted([EVERY_SESSION, *stages])
                )


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or tuple(SECOND_LINES))
