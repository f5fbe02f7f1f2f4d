"""Which images an index is over, and everything that keeps one from being made."""

from __future__ import annotations

import json

import pytest
from pants.core.goals.package import BuiltPackage
from pants.engine.addresses import Address
from pants.engine.fs import Digest, DigestContents
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels import image_pins
from cuda_wheels.rules import addresses, image_index, toolchain_image
from cuda_wheels.rules.image_index import ImageIndexFieldSet
from cuda_wheels.sources import BUILD_FILE_OBJECTS
from cuda_wheels.target_types import (
    CudaSourceTarget,
    ToolchainImageIndexTarget,
    ToolchainImageTarget,
)

PINS = {
    "amd64-cu130": f"registry.example/team/amd64-cu130@sha256:{'a' * 64}",
    "arm64-cu130": f"registry.example/team/arm64-cu130@sha256:{'b' * 64}",
}
BUILD = """
toolchain_image(name="amd64-cu130", arch="amd64", accel="cu130")
toolchain_image(name="arm64-cu130", arch="arm64", accel="cu130")
toolchain_image(name="amd64-cpu", arch="amd64", accel="cpu")
cuda_source(name="src", source=files_source("."))
toolchain_image_index(name="cu130", images=[":amd64-cu130", ":arm64-cu130"])
toolchain_image_index(name="twice", images=[":amd64-cu130", ":amd64-cpu", ":none", ":src"])
toolchain_image_index(name="empty", images=[], output_path="../cu130.json")
"""


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *addresses.rules(),
            image_index.image_index,
            image_index.package_index,
            toolchain_image.find_pins,
            QueryRule(BuiltPackage, [ImageIndexFieldSet]),
            QueryRule(DigestContents, [Digest]),
        ],
        target_types=[CudaSourceTarget, ToolchainImageIndexTarget, ToolchainImageTarget],
        objects=BUILD_FILE_OBJECTS,
    )
    runner.write_files({"images/BUILD": BUILD})
    return runner


def package(runner: RuleRunner, name: str, pins: dict[str, str]) -> dict[str, object]:
    runner.write_files({"images/pins.py": image_pins.Pins().with_images(pins).text})
    target = runner.get_target(Address("images", target_name=name))
    built = runner.request(BuiltPackage, [ImageIndexFieldSet.create(target)])
    (file,) = runner.request(DigestContents, [built.digest])
    assert file.path == f"images/{name}.json"
    document: dict[str, object] = json.loads(file.content)
    return document


def refused(runner: RuleRunner, name: str, pins: dict[str, str]) -> str:
    with pytest.raises(ExecutionError) as raised:
        package(runner, name, pins)
    return str(raised.value)


def test_an_index_is_over_the_pinned_images_of_each_architecture(rule_runner: RuleRunner) -> None:
    first = package(rule_runner, "cu130", PINS)
    assert first["images"] == {name.split("-")[0]: pin for name, pin in PINS.items()}
    assert str(first["name"]).startswith("cuda-wheels/cu130:")
    moved = {**PINS, "arm64-cu130": PINS["arm64-cu130"].replace("b", "c")}
    assert package(rule_runner, "cu130", moved)["name"] != first["name"]
    assert package(rule_runner, "cu130", {**moved, "amd64-cpu": "x"})["images"] != first["images"]
    assert package(rule_runner, "cu130", {**PINS, "amd64-cpu": "x"}) == first


def test_every_image_that_is_not_published_is_told(rule_runner: RuleRunner) -> None:
    message = refused(rule_runner, "cu130", {"amd64-cu130": "cuda-wheels/amd64-cu130:0123456789"})
    assert "images:amd64-cu130 is pinned as cuda-wheels/amd64-cu130:0123456789" in message
    assert "images:arm64-cu130 is not pinned in images/pins.py" in message
    assert "from a machine of arm64" in message
    assert "`./pants publish images:arm64-cu130`" in message


def test_what_is_no_image_and_two_of_one_architecture_are_told(rule_runner: RuleRunner) -> None:
    message = refused(rule_runner, "twice", PINS)
    assert "images:amd64-cu130 and images:amd64-cpu, which are all for amd64" in message
    assert "`images` names no target" in message and "none" in message
    assert "images:src, which is a `cuda_source`, not a `toolchain_image`" in message
    assert "images:amd64-cpu is not pinned" in message
    message = refused(rule_runner, "empty", PINS)
    assert "names no `toolchain_image`" in message
    assert "`output_path` is '../cu130.json', which leads out of `--distdir`" in message
