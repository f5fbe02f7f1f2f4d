"""A terminal between two ends that the test holds: a user's, and a program's."""

from __future__ import annotations

import os
import subprocess
import termios
import threading
import tty
from collections.abc import Iterator

import pytest

from cuda_wheels.sandbox import terminal


class User:
    """Sits at a terminal whose other end is relayed to that of a program.

    `early` is typed before the relay starts.
    """

    def __init__(self, script: str, early: bytes = b""):
        self.screen, self.keyboard = os.openpty()
        # Keys as they are: the test's own echo is not what it reads.
        tty.setraw(self.keyboard)
        termios.tcsetwinsize(self.keyboard, (33, 101))
        self.before = termios.tcgetattr(self.keyboard)
        master, slave = os.openpty()
        self.process = subprocess.Popen(
            ["sh", "-c", script], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.type(early)
        self.relay = threading.Thread(
            target=terminal.relay,
            args=(master,),
            kwargs={"stdin": self.keyboard, "stdout": self.keyboard},
            daemon=True,
        )
        self.relay.start()

    def type(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.screen, data) :]

    def read_until(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            seen += os.read(self.screen, 4096)
        return seen


@pytest.fixture
def users() -> Iterator[list[User]]:
    users: list[User] = []
    yield users
    for user in users:
        user.process.kill()
        user.process.wait()
        user.relay.join()
        os.close(user.screen)
        os.close(user.keyboard)


def test_keys_output_and_size_are_passed_on(users: list[User]) -> None:
    user = User("read line; echo got $line of $(stty size)")
    users.append(user)
    user.type(b"hello\r")
    assert b"got hello of 33 101" in user.read_until(b"101")
    user.relay.join()
    assert termios.tcgetattr(user.keyboard) == user.before


def test_what_was_typed_before_is_passed_on_too(users: list[User]) -> None:
    user = User("read line; echo got $line", early=b"hello\r")
    users.append(user)
    user.read_until(b"got hello")


def test_more_than_a_terminal_holds_is_passed_on(users: list[User]) -> None:
    user = User("stty raw -echo; echo ready; head -c 300000 | wc -c")
    users.append(user)
    user.read_until(b"ready")
    user.type(b"x" * 300000)
    assert b"300000" in user.read_until(b"300000")


def test_a_redirected_stream_is_no_terminal() -> None:
    # Tests run without one.
    assert not terminal.has_terminal()
