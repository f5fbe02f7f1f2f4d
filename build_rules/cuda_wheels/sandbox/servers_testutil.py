"""Real servers for tests: a package index with an upload API, and an OCI registry."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

USER, PASSWORD = "ada", "correct-horse"
# `htpasswd -nbB ada correct-horse`: the registry takes bcrypt alone.
BCRYPT = "ada:$2b$05$abcdefghijklmnopqrstuuZ0Fx87Pb/Aqb0E90lfvCwzXnaFKUHpS"
REGISTRY = "docker-registry"


@dataclass(frozen=True)
class Server:
    """A running server, its address without a slash at the end, and where it keeps its files."""

    url: str
    files: Path
    log: Path

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def package_index(folder: Path, *, password: bool = False) -> Iterator[Server]:
    """pypiserver; with `password` uploads want USER and PASSWORD."""
    files = folder / "packages"
    files.mkdir(parents=True)
    digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
    (folder / "htpasswd").write_text(f"{USER}:{{SHA}}{digest}\n")
    guard = ["-P", str(folder / "htpasswd"), "-a", "update"] if password else ["-P", ".", "-a", "."]
    port = _free_port()
    command = [sys.executable, "-m", "pypiserver", "run", "-p", str(port), "-i", "127.0.0.1", "-v"]
    command += ["--disable-fallback", "--backend", "simple-dir", *guard, str(files)]
    with _running(command, port, folder / "log"):
        yield Server(f"http://127.0.0.1:{port}", files, folder / "log")


@contextlib.contextmanager
def oci_registry(folder: Path, *, password: bool = False) -> Iterator[Server]:
    """Debian's docker-registry; with `password` everything wants USER and PASSWORD."""
    program = shutil.which(REGISTRY)
    if program is None:
        pytest.skip(f"there is no {REGISTRY} here (`apt-get install {REGISTRY}`)")
    files = folder / "registry"
    files.mkdir(parents=True)
    (folder / "htpasswd").write_text(f"{BCRYPT}\n")
    port = _free_port()
    guard = f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}\n"
    (folder / "config.yml").write_text(
        "version: 0.1\n"
        "log: {level: info, accesslog: {disabled: false}}\n"
        f"storage: {{filesystem: {{rootdirectory: {files}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}}}\n" + (guard if password else "")
    )
    with _running([program, "serve", str(folder / "config.yml")], port, folder / "log"):
        yield Server(f"http://127.0.0.1:{port}", files, folder / "log")


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        while not _answers(port):
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended: {log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
