"""Wheels built in a toolchain container: a stand-in on Debian bullseye, with a real Docker daemon."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from images.stand_in import base_image, empty_image
from integration.checkout import Checkout, Run
from integration.containers import (
    EVERY_SESSION,
    IN_CONTAINER,
    docker_daemon,
    pin,
    remove_containers,
    sandboxes,
    toolchain_image,
)
from integration.recipes import address, comment_patch, recipe

WHEEL = address("vecadd")
PLACES = {"local": {}, "container": IN_CONTAINER}
daemon = docker_daemon  # a fixture


@pytest.fixture(scope="module")
def checkout(
    daemon: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("docker")
    with Checkout(root / "checkout", sandboxes(root)) as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        yield checkout


@pytest.fixture(scope="module")
def image(daemon: docker.DockerClient, checkout: Checkout) -> Iterator[str]:
    name = toolchain_image(checkout, daemon)
    yield name
    checkout.stop_pantsd()
    remove_containers(daemon, checkout)


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


def test_another_image_is_another_key_and_an_unrelated_file_is_none(
    checkout: Checkout, daemon: docker.DockerClient, image: str
) -> None:
    _change(checkout)
    assert "Compile" in _stages(_package(checkout, IN_CONTAINER))
    checkout.write("docs/unrelated.md", str(uuid.uuid4()))
    checkout.write("images/unrelated.md", str(uuid.uuid4()))
    again = _package(checkout, IN_CONTAINER)
    assert again.returncode == 0 and _stages(again) == [], "\n" + again.output

    with _another_line(daemon, image) as other:
        pin(checkout, other)
        try:
            assert _starts(checkout, "Compile")
        finally:
            pin(checkout, image)


@contextlib.contextmanager
def _another_line(daemon: docker.DockerClient, image: str) -> Iterator[str]:
    """The image with another line in its Dockerfile; its containers and volumes go with it."""
    name = f"{image.split(':')[0]}-other:{uuid.uuid4().hex}"
    file = io.BytesIO(f"FROM {image}\nLABEL another=line\n".encode())
    built, _ = daemon.images.build(fileobj=file, tag=name, rm=True)
    try:
        yield name
    finally:
        for container in daemon.api.containers(all=True, filters={"ancestor": built.id}):
            daemon.api.remove_container(container["Id"], force=True)
        for volume in daemon.volumes.list(filters={"label": f"image_name={built.id}"}):
            volume.remove()
        daemon.images.remove(name)


def _starts(checkout: Checkout, stage: str) -> bool:
    """Whether a run in the container starts a process of a stage; the run is ended then.

    An image's first one makes a build environment, which is not waited for.
    """
    command = [str(checkout.root / "pants"), "--no-dynamic-ui", "--level=info"]
    command += ["--cuda-wheels-gpu-archs=9.0", "package", WHEEL]
    with subprocess.Popen(
        command,
        cwd=checkout.root,
        env=checkout.process_environment(IN_CONTAINER),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        started = any(f"Starting: {stage} " in line for line in run.stderr)
        run.send_signal(signal.SIGINT)
    return started


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
        doctor = checkout.pants("cuda-doctor", env=IN_CONTAINER)
        assert doctor.returncode == 1, "\n" + doctor.output
        assert "No toolchain image for amd64 is pinned" in doctor.stdout
        # Without environments over images nothing of Docker lacks.
        assert checkout.pants("cuda-doctor").returncode == 0
    finally:
        pin(checkout, image)
    doctor = checkout.pants("cuda-doctor", env=IN_CONTAINER)
    assert doctor.returncode == 0, "\n" + doctor.output
    assert image in doctor.stdout


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


@pytest.mark.parametrize("goal", ["package", "cuda-build", "cuda-shell"])
def test_a_target_of_another_architecture(checkout: Checkout, goal: str) -> None:
    run = checkout.pants(goal, WHEEL.replace("amd64", "arm64"), env=IN_CONTAINER)
    assert run.returncode == 1, "\n" + run.output
    # Nothing was asked, fetched or started for it.
    assert run.processes == []
    assert "Traceback" not in run.output and "NoFallbackEnvironment" not in run.output
    assert "for arm64, but this machine and its Docker daemon are amd64" in run.output
    assert "`pants.remote-execution.toml`" in run.output


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("unix://{}/none.sock", "apt-get install docker.io"),
        ("tcp://127.0.0.1:2375", "Unset DOCKER_HOST"),
    ],
)
def test_no_daemon(checkout: Checkout, tmp_path: Path, address: str, expected: str) -> None:
    assert expected in _refused(checkout, {"DOCKER_HOST": address.format(tmp_path)})


LIMITS = """
from cuda_wheels.sandbox import machine
memory = machine.read_memory()
print(machine.read_cores(), memory.available, memory.limited_by)
"""


def test_the_limits_of_a_container_are_seen_in_it(
    checkout: Checkout, daemon: docker.DockerClient, image: str
) -> None:
    said = daemon.containers.run(
        image,
        ["python3.12", "-c", LIMITS],
        environment={"PYTHONPATH": "/build_rules"},
        volumes={str(checkout.root / "build_rules"): {"bind": "/build_rules", "mode": "ro"}},
        mem_limit="512m",
        nano_cpus=1_000_000_000,
        remove=True,
    )
    cores, available, limited_by = said.decode().split(maxsplit=2)
    assert int(cores) == 1
    assert 0 < int(available) < 512 << 20
    assert "cgroup" in limited_by
