"""What programs have in common that publish to a server: tools of their own, and one line at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cuda_wheels.sandbox import environment, program
from cuda_wheels.sandbox.release import today

Server = TypeVar("Server", contravariant=True)


class Publish(Protocol[Server]):
    """Publishes a wheelhouse of a row, and returns a sentence about it."""

    def __call__(
        self, house: Path, server: Server, row: str, /, *, date: str, dry_run: bool
    ) -> str: ...


def run(
    request: Mapping[str, Any],
    names: tuple[str, ...],
    server: Callable[[Path], Server],
    publish: Publish[Server],
) -> None:
    """Publish what the request describes, and print what became of it.

    `names` are what the request says of the server, which `server` makes of them and of a folder
    for what is sent. Raises ProgramError.
    """
    program.require(
        dict(request), "cache", "bootstrap_lock", "publish_lock", "house", "row", *names
    )
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["publish_lock"])
    )
    with tempfile.TemporaryDirectory(dir=request.get("scratch")) as scratch:
        text = publish(
            Path(request["house"]),
            server(Path(scratch)),
            request["row"],
            date=request.get("date") or today(),
            dry_run=bool(request.get("dry_run")),
        )
    print(text)
