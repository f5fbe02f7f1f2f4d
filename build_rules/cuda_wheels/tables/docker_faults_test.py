from __future__ import annotations

import pytest

from cuda_wheels.tables.docker_faults import no_daemon


@pytest.mark.parametrize(
    ("fault", "helps"),
    [
        ("absent", "apt-get install docker.io"),
        ("stopped", "systemctl start docker"),
        ("refused", "usermod -aG docker"),
        ("other", "docker version"),
    ],
)
def test_where_nobody_answered_and_what_helps(fault: str, helps: str) -> None:
    text = no_daemon(fault, "/run/docker.sock", "something else")
    assert "/run/docker.sock" in text and helps in text
    assert ("something else" in text) == (fault in ("refused", "other"))


def test_an_address_that_pants_cannot_use() -> None:
    text = no_daemon("remote", "tcp://127.0.0.1:1", "DOCKER_HOST is tcp://127.0.0.1:1")
    assert text.startswith("DOCKER_HOST is tcp://127.0.0.1:1") and "Unset DOCKER_HOST" in text


def test_nobody_knows_where() -> None:
    assert "could not be asked: no tools." in no_daemon("other", "", "no tools")
