"""Requests to servers with the standard library alone: passwords, redirects, and faults in words."""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, Callable, TypeVar

from cuda_wheels.audit.wheelhouse import WheelhouseError
from cuda_wheels.tables.publish_addresses import Variables

TIMEOUT_S = 60
_T = TypeVar("_T")

# Of what is read into memory: indexes, manifests. Wheels go to the disk.
LIMIT = 64 * 1024 * 1024
# How often what may go better the next time is tried: a server's fault, a connection that broke off.
TRIES = 3
PAUSE_S = 1.0
_CHUNK = 1 << 20
_PARAMETER = re.compile(r'([A-Za-z]+)="([^"]*)"')


class NotThere(WheelhouseError):
    """The server knows no such thing."""


@dataclass(frozen=True)
class Answer:
    """What a server sent, and the address that it came from after redirects."""

    body: bytes
    headers: Message
    address: str

    @property
    def kind(self) -> str:
        """Its media type, without parameters."""
        return str(self.headers.get("Content-Type", "")).partition(";")[0].strip().lower()

    def json(self) -> Any:
        """Raises WheelhouseError for what is none."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError as error:
            raise WheelhouseError(f"{self.address} is not JSON: {error}.") from None


def require_plain(source: str, variables: Variables | None) -> None:
    """Raises WheelhouseError for an address with a user or a password in it."""
    if "@" in urllib.parse.urlsplit(source).netloc:
        hidden = re.sub(r"//[^/\s]*@", "//***@", source)
        instead = (
            f"Leave them out, and set {variables.user} and {variables.password}."
            if variables
            else "This tool sends no password to such an address: fetch the folder by other means."
        )
        raise WheelhouseError(
            f"{hidden} has a user or password in it, which others would read. {instead}"
        )


class Client:
    """Asks one server, with user and password where it wants any.

    They come from the environment alone, are sent to that server alone, or to whom it names for
    tokens, and are never printed. `scope` is what a token is asked for.
    """

    def __init__(self, server: str, variables: Variables | None = None, scope: str = "") -> None:
        self._origin = _origin(server)
        self._variables = variables
        self._scope = scope
        self._authorization: str | None = None

    def read(self, address: str, accept: str = "*/*", limit: int = LIMIT) -> Answer:
        """What the address holds; raises WheelhouseError, and NotThere for a 404."""

        def attempt() -> Answer:
            with self._open(address, {"Accept": accept}) as answer:
                body = answer.read(limit + 1)
                if len(body) > limit:
                    raise WheelhouseError(f"{address} is larger than {limit} bytes.")
                _require_all(answer, len(body))
                return Answer(body, answer.headers, answer.geturl())

        return self._persistently(address, attempt)

    def save(self, address: str, file: Path, size: int | None = None) -> None:
        """Write it to a file; raises WheelhouseError where it has more bytes than `size`.

        What has arrived when a connection breaks off is not asked for again.
        """
        file.write_bytes(b"")

        def attempt() -> None:
            written = file.stat().st_size
            wanted = {"Range": f"bytes={written}-"} if written else {}
            with self._open(address, {"Accept": "*/*", **wanted}) as answer:
                if written and answer.status != 206:
                    written = 0
                received = 0
                with file.open("ab" if written else "wb") as out:
                    for chunk in iter(lambda: answer.read(_CHUNK), b""):
                        received += len(chunk)
                        if size is not None and written + received > size:
                            raise WheelhouseError(
                                f"{address} has more than the {size} bytes it should."
                            )
                        out.write(chunk)
                _require_all(answer, received)

        self._persistently(address, attempt)

    def _persistently(self, address: str, attempt: Callable[[], _T]) -> _T:
        """Try what may go better the next time, and say in words what did not."""
        for left in reversed(range(TRIES)):
            try:
                return attempt()
            except urllib.error.HTTPError as error:
                error.close()
                said = f"{error.code} {error.reason}"
                if error.code in (401, 403):
                    raise WheelhouseError(f"{address} refuses ({said}). {self._advice}") from None
                if error.code == 404:
                    raise NotThere(f"{address} cannot be fetched: {said}.") from None
                if error.code < 500 or not left:
                    raise WheelhouseError(f"{address} cannot be fetched: {said}.") from None
            except (OSError, ValueError, http.client.HTTPException) as error:
                full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
                if full or isinstance(error, ValueError) or not left:
                    reason = getattr(error, "reason", None) or error
                    raise WheelhouseError(f"{address} cannot be fetched: {reason}.") from None
            time.sleep(PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _open(self, address: str, headers: dict[str, str]) -> Iterator[Any]:
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise WheelhouseError(f"{address} is no address on the web (http://, https://).")
        try:
            answer = self._once(address, headers)
        except urllib.error.HTTPError as error:
            if error.code != 401 or not self._log_in(address, error.headers):
                raise
            error.close()
            answer = self._once(address, headers)
        with answer:
            yield answer

    def _once(self, address: str, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(address, headers=headers)
        if self._authorization and _origin(address) == self._origin:
            # A server may send on to a storage that is not to see it.
            request.add_unredirected_header("Authorization", self._authorization)
        return _OPENER.open(request, timeout=TIMEOUT_S)

    def _log_in(self, address: str, headers: Message) -> bool:
        """Answer a server that refused: whether there is something new to try."""
        if _origin(address) != self._origin:
            return False
        kind, _, rest = headers.get("WWW-Authenticate", "").partition(" ")
        before, self._authorization = self._authorization, None
        if kind.lower() == "basic":
            self._authorization = self._basic()
        elif kind.lower() == "bearer":
            self._authorization = self._token(dict(_PARAMETER.findall(rest)))
        return self._authorization not in (None, before)

    def _basic(self) -> str | None:
        if self._variables is None:
            return None
        user = os.environ.get(self._variables.user, "")
        password = os.environ.get(self._variables.password, "")
        if not password:
            return None
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    def _token(self, asked: dict[str, str]) -> str | None:
        """A token of the server that the registry names, for whoever the environment names."""
        realm = asked.get("realm", "")
        if self._origin.startswith("https:") and not realm.startswith("https:"):
            return None
        query = {"service": asked.get("service", ""), "scope": asked.get("scope") or self._scope}
        parts = urllib.parse.urlencode({key: value for key, value in query.items() if value})
        request = urllib.request.Request(f"{realm}{'&' if '?' in realm else '?'}{parts}")
        basic = self._basic()
        if basic:
            request.add_unredirected_header("Authorization", basic)
        with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read(LIMIT).decode("utf-8"))
        token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
        return f"Bearer {token}" if isinstance(token, str) else None

    @property
    def _advice(self) -> str:
        if self._variables is None:
            return "It wants a password, which this tool does not know for such an address."
        return f"Set {self._variables.user} and {self._variables.password}."


def _require_all(answer: Any, received: int) -> None:
    """Raises ConnectionError where fewer bytes came than were announced."""
    announced = answer.headers.get("Content-Length")
    if announced and announced.isdigit() and received < int(announced):
        raise ConnectionError(f"it broke off after {received} of {announced} bytes")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to the same server with the password, to another without, and never out of TLS."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = _origin(req.full_url), _origin(newurl)
        if before.startswith("https:") and not after.startswith("https:"):
            raise urllib.error.URLError(f"it leads to {after}, without TLS")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        authorization = req.unredirected_hdrs.get("Authorization")
        if request is not None and authorization and before == after:
            request.add_unredirected_header("Authorization", authorization)
        return request


_OPENER = urllib.request.build_opener(_Redirects)


def _origin(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
