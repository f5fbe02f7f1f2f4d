"""What is asked of servers that break off, are busy, or send on to others."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit.wheelhouse import WheelhouseError
from cuda_wheels.tables.publish_addresses import Variables
from verify import web
from verify.web import Client

CONTENT = bytes(range(256)) * 40
WHO = Variables("WHO_USER", "WHO_PASS")


class Server:
    """Answers each request by the next of its `replies`; `seen` has method, path and headers."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers)))
                outer.replies.pop(0)(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(web, "PAUSE_S", 0)
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def says(code: int, body: bytes = b"", announced: int | None = None, **headers: str) -> Any:
    def reply(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(body) if announced is None else announced))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def test_what_broke_off_goes_on_where_it_did(server: Server, tmp_path: Path) -> None:
    half = len(CONTENT) // 2
    server.replies = [says(200, CONTENT[:half], len(CONTENT)), says(206, CONTENT[half:])]
    Client(server.url).save(f"{server.url}/x", tmp_path / "x", len(CONTENT))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [headers.get("Range") for _, headers in server.seen] == [None, f"bytes={half}-"]


def test_a_server_that_knows_no_ranges_sends_all_of_it_again(
    server: Server, tmp_path: Path
) -> None:
    server.replies = [says(200, CONTENT[:99], len(CONTENT)), says(200, CONTENT)]
    Client(server.url).save(f"{server.url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.replies = [says(503), says(500), says(200, b"{}")]
    assert Client(server.url).read(f"{server.url}/x").json() == {}


def test_it_gives_up(server: Server, tmp_path: Path) -> None:
    server.replies = [says(503)] * web.TRIES
    with pytest.raises(WheelhouseError, match="503"):
        Client(server.url).read(f"{server.url}/x")
    server.replies = [says(200, b"x", 9)] * web.TRIES
    with pytest.raises(WheelhouseError, match="broke off after 1 of 9 bytes"):
        Client(server.url).read(f"{server.url}/x")
    assert len(server.seen) == 2 * web.TRIES


def test_what_will_not_change_is_asked_once(server: Server, tmp_path: Path) -> None:
    server.replies = [says(404)]
    with pytest.raises(web.NotThere):
        Client(server.url).read(f"{server.url}/x")
    server.replies = [says(200, CONTENT)]
    with pytest.raises(WheelhouseError, match="more than the 9 bytes"):
        Client(server.url).save(f"{server.url}/x", tmp_path / "x", 9)
    assert len(server.seen) == 2


def test_a_password_goes_to_its_own_server_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO_USER", "ada")
    monkeypatch.setenv("WHO_PASS", "correct-horse")
    other = Server()
    thread = threading.Thread(target=other.http.serve_forever)
    thread.start()
    try:
        server.replies = [
            says(401, WWW_Authenticate='Basic realm="x"'),
            says(302, Location=f"{server.url}/here"),
            says(302, Location=f"{other.url}/there"),
        ]
        other.replies = [says(200, CONTENT)]
        Client(server.url, WHO).save(f"{server.url}/x", tmp_path / "x")
    finally:
        other.http.shutdown()
        other.http.server_close()
        thread.join()
    sent = [(path, "Authorization" in headers) for path, headers in server.seen + other.seen]
    assert sent == [("/x", False), ("/x", True), ("/here", True), ("/there", False)]
