"""Pushes a toolchain image to a registry, under the tag that stands for what it is made of.

Request: `cache`, `bootstrap_lock`, `image_lock`, `package` (the file that `image_build` wrote), `to`
(`registry.example/team`), `dry_run`. Who is logged in is the business of the Docker client.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from cuda_wheels.sandbox import daemon, environment, program
from cuda_wheels.sandbox.image_build import find
from cuda_wheels.sandbox.program import ProgramError


def main(request: dict[str, Any]) -> None:
    """Push, and say in a line what became of it."""
    run(request, publish)


class Publish(Protocol):
    """Publishes what a file of `package` describes, and returns a sentence about it."""

    def __call__(self, facts: dict[str, Any], to: str, /, *, dry_run: bool) -> str: ...


def run(request: dict[str, Any], publish: Publish) -> None:
    """Publish what the request names, and print what became of it; raises ProgramError."""
    program.require(request, "cache", "bootstrap_lock", "image_lock", "package", "to")
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["image_lock"])
    )
    facts = json.loads(Path(request["package"]).read_text(encoding="utf-8"))
    print(publish(facts, request["to"], dry_run=bool(request.get("dry_run"))))


def publish(facts: dict[str, Any], to: str, *, dry_run: bool) -> str:
    """Push an image as `image_build` describes it; returns a sentence about it."""
    name = published_name(facts["name"], to)
    if dry_run:
        return f"{facts['name']} would be pushed as {name}."
    digest = push(daemon.connect(), facts, name)
    return f"{facts['name']} was pushed as {name}, {digest}. `./pants cuda-pin-images` pins it."


def published_name(name: str, to: str) -> str:
    """The name in a registry of a local one: `cuda-wheels/amd64-cu130:tag` -> `TO/amd64-cu130:tag`."""
    return f"{to.rstrip('/')}/{name.rsplit('/', 1)[-1]}"


def push(client: Any, facts: dict[str, Any], name: str) -> str:
    """The digest that the registry has the image under; raises ProgramError."""
    image = find(client, facts["id"])
    if image is None:
        raise ProgramError(
            f"The daemon has no image {facts['name']} ({facts['id']}) any more. "
            "`./pants package` builds it again."
        )
    repository, _, tag = name.rpartition(":")
    digest = None
    with daemon.told(f"{name} was not pushed"):
        image.tag(repository, tag)
        for answer in client.images.push(repository, tag, stream=True, decode=True):
            if answer.get("error"):
                raise ProgramError(f"{name} was not pushed: {daemon.fault(answer['error'])}")
            digest = (answer.get("aux") or {}).get("Digest") or digest
    if digest is None:
        raise ProgramError(f"{name} was pushed, but the registry told no digest of it.")
    return str(digest)


if __name__ == "__main__":
    program.run(main)
