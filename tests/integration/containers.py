"""What tests that build in containers share: a daemon, a toolchain image on the stand-in, its pin."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import docker
import pytest

from cuda_wheels.sandbox.docker_testutil import PrivateDaemon, answering_daemon
from images.stand_in import base_image
from integration.checkout import Checkout

IN_CONTAINER = {"PANTS_CONFIG_FILES": "pants.docker.toml"}
# What is asked in every session, and never cached.
EVERY_SESSION = {"Look at the toolchain", "Ask the Docker daemon"}


@pytest.fixture(scope="module")
def docker_daemon() -> Iterator[docker.DockerClient]:
    """This machine's daemon. `.ci/run` has one; elsewhere the tests are left out without it."""
    if os.geteuid():
        pytest.skip("the stand-in image is made by debootstrap, which takes root")
    with contextlib.closing(answering_daemon()) as client:
        yield client


def toolchain_image(checkout: Checkout, daemon: docker.DockerClient) -> str:
    """Build a toolchain image on the stand-in, from the same template as all others, and pin it."""
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
    return str(name)


def pin(checkout: Checkout, image: str) -> None:
    """Have the environment of the fixtures' row be this image."""
    checkout.write(
        "images/pins.py",
        f'BASE_PINS = pins({{}})\nIMAGE_PINS = pins({{"amd64-cu130": "{image}"}})\n',
    )


def sandboxes(root: Path) -> dict[str, str]:
    """The variable that puts a checkout's sandboxes below `root`: its containers are known by them."""
    place = root / "sandboxes"
    place.mkdir(parents=True)
    return {"PANTS_LOCAL_EXECUTION_ROOT_DIR": str(place)}


def remove_containers(daemon: docker.DockerClient, checkout: Checkout) -> None:
    """Remove what the pantsd of a checkout leaves when it is killed, and nobody else's."""
    ours = checkout.environment["PANTS_LOCAL_EXECUTION_ROOT_DIR"]
    for container in daemon.containers.list(all=True, ignore_removed=True):
        if any(mount.get("Source", "").startswith(ours) for mount in container.attrs["Mounts"]):
            container.remove(force=True)


class SecondDaemon(PrivateDaemon):
    """A daemon of the test's own on a small disk, which takes images over. It runs when it is entered."""

    def __init__(self, folder: Path, size_gb: int) -> None:
        super().__init__(folder, storage="overlay2")
        self._size = size_gb << 30
        self._disk = folder / "disk"
        self.data = self._disk / "docker"
        self._mounts = contextlib.ExitStack()
        self._volumes: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        image = self.folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(self._size)
        _run("mkfs.ext4", "-q", str(image))
        self._disk.mkdir()
        self._mount("-o", "loop", str(image), str(self._disk))
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._mounts.close()

    def _mount(self, *arguments: str) -> None:
        _run("mount", *arguments)
        self._mounts.callback(_unmount, arguments[-1])

    def start(self) -> docker.DockerClient:
        """Start it, with the volumes that it has taken over."""
        client = super().start()
        # A daemon that ends takes the mounts below its directory away.
        for source, target in self._volumes:
            self._mount("--bind", source, target)
        return client

    def take(self, daemon: docker.DockerClient, image: str) -> None:
        """Take an image over from another daemon, and the volume with its build environments."""
        _run("sh", "-c", f"docker save {image} | docker --host {self.host} load")
        found = daemon.images.get(image).id
        for volume in daemon.volumes.list():
            if (volume.attrs.get("Labels") or {}).get("image_name") == found:
                ours = self.client().volumes.create(volume.name, labels=volume.attrs["Labels"])
                places = (volume.attrs["Mountpoint"], ours.attrs["Mountpoint"])
                self._volumes.append(places)
                self._mount("--bind", *places)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room on its disk."""
        filler = self._disk / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], capture_output=True)
        try:
            yield
        finally:
            filler.unlink()


def _unmount(path: str) -> None:
    if os.path.ismount(path):
        _run("umount", path)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
