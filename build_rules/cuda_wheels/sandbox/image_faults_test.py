"""A daemon that goes away, and one whose disk is full, while an image is built: a daemon of the test's own."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from cuda_wheels.sandbox import image_build
from cuda_wheels.sandbox.docker_testutil import TIMEOUT_S, Line, PrivateDaemon, told
from cuda_wheels.sandbox.program import ProgramError

NAME = "cuda-wheels-test/amd64-cpu:0123456789abcdef"
DOCKERFILE = "FROM scratch\nCOPY wait /wait\nCOPY seconds /seconds\n" 'RUN ["/wait"]\n'
# Of a program that needs nothing: there is no C library in the image.
SOURCE = """
#include <stdio.h>
#include <unistd.h>
int main(void) {
  unsigned seconds = 0;
  FILE *file = fopen("/seconds", "r");
  if (!file || fscanf(file, "%u", &seconds) != 1) return 1;
  sleep(seconds);
  return 0;
}
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateDaemon]:
    folder = tmp_path / "daemon"
    folder.mkdir()
    with PrivateDaemon(folder) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        yield daemon


def context(folder: Path, seconds: int) -> Path:
    folder.mkdir()
    (folder / "wait.c").write_text(SOURCE)
    command = ["gcc", "-static", "-o", str(folder / "wait"), str(folder / "wait.c")]
    if shutil.which("gcc") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("no gcc here that links statically")
    (folder / "seconds").write_text(str(seconds))
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return folder


def build(client: Any, folder: Path) -> Any:
    return image_build.build(
        client,
        folder,
        NAME,
        platform=f"linux/{client.version()['Arch']}",
        network="none",
        log=folder.parent / "build.log",
        fresh=False,
    )


class Building:
    """A build in a thread of its own, and what it ends with."""

    def __init__(self, client: Any, folder: Path) -> None:
        self._log = folder.parent / "build.log"
        self._said: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(client, folder))
        self._thread.start()

    def _run(self, client: Any, folder: Path) -> None:
        try:
            build(client, folder)
        except ProgramError as error:
            self._said.append(str(error))

    def wait_for(self, text: str) -> None:
        """Until its log has the text."""
        while self._thread.is_alive():
            if self._log.exists() and text in self._log.read_text():
                return
            time.sleep(0.1)

    def told(self) -> str:
        """What the ProgramError says that it ended with."""
        self._thread.join()
        (message,) = self._said
        return message


def test_a_daemon_that_is_stopped_is_told_and_leaves_no_image(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    folder = context(tmp_path / "context", 600)
    building = Building(daemon.start(), folder)
    building.wait_for("Running in")
    daemon.stop()
    message = building.told()
    assert message.startswith(f"{NAME} was not built")
    assert "where the daemon is stopped" in message

    client = daemon.start()
    assert image_build.find(client, NAME) is None
    assert client.containers.list(all=True) == []
    (folder / "seconds").write_text("0")
    assert build(client, folder).tags == [NAME]


def test_a_connection_that_breaks_is_told_and_leaves_nothing(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    direct = daemon.start()
    line = Line(f"{daemon.host}.line", daemon.host)
    client = docker.DockerClient(base_url=line.host, version="auto", timeout=TIMEOUT_S)
    folder = context(tmp_path / "context", 600)
    building = Building(client, folder)
    building.wait_for("Running in")
    line.cut()
    message = building.told()
    assert message.startswith(f"{NAME} was not built: the Docker daemon") and "went away" in message

    # The daemon gives up what nobody waits for.
    while direct.containers.list(all=True):
        time.sleep(0.1)
    assert image_build.find(direct, NAME) is None
    (folder / "seconds").write_text("0")
    assert build(direct, folder).tags == [NAME]


def test_a_full_disk_is_told_and_leaves_no_image(daemon: PrivateDaemon, tmp_path: Path) -> None:
    data = daemon.data
    data.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(data)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        client = daemon.start()
        folder = context(tmp_path / "context", 0)
        large = folder / "large"
        large.write_bytes(bytes(32 * 1024 * 1024))
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY large /large\n")
        message = told(lambda: build(client, folder))
        assert message.startswith(f"{NAME} was not built") and "./pants cuda-doctor" in message
        assert image_build.find(client, NAME) is None

        large.unlink()
        (folder / "Dockerfile").write_text(DOCKERFILE)
        assert build(client, folder).tags == [NAME]
    finally:
        daemon.stop()
        subprocess.run(["umount", "--recursive", str(data)], check=False)
