"""The Docker daemon of this machine, for tests, whose images they remove; and daemons of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn, Self

import docker
import docker.errors
import pytest

from cuda_wheels.sandbox.program import ProgramError

LABEL = f"cuda-wheels.test={uuid.uuid4().hex}"
"""A label of all images that the tests of this process build: others build theirs on the same daemon."""

TIMEOUT_S = 600  # for one answer of a daemon whose machine is busy
START_S = 120


def told(action: Callable[[], Any]) -> str:
    """The text of the ProgramError that the action raises."""
    with pytest.raises(ProgramError) as raised:
        action()
    return str(raised.value)


def unavailable(reason: str) -> NoReturn:
    """Leave the test out for want of Docker, or fail it where `.ci/run` says that there must be one."""
    if os.environ.get("CUDA_WHEELS_DOCKER_TESTS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def answering_daemon() -> Any:
    """A client of this machine's daemon; the test ends, see `unavailable`, where none answers."""
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        unavailable(f"no Docker daemon answers here (`apt-get install docker.io`): {error}")
    return client


@pytest.fixture
def docker_client() -> Iterator[Any]:
    """A client of this machine's daemon, which takes the images with LABEL away at the end."""
    client = answering_daemon()
    try:
        yield client
    finally:
        _remove_images(client)
        client.close()


def _remove_images(client: Any) -> None:
    """Remove the images with LABEL. One that another is built on can only be removed after that."""
    while images := client.api.images(filters={"label": LABEL}):
        refused = []
        for image in images:
            try:
                client.api.remove_image(image["Id"], force=True)
            except docker.errors.NotFound:
                continue
            except docker.errors.APIError as error:
                if error.status_code != HTTPStatus.CONFLICT:
                    raise
                refused.append(error)
        if len(refused) == len(images):
            raise refused[0]


class PrivateDaemon:
    """A daemon of the test's own, which it may stop and whose disk it may fill.

    It has a network namespace of its own: without a bridge a daemon removes `docker0`, that of the
    machine's. Its containers have no network. By default it keeps layers as plain copies, which any
    file system takes. As a context manager it ends with all that it has.
    """

    def __init__(self, folder: Path, storage: str = "vfs") -> None:
        self.folder = folder
        self.data = folder / "data"
        # The path of a socket must be short, and of those below `--exec-root`.
        self._sockets = tempfile.TemporaryDirectory()
        self.host = f"unix://{self._sockets.name}/docker.sock"
        self._exec = f"{self._sockets.name}/exec"
        self._storage = storage
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Any:
        """Start it; returns a client of it. The test ends, see `unavailable`, if it does not answer."""
        if shutil.which("dockerd") is None or os.geteuid():
            unavailable("a daemon of the test's own takes root and `dockerd`")
        command = ["unshare", "--net", "dockerd"]
        command += ["--host", self.host, "--data-root", str(self.data)]
        command += ["--exec-root", self._exec, "--pidfile", str(self.folder / "pid")]
        # The machine's firewall does not have to be possible here.
        command += ["--storage-driver", self._storage, "--bridge", "none", "--iptables=false"]
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(docker.errors.DockerException, OSError):
                client = self.client()
                client.ping()
                return client
            time.sleep(0.1)
        self.stop()
        unavailable(f"no second Docker daemon starts here: {log.read_text()[-4000:]}")

    def client(self) -> Any:
        """A client of it."""
        return docker.DockerClient(base_url=self.host, version="auto", timeout=TIMEOUT_S)

    def stop(self) -> None:
        """Stop it and its containers, as a reboot or an administrator does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        # A daemon that did not come up leaves its mount of this.
        if self.data.is_mount():
            subprocess.run(["umount", "--recursive", str(self.data)], check=True)
        self._sockets.cleanup()


class Line:
    """A connection to a daemon that the test may cut: it listens at `host`, and hands on."""

    def __init__(self, host: str, daemon: str) -> None:
        self.host = host
        self._daemon = daemon.removeprefix("unix://")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(host.removeprefix("unix://"))
        self._listener.listen()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every connection in both directions, and take no other."""
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._daemon)
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._hand_on, args=pair, daemon=True).start()

    @staticmethod
    def _hand_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
