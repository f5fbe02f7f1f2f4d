"""Tells what the Docker daemon has of what builds need, and of what builds have left there.

Request: `cache`, `bootstrap_lock`, `image_lock`, `images` (names; may be empty), `leftovers`
(whether to look for them, which takes the daemon some seconds). stdout: JSON.
`fault` is null where the daemon answers, else `absent`, `stopped`, `refused`, `remote` or `other`,
with what was said in `detail`; `socket` is where it was looked for. `images` maps each name to what
is known of it, or to null where it is missing. Of leftovers, `containers` are those that Pants
started, `volumes` and `own_images` what takes up space for us; `pantsds` has the build roots of the
Pants daemons that run, each of which may still need its containers.

Nothing is changed, pulled or started. The daemon is asked where Pants 2.17 asks: at DOCKER_HOST if
that is a Unix socket, else at Docker's usual one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import daemon, environment, program

TIMEOUT_S = 60  # a daemon has taken more than 10 on a machine with ten times its load

# What Pants 2.17 calls its volumes, and where it mounts them in its containers.
VOLUME_PREFIX = "pants-named-caches-"
CACHES_MOUNT = "/pants-named-caches"
LABEL = "cuda-wheels.accel"
"""A label that every toolchain image has (`tables/dockerfile.py`)."""
NO_NAME = "<none>:<none>"
"""What Docker 20.10 lists as the one name of an image that has none."""

Facts = dict[str, Any]


def main(request: dict[str, Any]) -> None:
    """Print what was found, as JSON."""
    program.require(request, "cache", "bootstrap_lock", "image_lock", "images")
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["image_lock"])
    )
    found = state(request["images"], os.environ, leftovers=bool(request.get("leftovers")))
    print(json.dumps(found, indent=1))


def state(images: list[str], env: Mapping[str, str], *, leftovers: bool) -> Facts:
    """What the daemon tells, or why it tells nothing."""
    import docker

    address = env.get("DOCKER_HOST", "")
    socket = daemon.DEFAULT_SOCKET
    if address.startswith("unix://"):
        socket = address[len("unix://") :]
    elif address:
        address = environment.hide_credentials(address)
        return _fault("remote", address, f"DOCKER_HOST is {address}")
    unreachable = daemon.socket_fault(socket, TIMEOUT_S)
    if unreachable:
        return _fault(unreachable.kind, socket, unreachable.detail)
    try:
        client = docker.DockerClient(base_url=f"unix://{socket}", version="auto", timeout=TIMEOUT_S)
        return {
            "fault": None,
            "detail": "",
            "socket": socket,
            "version": client.version()["Version"],
            "images": {name: image_facts(client, name) for name in images},
            "containers": containers(client) if leftovers else [],
            "volumes": volumes(client) if leftovers else [],
            "own_images": own_images(client) if leftovers else [],
            "pantsds": pantsds() if leftovers else [],
        }
    except (docker.errors.DockerException, OSError) as error:
        return _fault("other", socket, str(error))


def _fault(kind: str, socket: str, detail: str) -> Facts:
    return {"fault": kind, "detail": detail, "socket": socket}


def image_facts(client: Any, name: str) -> Facts | None:
    """Id, architecture and user of an image; None where the daemon does not have it."""
    import docker

    try:
        found = client.api.inspect_image(name)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.APIError as error:
        # A name that is none.
        if error.response is not None and error.response.status_code == 400:
            return None
        raise
    return {
        "id": found["Id"],
        "arch": found["Architecture"],
        "user": (found.get("Config") or {}).get("User") or "",
    }


def containers(client: Any) -> list[Facts]:
    """The containers that a Pants started, whether they run or not."""
    return [
        {"id": one["Id"][:12], "image": one["ImageID"], "state": one["State"]}
        for one in client.api.containers(all=True)
        if any(mount.get("Destination") == CACHES_MOUNT for mount in one.get("Mounts") or ())
    ]


def volumes(client: Any) -> list[Facts]:
    """The volumes that hold the append-only caches of builds, with their sizes in bytes."""
    usage = client.df()
    return [
        {
            "name": one["Name"],
            # Pants labels a volume with the id of the image that its containers are of.
            "image": (one.get("Labels") or {}).get("image_name"),
            "bytes": one["UsageData"]["Size"],
        }
        for one in usage.get("Volumes") or ()
        if one["Name"].startswith(VOLUME_PREFIX)
    ]


def own_images(client: Any) -> list[Facts]:
    """The toolchain images, by their label, with their sizes in bytes."""
    return [
        {
            "id": one["Id"],
            "names": [name for name in one.get("RepoTags") or () if name != NO_NAME],
            "bytes": one["Size"],
        }
        for one in client.api.images(filters={"label": LABEL})
    ]


def pantsds(proc: Path = Path("/proc")) -> list[str]:
    """The build roots of the Pants daemons on this machine, which name themselves `pantsd [ROOT]`."""
    found = []
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if text.startswith("pantsd [") and text.endswith("]"):
            found.append(text[len("pantsd [") : -1])
    return sorted(set(found))


if __name__ == "__main__":
    program.run(main)
