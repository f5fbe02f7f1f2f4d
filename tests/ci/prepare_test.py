"""What `.ci/prepare` hands on to the next steps of a workflow, on a machine that lacks nothing."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the script, and a PATH on which every program is there."""
    (root := tmp_path / "checkout/.ci").mkdir(parents=True)
    (root / "prepare").write_text(Path(".ci/prepare").read_text())
    (tmp_path / "bin").mkdir()
    for name in (
        "g++",
        "gcc",
        "git",
        "flock",
        "unshare",
        "docker-registry",
        "python3.9",
        "python3.12",
    ):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return root.parent


def handed_on(checkout: Path, **variables: str) -> dict[str, str]:
    file = checkout / "environment"
    file.write_text("")
    path = f"{checkout.parent / 'bin'}:/usr/bin:/bin"
    subprocess.run(
        ["bash", str(checkout / ".ci/prepare")],
        env={"PATH": path, "HOME": str(checkout), "GITHUB_ENV": str(file), **variables},
        check=True,
    )
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_without_an_address_nothing(checkout: Path) -> None:
    assert handed_on(checkout) == {}
    assert handed_on(checkout, REMOTE_CACHE_ADDRESS="", REMOTE_CACHE_TOKEN="secret") == {}


def test_a_cache_that_is_read(checkout: Path) -> None:
    address = "grpcs://cache.example:443"
    assert handed_on(checkout, REMOTE_CACHE_ADDRESS=address) == {
        "PANTS_CONFIG_FILES": "+['pants.remote.toml',]",
        "PANTS_REMOTE_STORE_ADDRESS": address,
        "PANTS_REMOTE_CACHE_WRITE": "false",
    }


def test_a_token_lies_in_a_file_of_its_own(checkout: Path) -> None:
    found = handed_on(
        checkout,
        REMOTE_CACHE_ADDRESS="grpcs://cache.example:443",
        REMOTE_CACHE_TOKEN="secret",
        REMOTE_CACHE_WRITE="true",
        RUNNER_TEMP=str(checkout),
    )
    token = Path(found["PANTS_REMOTE_OAUTH_BEARER_TOKEN_PATH"])
    assert (token.read_text(), stat.S_IMODE(os.stat(token).st_mode)) == ("secret", 0o600)
    assert found["PANTS_REMOTE_CACHE_WRITE"] == "true"
    assert "secret" not in found.values()


def test_images_and_a_cache_go_together(checkout: Path) -> None:
    assert handed_on(checkout, TOOLCHAIN_IMAGES="") == {}
    found = handed_on(checkout, TOOLCHAIN_IMAGES="true", REMOTE_CACHE_ADDRESS="grpc://x:1")
    files = ast.literal_eval(found["PANTS_CONFIG_FILES"].lstrip("+"))
    assert files == ["pants.docker.toml", "pants.remote.toml"]
    assert all(Path(file).is_file() for file in files)
