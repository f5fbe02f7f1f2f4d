"""What is said of sockets that lead nowhere. What a daemon tells is read in tests/integration too."""

from __future__ import annotations

import io
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import daemon, docker_state
from cuda_wheels.sandbox.docker_testutil import LABEL, docker_client

client = docker_client  # a fixture


def _state(address: str) -> docker_state.Facts:
    return docker_state.state([], {"DOCKER_HOST": address}, leftovers=False)


def test_no_socket(tmp_path: Path) -> None:
    found = _state(f"unix://{tmp_path}/docker.sock")
    assert (found["fault"], found["socket"]) == ("absent", f"{tmp_path}/docker.sock")


def test_a_socket_that_a_stopped_daemon_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
    assert _state(f"unix://{tmp_path}/docker.sock")["fault"] == "stopped"


def test_a_daemon_elsewhere() -> None:
    found = _state("tcp://ada:secret@127.0.0.1:2375")
    assert found["fault"] == "remote"
    assert "127.0.0.1:2375" in found["detail"] and "secret" not in str(found)


def test_who_answers_and_is_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        # Nobody accepts: the SDK gives up.
        monkeypatch.setattr(docker_state, "TIMEOUT_S", 0.2)
        assert _state(f"unix://{tmp_path}/s")["fault"] == "other"


def test_toolchain_images_with_and_without_a_name(client: Any) -> None:
    labels = f"{docker_state.LABEL}=cpu {LABEL}"

    def build(number: int, **options: str) -> str:
        file = io.BytesIO(f"FROM scratch\nLABEL {labels} number={number}\n".encode())
        image, _ = client.images.build(fileobj=file, rm=True, **options)
        return str(image.id)

    name = f"cuda-wheels-test/name:{LABEL.rpartition('=')[2]}"
    ids = build(1), build(2, tag=name)
    found = {one["id"]: one["names"] for one in docker_state.own_images(client)}
    assert [found[id] for id in ids] == [[], [name]]


def test_pants_daemons_by_their_own_names(tmp_path: Path) -> None:
    for pid, line in (("1", b"init\0"), ("2", b"pantsd [/src/check out]\0"), ("3", b"")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(line)
    (tmp_path / "4").mkdir()
    assert docker_state.pantsds(tmp_path) == ["/src/check out"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_socket_of_others() -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        os.chmod(directory, 0o755)
        listener.bind(f"{directory}/docker.sock")
        os.chmod(f"{directory}/docker.sock", 0o660)
        listener.listen()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = daemon.socket_fault(f"{directory}/docker.sock", 60)
            os.write(write, str(found and found.kind).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 100) == b"refused"
