"""Git repositories that tests make for themselves, and servers of them."""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, without anybody's settings; its stripped output is returned."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Repository:
    """A repository in a folder of its own."""

    def __init__(self, folder: Path, files: Mapping[str, str | bytes] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet", "--initial-branch=main")
        if files:
            self.commit(files)

    def commit(self, files: Mapping[str, str | bytes] | None = None) -> str:
        """Commit these files, and what else lies there; the commit is returned."""
        for name, content in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--allow-empty", "--message=x")
        return self.head

    def add_submodule(self, path: str, url: str, commit: str) -> str:
        """Record a submodule, without fetching it; the commit is returned."""
        modules = ("config", "--file=.gitmodules")
        git(self.folder, *modules, f"submodule.the {path}.path", path)
        git(self.folder, *modules, f"submodule.the {path}.url", url)
        git(self.folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        git(self.folder, "add", ".gitmodules")
        git(self.folder, "commit", "--quiet", "--message=x")
        return self.head

    def forget(self) -> None:
        """Let the last commit be as if it had never been, as a force push and a clean-up do."""
        git(self.folder, "reset", "--quiet", "--hard", "HEAD^")
        git(self.folder, "reflog", "expire", "--expire=now", "--all")
        git(self.folder, "gc", "--quiet", "--prune=now")

    @property
    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return self.folder.as_uri()


@contextlib.contextmanager
def answering(status: int, headers: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a server with the same answer for everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(Handler) as address:
        yield address


@contextlib.contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    """The address of a server of plain files, as git's dumb protocol has it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(Handler) as address:
        yield address


@contextlib.contextmanager
def serving_git(folder: Path, *, second_protocol: bool = True) -> Iterator[str]:
    """The address of `git http-backend` over the repositories in a folder.

    In the first protocol a server does not give out a commit which is no branch's and no tag's.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(
                ["git", "http-backend"],
                env={
                    **_ENVIRONMENT,
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                    "GIT_PROJECT_ROOT": str(folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                    "GIT_PROTOCOL": (
                        (self.headers.get("Git-Protocol") or "") if second_protocol else ""
                    ),
                },
                input=body,
                stdout=subprocess.PIPE,
                check=False,
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(Handler) as address:
        yield address


@contextlib.contextmanager
def _serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
