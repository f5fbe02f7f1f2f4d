"""Finds the digests that `images/pins.py` is written with.

Request: `cache`, `bootstrap_lock`, `image_lock`; `bases`, names of images whose digest their
registry is asked for; or `context`, `repository`, `ca_certs` as of `image_build`, or the whole `name`
of an index; and `to`, the place in a registry, or null for the image that this daemon has. The answer
goes to stdout as JSON: name -> `sha256:...` for bases; `image` -> what wheels are compiled in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import daemon, environment, image_context, program
from cuda_wheels.sandbox.image_build import find
from cuda_wheels.sandbox.image_publish import published_name
from cuda_wheels.sandbox.program import ProgramError


def main(request: dict[str, Any]) -> None:
    """Ask, and print the answer."""
    program.require(request, "cache", "bootstrap_lock", "image_lock")
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["image_lock"])
    )
    client = daemon.connect()
    if "bases" in request:
        found = bases(client, request["bases"])
    else:
        name, to = request.get("name") or _image_name(request), request.get("to")
        found = {"image": published(client, name, to) if to else local(client, name)}
    json.dump(found, sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")


def _image_name(request: dict[str, Any]) -> str:
    context = Path(request["context"])
    return image_context.complete(context, request["repository"], request.get("ca_certs"))


def bases(client: Any, names: list[str]) -> dict[str, str]:
    """The digest of each; raises ProgramError naming all that have none."""
    found, problems = {}, []
    for name in names:
        try:
            found[name] = digest(client, name)
        except ProgramError as error:
            problems.append(str(error))
    if problems:
        raise ProgramError("\n".join(problems))
    return found


def digest(client: Any, name: str) -> str:
    """The digest under which the registry has a name; raises ProgramError if it tells none."""
    with daemon.told(f"The registry tells no digest of {name}"):
        return str(client.images.get_registry_data(name).id)


def published(client: Any, name: str, to: str) -> str:
    """The published image by its digest."""
    place = published_name(name, to)
    try:
        return f"{place.rpartition(':')[0]}@{digest(client, place)}"
    except ProgramError as error:
        raise ProgramError(
            f"{error} If it was never pushed, `./pants publish` does that; `--local` pins the image "
            "that this machine has."
        ) from error


def local(client: Any, name: str) -> str:
    """The image that this daemon alone has, by its name."""
    if find(client, name) is None:
        raise ProgramError(f"The daemon has no image {name}. `./pants package` builds it.")
    return name


if __name__ == "__main__":
    program.run(main)
