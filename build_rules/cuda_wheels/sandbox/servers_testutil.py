"""Real servers for tests: a package index with an upload API, and an OCI registry."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import http.server
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "ada", "correct-horse"
# `htpasswd -nbB ada correct-horse`: the registry takes bcrypt alone.
BCRYPT = "ada:$2b$05$abcdefghijklmnopqrstuuZ0Fx87Pb/Aqb0E90lfvCwzXnaFKUHpS"
REGISTRY = "docker-registry"


def on_small_disk(folder: Path, size: str, command: Sequence[str]) -> list[str]:
    """The command, to be run where `folder` is a disk of that size (`200k`), which it alone sees.

    Skips the test where the machine refuses namespaces.
    """
    space = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    mount = 'mount -t tmpfs -o "size=$2" none "$1" && shift 2 && exec "$@"'
    return [*space, "sh", "-c", mount, "sh", str(folder), size, *command]


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
def package_index(
    folder: Path, *, password: bool = False, guarded: str = "update", disk: str | None = None
) -> Iterator[Server]:
    """pypiserver; with `password` what is `guarded` wants USER and PASSWORD.

    With `disk` its files lie on a disk of that size.
    """
    files = folder / "packages"
    files.mkdir(parents=True)
    digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
    (folder / "htpasswd").write_text(f"{USER}:{{SHA}}{digest}\n")
    guard = ["-P", str(folder / "htpasswd"), "-a", guarded] if password else ["-P", ".", "-a", "."]
    port = _free_port()
    command = [sys.executable, "-m", "pypiserver", "run", "-p", str(port), "-i", "127.0.0.1", "-v"]
    command += ["--disable-fallback", "--backend", "simple-dir", *guard, str(files)]
    if disk:
        command = on_small_disk(files, disk, command)
    with _running(command, port, folder / "log"):
        yield Server(f"http://127.0.0.1:{port}", files, folder / "log")


@contextlib.contextmanager
def oci_registry(
    folder: Path,
    *,
    password: bool = False,
    tokens: TokenServer | None = None,
    disk: str | None = None,
) -> Iterator[Server]:
    """Debian's docker-registry; with `password` everything wants USER and PASSWORD.

    With `tokens` it wants one of that server's tokens instead. With `disk` its files lie on a disk
    of that size.
    """
    program = shutil.which(REGISTRY)
    if program is None:
        pytest.skip(f"there is no {REGISTRY} here (`apt-get install {REGISTRY}`)")
    files = folder / "registry"
    files.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(f"{BCRYPT}\n")
    port = _free_port()
    guard = (
        f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}\n" if password else ""
    )
    if tokens:
        known = f"service: registry, issuer: test, rootcertbundle: {tokens.certificate}"
        guard = f"auth: {{token: {{realm: '{tokens.url}', {known}}}}}\n"
    (folder / "config.yml").write_text(
        "version: 0.1\n"
        "log: {level: info, accesslog: {disabled: false}}\n"
        f"storage: {{filesystem: {{rootdirectory: {files}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}}}\n{guard}"
    )
    command = [program, "serve", str(folder / "config.yml")]
    if disk:
        command = on_small_disk(files, disk, command)
    with _running(command, port, folder / "log"):
        yield Server(f"http://127.0.0.1:{port}", files, folder / "log")


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[Server]:
    """A registry that wants no password."""
    with oci_registry(tmp_path / "server") as server:
        yield server


@dataclass(frozen=True)
class TokenServer:
    """What gives out tokens for a registry that trusts its certificate, for USER and PASSWORD."""

    url: str
    certificate: Path


@contextlib.contextmanager
def token_server(folder: Path, seen: list[str]) -> Iterator[TokenServer]:
    """By the token protocol of registries; `seen` gets what is asked of it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True)
    path = folder / "certificate.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    der = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()

    def token(scope: str) -> str:
        kind, name, actions = scope.split(":")
        claims = {
            "iss": "test",
            "aud": "registry",
            "exp": int(time.time()) + 300,
            "nbf": int(time.time()) - 10,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }
        parts = [{"typ": "JWT", "alg": "RS256", "x5c": [der]}, claims]
        text = ".".join(_url64(json.dumps(part).encode()) for part in parts)
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_url64(signature)}"

    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            allowed = self.headers.get("Authorization") == wanted
            self.send_response(200 if allowed else 401)
            self.end_headers()
            if allowed:
                self.wfile.write(json.dumps({"token": token(query["scope"][0])}).encode())

        def log_message(self, *arguments: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield TokenServer(f"http://127.0.0.1:{server.server_address[1]}/token", path)
        finally:
            server.shutdown()
            thread.join()


def _url64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


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
