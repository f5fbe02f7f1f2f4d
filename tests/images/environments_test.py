"""The environments that rows are built in, against the tables: configurations cannot be computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib

from cuda_wheels.tables.accelerators import ACCELERATORS, SUPPORTED_ARCHES
from cuda_wheels.tables.images import image_variants

# Also of an architecture that an accelerator does not exist for: so such a row ends in what the
# tables say of it, and not in Pants' word that there is no environment of its name.
ROWS = {
    f"{arch}-{accel.name}"
    for arch in SUPPORTED_ARCHES
    for accel in ACCELERATORS
    if accel.kind != "rocm"
}
CONFIGURATIONS = {
    "pants.toml": "//:local",
    "pants.docker.toml": "images/environments:docker-{}",
    "pants.remote-execution.toml": "images/environments:remote-{}",
}


@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_every_configuration_has_an_environment_for_every_row(file: str) -> None:
    names = tomllib.loads(Path(file).read_text())["environments-preview"]["names"]
    assert names.pop("local") == "//:local"
    assert names == {row: CONFIGURATIONS[file].format(row) for row in ROWS}


def declared(build_file: str, pins: Any) -> dict[str, dict[str, Any]]:
    """Name -> fields of the environments in a BUILD file of images/environments."""
    found: dict[str, dict[str, Any]] = {}

    def environment(name: str, **fields: Any) -> None:
        assert name not in found
        found[name] = fields

    symbols = {
        "IMAGE_PINS": pins,
        "docker_environment": environment,
        "remote_environment": environment,
    }
    text = Path("images/environments", build_file).read_text()
    exec(compile(text, build_file, "exec"), symbols)
    return found


@pytest.mark.parametrize(("file", "kind"), [("BUILD", "docker"), ("BUILD.remote", "remote")])
def test_every_row_has_an_environment_of_its_platform(file: str, kind: str) -> None:
    found = declared(file, {})
    assert set(found) == {f"{kind}-{row}" for row in ROWS}
    for name, fields in found.items():
        machine = "x86_64" if "-amd64-" in name else "arm64"
        assert fields["platform"] == f"linux_{machine}"


@pytest.mark.parametrize(
    "variant", [f"{arch}-{accel}" for arch, accel in image_variants() if "rocm" not in accel]
)
def test_the_pin_of_an_image_leads_its_environments_to_it(variant: str) -> None:
    image = f"registry.example/{variant}@sha256:{'0' * 64}"
    docker = declared("BUILD", {variant: image})
    assert [name for name, fields in docker.items() if fields["image"] == image] == [
        f"docker-{variant}"
    ]
    remote = declared("BUILD.remote", {variant: image})
    wanted = f"toolchain={'0' * 64}"
    assert [
        name for name, fields in remote.items() if wanted in fields["extra_platform_properties"]
    ] == [f"remote-{variant}"]


@pytest.mark.parametrize("file", ["BUILD", "BUILD.remote"])
def test_before_the_plugin_is_loaded_nothing_is_pinned(file: str) -> None:
    assert declared(file, object()) == declared(file, {})
