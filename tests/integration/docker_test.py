"""Wheels built in a toolchain container: a stand-in on Debian bullseye, with a real Docker daemon."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from images.stand_in import base_image, empty_image
from integration.checkout import Checkout, Run
from integration.recipes import address, comment_patch, recipe

WHEEL = address("vecadd")
IN_CONTAINER = {"PANTS_CONFIG_FILES": "pants.docker.toml"}
PLACES = {"local": {}, "container": IN_CONTAINER}
# What is asked in every session, and never cached.
EVERY_SESSION = {"Look at the toolchain", "Ask the Docker daemon"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[docker.DockerClient]:
    """The Docker daemon. `.ci/run` has one; elsewhere these tests are left out without it."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        if os.environ.get("CUDA_WHEELS_DOCKER_TESTS") == "required":
            raise
        pytest.skip(f"no Docker daemon answers: {error}")
    if os.geteuid():
        pytest.skip("the stand-in image is made by debootstrap, which takes root")
    yield client
    client.close()


@pytest.fixture(scope="module")
def checkout(
    daemon: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkout]:
    with Checkout(tmp_path_factory.mktemp("docker") / "checkout") as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        yield checkout


@pytest.fixture(scope="module")
def image(daemon: docker.DockerClient, checkout: Checkout) -> Iterator[str]:
    """The name of a toolchain image on the stand-in, built from the same template as all others."""
    base = daemon.images.get(base_image(daemon)).id
    checkout.write(
        "stand-in/BUILD",
        f"""toolchain_image(
    name="amd64-cu130", arch="amd64", accel="cu130", os="debian11", base_image="{base}"
)\n""",
    )
    run = checkout.pants("package", "stand-in:")
    assert run.returncode == 0, "\n" + run.output
    name = json.loads((checkout.dist / "images/amd64-cu130.json").read_text())["name"]
    pin(checkout, name)
    yield name
    checkout.stop_pantsd()
    remove_containers(daemon, name)


def remove_containers(daemon: docker.DockerClient, image: str) -> None:
    """Remove what the pantsd of a checkout leaves when it is killed."""
    for container in daemon.containers.list(all=True, filters={"ancestor": image}):
        container.remove(force=True)


def pin(checkout: Checkout, image: str) -> None:
    """Have the environment of the fixtures' row be this image."""
    checkout.write(
        "images/pins.py",
        f'BASE_PINS = pins({{}})\nIMAGE_PINS = pins({{"amd64-cu130": "{image}"}})\n',
    )


def _change(checkout: Checkout) -> None:
    # Never the same twice, so that no earlier run's result answers.
    checkout.write(
        "tests/fixtures/vecadd/patches/0001-comment.patch", comment_patch(str(uuid.uuid4()))
    )


def _package(checkout: Checkout, env: dict[str, str]) -> Run:
    return checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", WHEEL, env=env)


def _stages(run: Run) -> list[str]:
    return [name.split()[0] for name in run.processes if name not in EVERY_SESSION]


@pytest.mark.parametrize("order", [("local", "container"), ("container", "local")], ids="-".join)
def test_a_target_is_built_where_its_environment_is(
    checkout: Checkout, daemon: docker.DockerClient, image: str, order: tuple[str, ...]
) -> None:
    _change(checkout)
    for place in order:
        for old in checkout.wheels():
            old.unlink()
        run = _package(checkout, PLACES[place])
        assert run.returncode == 0, "\n" + run.output
        # What the one place built is no answer in the other.
        assert "Compile" in _stages(run)
        again = _package(checkout, PLACES[place])
        assert again.returncode == 0, "\n" + again.output
        assert _stages(again) == []
        (wheel,) = checkout.wheels()
        facts = json.loads(wheel.with_suffix(".facts.json").read_text())
        if place == "local":
            assert wheel.name.endswith("-manylinux_2_28_x86_64.whl")
            assert facts["toolchain"]["local"]
        else:
            assert wheel.name.endswith("-manylinux_2_31_x86_64.whl")
            assert facts["toolchain"]["image"] == image
            assert facts["toolchain"]["image_id"] == daemon.images.get(image).id
            assert facts["toolchain"]["base"] == daemon.images.get(base_image(daemon)).id
            assert facts["compile"]["gcc"].startswith("10.")


def _refused(checkout: Checkout, env: dict[str, str] | None = None) -> str:
    """What a run says that must end before anything is built, here or in a container."""
    _change(checkout)
    before = checkout.wheels()
    run = _package(checkout, {**IN_CONTAINER, **(env or {})})
    assert run.returncode == 1, "\n" + run.output
    assert _stages(run) == []
    assert checkout.wheels() == before
    assert "Traceback" not in run.output
    return run.output


def test_a_missing_image(checkout: Checkout, image: str) -> None:
    pin(checkout, "cuda-wheels-test/missing:one")
    try:
        assert "The toolchain image cuda-wheels-test/missing:one is not on this" in _refused(
            checkout
        )
    finally:
        pin(checkout, image)


def test_no_image_is_pinned(checkout: Checkout, image: str) -> None:
    checkout.write("images/pins.py", "BASE_PINS = pins({})\nIMAGE_PINS = pins({})\n")
    try:
        assert "`./pants package images:amd64-cu130`" in _refused(checkout)
    finally:
        pin(checkout, image)


def test_an_image_of_another_architecture(
    checkout: Checkout, daemon: docker.DockerClient, image: str
) -> None:
    name = empty_image(daemon, "arm64")
    pin(checkout, name)
    try:
        assert "is for arm64, but its environment is for amd64" in _refused(checkout)
    finally:
        pin(checkout, image)
        daemon.images.remove(name)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("unix://{}/none.sock", "apt-get install docker.io"),
        ("tcp://127.0.0.1:2375", "Unset DOCKER_HOST"),
    ],
)
def test_no_daemon(checkout: Checkout, tmp_path: Path, address: str, expected: str) -> None:
    assert expected in _refused(checkout, {"DOCKER_HOST": address.format(tmp_path)})
