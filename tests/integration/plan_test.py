"""What the CI builds for a change, as `.ci/plan` finds it with Pants and git."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from integration.checkout import Checkout

PATCH = "packages/cumm/patches/0003-no-assertions.patch"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The project as a git repository, all of it committed."""
    with Checkout(tmp_path_factory.mktemp("plan") / "checkout") as checkout:
        (checkout.root / ".ci").mkdir()
        for name in ("plan", "prepare"):
            shutil.copy(f".ci/{name}", checkout.root / ".ci" / name)
        checkout.write(".gitignore", "/dist/\n/.pants.d/\n__pycache__/\n")
        git(checkout, "init", "-q")
        git(checkout, "add", "-A")
        git(checkout, "commit", "-q", "-m", "All of it")
        yield checkout


def git(checkout: Checkout, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=checkout.root, check=True)


def plan(checkout: Checkout) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, ".ci/plan", "--since", "HEAD"],
        cwd=checkout.root,
        env=checkout.process_environment(None),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_patch_of_cumm_reaches_spconv_and_their_wheelhouses(checkout: Checkout) -> None:
    before = (checkout.root / PATCH).read_text()
    checkout.write(PATCH, before.replace("Reason:", "Reason: "))
    found = plan(checkout)
    checkout.write(PATCH, before)
    targets = [one for entry in found["wheels"]["include"] for one in entry["targets"]]
    assert sorted(targets) == [
        f"packages/{name}:{arch}-cu130"
        for name in ("cumm", "spconv")
        for arch in ("amd64", "arm64")
    ]
    houses = {entry["target"] for entry in found["wheelhouses"]["include"]}
    assert {"packages:amd64-cu130", "packages:arm64-cu130-torch2.11.0"} <= houses
    # Those of other accelerators are told, and no other package is.
    assert all("-cu130" in house for house in houses)
    others = {name.partition(":")[0] for name in found["left_out"]}
    assert others == {"packages", "packages/cumm", "packages/spconv"}
    assert {entry["runner"] for entry in found["wheels"]["include"]} == {
        "ubuntu-24.04",
        "ubuntu-24.04-arm",
    }


def test_what_is_no_part_of_a_wheel_reaches_nothing(checkout: Checkout) -> None:
    checkout.write("packages/cumm/README.md", "other words\n")
    found = plan(checkout)
    assert found == {"wheels": {"include": []}, "wheelhouses": {"include": []}, "left_out": {}}


def test_pants_takes_what_the_preparation_hands_on(checkout: Checkout) -> None:
    """Two more configurations beside the project's own, neither in the place of another."""
    file = checkout.write("environment", "")
    settings = {
        "GITHUB_ENV": str(file),
        "TOOLCHAIN_IMAGES": "true",
        "REMOTE_CACHE_ADDRESS": "grpc://127.0.0.1:9",
    }
    command = ["bash", ".ci/prepare"]
    environment = checkout.process_environment(settings)
    subprocess.run(command, cwd=checkout.root, env=environment, check=True)
    handed_on = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert set(handed_on) >= {"PANTS_CONFIG_FILES", "PANTS_REMOTE_STORE_ADDRESS"}
    run = checkout.pants("list", "packages/cumm:src", env=handed_on)
    assert (run.returncode, run.stdout) == (0, "packages/cumm:src\n"), run.output
