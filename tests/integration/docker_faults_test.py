"""What becomes of a build when Docker fails under it; on a daemon of the test's own."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from integration.checkout import Checkout, Run
from integration.containers import (
    EVERY_SESSION,
    IN_CONTAINER,
    SecondDaemon,
    docker_daemon,
    remove_containers,
    sandboxes,
    toolchain_image,
)
from integration.recipes import address, comment_patch, recipe

WHEEL = address("vecadd")
PATCH = "tests/fixtures/vecadd/patches/0001-comment.patch"
daemon = docker_daemon  # a fixture


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("faults")
    with Checkout(root / "checkout", {**IN_CONTAINER, **sandboxes(root)}) as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        yield checkout


@pytest.fixture(scope="module")
def image(daemon: docker.DockerClient, checkout: Checkout) -> Iterator[str]:
    name = toolchain_image(checkout, daemon)
    # So that its volume has the build environment.
    assert _package(checkout).returncode == 0
    yield name
    checkout.stop_pantsd()
    remove_containers(daemon, checkout)


@pytest.fixture(scope="module")
def second(
    daemon: docker.DockerClient,
    checkout: Checkout,
    image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SecondDaemon]:
    with SecondDaemon(tmp_path_factory.mktemp("daemon"), size_gb=3) as second:
        second.take(daemon, image)
        # Pants talks to the daemon that it met first.
        _end_pantsd(checkout)
        checkout.environment["DOCKER_HOST"] = second.host
        yield second
        _end_pantsd(checkout)
        del checkout.environment["DOCKER_HOST"]


def _end_pantsd(checkout: Checkout) -> None:
    """What messages and docs tell users to do, and wait for it."""
    subprocess.run("kill $(cat .pids/*/pantsd/pid)", shell=True, cwd=checkout.root, check=False)
    time.sleep(2)


def _package(checkout: Checkout) -> Run:
    return checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", WHEEL)


def _failed(checkout: Checkout, run: Run) -> str:
    """The message of a run that must not have written a wheel."""
    assert run.returncode == 1, "\n" + run.output
    assert checkout.wheels() == []
    assert "Traceback" not in run.output
    return run.output


def _fresh(checkout: Checkout, patch: str | None = None) -> None:
    """A wheel that no cache has, and nothing in dist."""
    checkout.write(PATCH, patch or comment_patch(str(uuid.uuid4())))
    for wheel in checkout.wheels():
        wheel.unlink()


def _succeeds(checkout: Checkout) -> None:
    run = _package(checkout)
    assert run.returncode == 0, "\n" + run.output
    assert len(checkout.wheels()) == 1


def test_a_full_disk(checkout: Checkout, second: SecondDaemon) -> None:
    _fresh(checkout)
    with second.full():
        message = _failed(checkout, _package(checkout))
    assert "disk" in message.lower() and "full" in message
    _end_pantsd(checkout)
    _succeeds(checkout)


def test_an_image_that_is_deleted_under_a_live_daemon(
    checkout: Checkout, second: SecondDaemon, daemon: docker.DockerClient, image: str
) -> None:
    _fresh(checkout)
    client = second.client()
    remove_containers(client, checkout)
    client.images.remove(image, force=True)
    assert f"The toolchain image {image} is not on this machine" in _failed(
        checkout, _package(checkout)
    )
    subprocess.run(
        f"docker save {image} | docker --host {second.host} load", shell=True, check=True
    )
    # Its container went with the image, and Pants does not know.
    message = _failed(checkout, _package(checkout))
    assert "kill $(cat .pids/*/pantsd/pid)" in message
    _end_pantsd(checkout)
    _succeeds(checkout)


def test_a_daemon_that_is_stopped_while_it_compiles(
    checkout: Checkout, second: SecondDaemon, image: str
) -> None:
    first_line = (checkout.root / "tests/fixtures/vecadd/setup.py").read_text().splitlines()[0]
    _fresh(checkout, SLOW.format(uuid.uuid4(), first_line))
    runs: list[Run] = []
    building = threading.Thread(target=lambda: runs.append(_package(checkout)))
    building.start()
    try:
        _wait_for_compiler(second)
    finally:
        second.stop()
        building.join()
    # Which of them is seen first is up to the daemon, which ends its containers and then itself.
    message = _failed(checkout, runs[0])
    assert any(text in message for text in STOPPED), message
    assert "No Docker daemon listens at" in _failed(checkout, _package(checkout))

    second.start()
    assert "kill $(cat .pids/*/pantsd/pid)" in _failed(checkout, _package(checkout))
    _end_pantsd(checkout)
    _fresh(checkout)
    _succeeds(checkout)

    # What is left over is named, with what removes it, and then nothing is.
    _end_pantsd(checkout)
    shown = checkout.pants("cuda-doctor").stdout
    left = second.client().containers.list(all=True)
    assert left
    for container in left:
        command = f"docker rm -f {container.id[:12]}"
        assert command in shown
        subprocess.run(f"DOCKER_HOST={second.host} {command}", shell=True, check=True)
    assert second.client().containers.list(all=True) == []


STOPPED = (
    "The Docker daemon went away",
    "container has stopped",
    "Docker did not run the step",
    "The step was killed (exit code 137)",
)
SLOW = """\
Reason: a test that needs time.
--- a/setup.py
+++ b/setup.py
@@ -1,1 +1,3 @@
+import time  # {}
+time.sleep(300)
 {}
"""


def _wait_for_compiler(second: SecondDaemon) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for container in second.client().containers.list():
            # Without a width `ps` cuts its lines.
            rows = container.top(ps_args="axww -o pid,args")["Processes"]
            if any("-m pip wheel" in " ".join(row) for row in rows):
                return
        time.sleep(1)
    raise AssertionError("no compile step began")


def test_two_builds_at_once(
    daemon: docker.DockerClient, checkout: Checkout, image: str, tmp_path: Path
) -> None:
    """Two checkouts, one image: their containers share the volume with the build environment."""
    patch = comment_patch(str(uuid.uuid4()))
    runs: dict[int, Run] = {}
    wheels: dict[int, bytes] = {}

    def build(number: int) -> None:
        root = tmp_path / str(number)
        own = {"PANTS_LOCAL_STORE_DIR": str(root / "store"), **IN_CONTAINER, **sandboxes(root)}
        with Checkout(root / "checkout", own) as one:
            one.add_fixture("vecadd", recipe("vecadd"))
            one.write(PATCH, patch)
            one.write("images/pins.py", (checkout.root / "images/pins.py").read_text())
            runs[number] = _package(one)
            (wheel,) = one.wheels()
            wheels[number] = wheel.read_bytes()
        # A pantsd that is killed leaves its container.
        remove_containers(daemon, one)

    builds = [threading.Thread(target=build, args=(number,)) for number in (1, 2)]
    for one in builds:
        one.start()
    for one in builds:
        one.join()
    for run in runs.values():
        assert run.returncode == 0, "\n" + run.output
        assert any(name.startswith("Compile") for name in set(run.processes) - EVERY_SESSION)
    assert wheels[1] == wheels[2]
