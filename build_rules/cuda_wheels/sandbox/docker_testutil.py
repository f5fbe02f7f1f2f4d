"""The Docker daemon of this machine, for tests, whose images they remove; and one of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from cuda_wheels.sandbox.program import ProgramError

LABEL = f"cuda-wheels.test={uuid.uuid4().hex}"
"""A label of all images that the tests of this process build: others build theirs on the same daemon."""

TIMEOUT_S = 600  # for one answer of a daemon whose machine is busy


def told(action: Callable[[], Any]) -> str:
    """The text of the ProgramError that the action raises."""
    with pytest.raises(ProgramError) as raised:
        action()
    return str(raised.value)


@contextlib.contextmanager
def docker_client() -> Iterator[Any]:
    """A client of the daemon; skips the test where none answers, unless `.ci/run` says it must."""
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        if os.environ.get("CUDA_WHEELS_DOCKER_TESTS") == "required":
            raise
        pytest.skip(f"no Docker daemon answers here (`apt-get install docker.io`): {error}")
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

    It has no network. As a context manager it ends with all that it has.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Any:
        """Start it; returns a client of it."""
        if shutil.which("dockerd") is None or os.geteuid():
            pytest.skip("a daemon of the test's own takes root and `dockerd`")
        # A network of its own: without a bridge a daemon removes `docker0`, the machine's daemon's.
        command = ["unshare", "--net", "dockerd"]
        command += ["--host", self.host, "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "--pidfile", str(self.folder / "pid")]
        # Neither layers in other file systems nor the machine's firewall have to be possible here.
        command += ["--storage-driver", "vfs", "--bridge", "none", "--iptables=false"]
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        for _ in range(600):
            with contextlib.suppress(docker.errors.DockerException, OSError):
                client = docker.DockerClient(base_url=self.host, version="auto", timeout=120)
                client.ping()
                return client
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        pytest.skip(f"no second Docker daemon starts here: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End it, as a reboot would."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __enter__(self) -> PrivateDaemon:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


class Line:
    """A connection to a daemon that the test may cut: it listens at `host`, and hands on."""

    def __init__(self, path: Path, daemon: str) -> None:
        self.host = f"unix://{path}"
        self._daemon = daemon.removeprefix("unix://")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
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
