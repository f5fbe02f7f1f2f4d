"""In child processes, since a filter cannot be taken off again."""

from __future__ import annotations

import errno
import subprocess
import sys

PROGRAM = """
import errno, os, socket, subprocess, sys
from cuda_wheels.sandbox import network_filter

network_filter.install()
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("opened")
    except OSError as error:
        print(errno.errorcode[error.errno])
socket.socket(socket.AF_UNIX)
one, other = socket.socketpair()
one.send(b"x")
assert other.recv(1) == b"x"
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
child = "import socket; socket.create_connection(('127.0.0.1', 9))"
done = subprocess.run([sys.executable, "-c", child], stderr=subprocess.PIPE, text=True)
print(done.stderr.splitlines()[-1])
"""


def test_no_process_opens_a_socket_to_a_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *families, child = done.stdout.splitlines()
    assert families == [errno.errorcode[errno.ENETUNREACH]] * 3
    assert "Network is unreachable" in child
