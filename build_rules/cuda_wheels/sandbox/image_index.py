"""Writes an image index to a registry: one name for the published images of several architectures.

Request: `cache`, `bootstrap_lock`, `image_lock`, `package` (a file with `name`, and `images`:
architecture -> `registry.example/team/amd64-cu130@sha256:...`), `to` (`registry.example/team`),
`dry_run`. The Docker client writes it (`docker manifest`): the images have to be in the same
registry, and it takes the passwords of `docker login`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import daemon, image_publish, program
from cuda_wheels.sandbox.program import ProgramError

CLIENT = "docker"


def main(request: dict[str, Any]) -> None:
    """Write the index, and say in a line what became of it."""
    image_publish.run(request, publish)


def publish(index: Mapping[str, Any], to: str, *, dry_run: bool) -> str:
    """Write the index as `rules/image_index.py` describes it; returns a sentence about it."""
    name, images = image_publish.published_name(index["name"], to), index["images"]
    _require_one_registry(name, images)
    if dry_run:
        return f"{name} would be written over {', '.join(images.values())}."
    info = daemon.connect().info()
    options = ["--insecure"] if is_insecure(_registry(name), info) else []
    with _client() as client:
        client.call("create", *options, name, *images.values(), what=f"{name} was not written")
        _require_architectures(name, images, json.loads(client.call("inspect", name)))
        digest = client.call("push", *options, name, what=f"{name} was not written")
    return f"{name} was written, {digest.split()[-1]}. `./pants cuda-pin-images` pins it."


def is_insecure(registry: str, info: Mapping[str, Any]) -> bool:
    """Whether the daemon speaks to a registry without TLS, as its administrator allowed it.

    `info` is the daemon's own: registries by name, and networks (127.0.0.0/8 is always one).
    """
    config = info.get("RegistryConfig") or {}
    known = (config.get("IndexConfigs") or {}).get(registry)
    if known is not None:
        return not known.get("Secure", True)
    host = registry.rpartition(":")[0] or registry
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        return False
    networks = config.get("InsecureRegistryCIDRs") or []
    return any(address in ipaddress.ip_network(network) for network in networks)


def _registry(image: str) -> str:
    return image.partition("/")[0]


def _require_one_registry(name: str, images: Mapping[str, str]) -> None:
    elsewhere = [image for image in images.values() if _registry(image) != _registry(name)]
    if elsewhere:
        raise ProgramError(
            f"{name} cannot be over {', '.join(elsewhere)}: an index and its images are in one "
            f"registry. Publish the images to {_registry(name)} and pin them there, or publish the "
            "index where they are."
        )


def _require_architectures(
    name: str, images: Mapping[str, str], written: Mapping[str, Any]
) -> None:
    """The registry's word for what the images are, against that of the targets."""
    found = {
        manifest["digest"]: manifest["platform"]["architecture"]
        for manifest in written["manifests"]
    }
    wrong = [
        f"{image} is declared for {arch}, but the registry has it as {found[digest]}. Publish it "
        f"from a machine of {arch}, and pin it again."
        for arch, image in images.items()
        for digest in [image.rpartition("@")[2]]
        if found[digest] != arch
    ]
    if wrong:
        raise ProgramError(f"{name} was not written:\n" + "\n".join(wrong))


class _Client:
    """`docker manifest`, whose half-made lists are in a folder of its own."""

    def __init__(self, path: str, config: Path) -> None:
        self._path = path
        self._env = {**os.environ, "DOCKER_CONFIG": str(config)}
        # Docker before 20.10 asks for it.
        self._env["DOCKER_CLI_EXPERIMENTAL"] = "enabled"

    def call(self, *arguments: str, what: str = "docker manifest") -> str:
        """What it prints; raises ProgramError with what it says."""
        done = subprocess.run(
            [self._path, "manifest", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=self._env,
        )
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise ProgramError(f"{what}: {_fault(said)}")
        return done.stdout


def _fault(said: str) -> str:
    if "no such manifest" in said:
        return (
            f"{daemon.fault(said)} The registry does not have it, or shows it to nobody who is not "
            "logged in (`docker login REGISTRY`). `./pants publish` pushes an image, "
            "`./pants cuda-pin-images` pins it as it is now."
        )
    return daemon.fault(said)


@contextlib.contextmanager
def _client() -> Iterator[_Client]:
    """Two at once, and one that is killed, leave nothing to each other."""
    path = shutil.which(CLIENT)
    if path is None:
        raise ProgramError(
            f"An image index is written by Docker's client, and there is no `{CLIENT}` on PATH. "
            "Install it (`apt-get install docker.io`, or `docker-cli` where that has no client)."
        )
    own = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker").absolute()
    with tempfile.TemporaryDirectory() as folder:
        if (own / "config.json").exists():
            # With its passwords and the helpers that have them.
            (Path(folder) / "config.json").symlink_to(own / "config.json")
        yield _Client(path, Path(folder))


if __name__ == "__main__":
    program.run(main)
