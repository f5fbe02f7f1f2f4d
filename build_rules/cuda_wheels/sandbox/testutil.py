"""A package index, archives, wheels and programs that tests make for themselves."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import os
import shutil
import socket
import sys
import tarfile
import threading
import venv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

# Child processes must find these modules wherever the tests' own came from.
CHILD_ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

GCC = shutil.which("gcc") or "gcc"
GXX = shutil.which("g++") or "g++"

_PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def script(path: Path, body: str) -> str:
    """Write an executable shell script; its path is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def sha256(data: bytes) -> str:
    """The sha256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def tar_bytes(
    files: Mapping[str, str], *, mode: int = 0o644, suffix: Literal["gz", "xz"] = "gz"
) -> bytes:
    """A compressed tar archive with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz" if suffix == "xz" else "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def zip_bytes(files: Mapping[str, str], *, mode: int = 0o100644) -> bytes:
    """A zip archive with these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            package.writestr(member, text)
    return buffer.getvalue()


def wheel_bytes(
    name: str, version: str, *, requires: str = "", files: Mapping[str, str] | None = None
) -> bytes:
    """A pure wheel with metadata, and no other files but `files`."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    info = f"{name}-{version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
    return zip_bytes(
        {
            **(files or {}),
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": wheel,
            f"{info}/RECORD": record,
        }
    )


def build_environment(path: Path, nvcc: str) -> Path:
    """A build environment that holds pip, and a script in place of nvcc."""
    venv.create(path, with_pip=True, symlinks=True)
    script(path / "cuda/bin/nvcc", nvcc)
    return path


def build_inputs(root: Path, backend: str) -> Path:
    """The files that `build_request` names; the source, with this PEP 517 backend, is returned."""
    source = root / "source"
    source.mkdir()
    (source / "backend.py").write_text(backend)
    (source / "pyproject.toml").write_text(_PYPROJECT)
    (root / "lock.txt").touch()
    return source


def build_request(**changes: Any) -> dict[str, Any]:
    """The request of the compile program for a package `pkg`, in the directory of its inputs."""
    return {
        "distribution": "pkg",
        "version": "1.0",
        "variant": "amd64-cu130-torch2.11.0-cp312",
        "source": "source",
        "build_lock": "lock.txt",
        "bootstrap_lock": "lock.txt",
        "cache": "cache",
        "wheels": [],
        "toolchain": {"gcc": GCC, "gxx": GXX, "cuda_home": None, "identity": "test"},
        "env": {"TORCH_CUDA_ARCH_LIST": "9.0"},
        "memory_per_job_gb": 0.001,
        "log": "pkg.log",
        **changes,
    }


# The program, with the environments of the test and a fixed path of its own.
_BUILD_PROGRAM = """
import functools, importlib, sys
from pathlib import Path
from cuda_wheels.sandbox import environment, namespace, program
name, isolation, bootstrap, env = sys.argv[2:6]
if isolation == "lock":
    namespace.start = functools.partial(namespace.start, attempts=namespace._ATTEMPTS[3:])
environment.ensure_bootstrap = lambda *_: Path(bootstrap)
environment.ensure_environment = lambda *_, **__: Path(env)
module = importlib.import_module("cuda_wheels.sandbox." + name)
module.FIXED = Path("fixed").absolute()
program.run(module.main)
"""


def build_command(
    program: str, bootstrap: Path, env: Path, *, isolation: str = "best"
) -> list[str]:
    """Runs `compile` or `shell` on `request.json` of the working directory, in these environments.

    With `isolation="lock"` as where namespaces are refused.
    """
    arguments = ["request.json", program, isolation, str(bootstrap), str(env)]
    return [sys.executable, "-c", _BUILD_PROGRAM, *arguments]


@dataclass
class Index:
    """A simple index (PEP 503) on this machine; `hashes` off leaves the fragments away.

    `announced`: wheels of which there is only the page's entry and the metadata (PEP 658), as
    sha256 and metadata; the PyTorch index is played by such.
    """

    hashes: bool = True
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    announced: dict[str, dict[str, tuple[str, bytes]]] = field(default_factory=dict)
    broken: int = 0
    requested: list[str] = field(default_factory=list)
    wrong_hashes: dict[str, str] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        """The address to configure, with a user and a password that no message may show."""
        return f"http://someone:s3cret@127.0.0.1:{self.port}/simple"

    def add(self, project: str, filename: str, content: bytes) -> str:
        """Serve a file of a project; its sha256 is returned."""
        self.files.setdefault(project, {})[filename] = content
        return sha256(content)

    def announce(self, project: str, filename: str, digest: str, metadata: str) -> None:
        """List a wheel and serve its metadata, and not the wheel."""
        self.announced.setdefault(project, {})[filename] = (digest, metadata.encode())

    def page(self, project: str) -> str:
        """The page that lists the files of a project."""
        links = []
        for filename, content in self.files.get(project, {}).items():
            announced = self.wrong_hashes.get(filename, sha256(content))
            fragment = f"#sha256={announced}" if self.hashes else ""
            links.append(f'<a href="/files/{project}/{quote(filename)}{fragment}">{filename}</a>')
        for filename, (digest, metadata) in self.announced.get(project, {}).items():
            links.append(
                f'<a href="/files/{project}/{quote(filename)}#sha256={digest}" '
                f'data-core-metadata="sha256={sha256(metadata)}">{filename}</a>'
            )
        return f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>"

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        self.requested.append(path)
        if self.broken > 0:
            self.broken -= 1
            return 503, "text/plain", b"try later"
        parts = unquote(path).strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2 and parts[1] in {*self.files, *self.announced}:
            return 200, "text/html", self.page(parts[1]).encode()
        if parts[0] == "files" and len(parts) == 3:
            project, filename = parts[1:]
            if filename in self.files.get(project, {}):
                return 200, "application/octet-stream", self.files[project][filename]
            wheel, _, rest = filename.rpartition(".metadata")
            if not rest and wheel in self.announced.get(project, {}):
                return 200, "text/plain", self.announced[project][wheel][1]
        return 404, "text/plain", b"not here"


@contextlib.contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve an index from a thread of this process."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = index.answer(self.path.split("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield f"http://someone:s3cret@127.0.0.1:{listening.getsockname()[1]}/simple"


def unused_address() -> str:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://someone:s3cret@127.0.0.1:{taken.getsockname()[1]}/simple"
