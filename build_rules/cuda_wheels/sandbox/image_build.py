"""Builds a toolchain image with the Docker daemon, if it does not have it already.

Request: `cache`, `bootstrap_lock`, `image_lock`, `context` (a directory), `repository`
(`cuda-wheels/amd64-cu130`), `arch`, `ca_certs` (or null), `network` (of the build; empty: the
daemon's own), `rebuild`, `log` (a name below the cache's `logs`), `out`. The description of the
image with its name and id is written to `out`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import daemon, environment, image_context, program
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.accelerators import MACHINES

TAIL_LINES = 40

# What the daemon hands to the commands of a build and keeps out of the image, by these names alone.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def main(request: dict[str, Any]) -> None:
    """Build, and write what became of it."""
    program.require(
        request, "cache", "bootstrap_lock", "image_lock", "context", "repository", "arch", "out"
    )
    cache = Path(request["cache"])
    environment.reexec_in_tools(cache, Path(request["bootstrap_lock"]), Path(request["image_lock"]))
    bootstrap = environment.ensure_bootstrap(cache, Path(request["bootstrap_lock"]))
    context = Path(request["context"])
    name = image_context.complete(context, request["repository"], request.get("ca_certs"))
    client = daemon.connect()
    require_architecture(client, request["arch"], name)
    image = None if request.get("rebuild") else find(client, name)
    if image is None:
        image_context.fetch_wheels(context, cache, bootstrap, request["arch"])
        log = cache / "logs" / (request.get("log") or "image.log")
        image = build(
            client,
            context,
            name,
            platform=f"linux/{request['arch']}",
            network=request.get("network") or None,
            log=log,
            fresh=bool(request.get("rebuild")),
        )
    facts = image_context.summary(context, name, id=image.id, size=image.attrs["Size"])
    Path(request["out"]).parent.mkdir(parents=True, exist_ok=True)
    Path(request["out"]).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def find(client: Any, name: str) -> Any | None:
    """The image of that name, None if the daemon has none."""
    import docker.errors

    with daemon.told(f"{name} was not looked up"):
        try:
            return client.images.get(name)
        except docker.errors.ImageNotFound:
            return None


def require_architecture(client: Any, arch: str, name: str) -> None:
    """Raises ProgramError if the daemon's machine is not what the image is for."""
    found = client.info().get("Architecture")
    if found == MACHINES[arch]:
        return
    raise ProgramError(
        f"{name} is for {arch}, but the Docker daemon at "
        f"{environment.hide_credentials(daemon.address())} runs on {found}. Images are built "
        f"natively: run this on a machine of {arch}, or name its daemon in DOCKER_HOST."
    )


def build(
    client: Any,
    context: Path,
    name: str,
    *,
    platform: str,
    network: str | None,
    log: Path,
    fresh: bool,
) -> Any:
    """Have the daemon build the context; raises ProgramError with the end of its log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    proxies = {key: os.environ[key] for key in PROXIES if os.environ.get(key)}
    lines: list[str] = []
    failure = None
    with log.open("w", encoding="utf-8") as out, daemon.told(f"{name} was not built"):
        answers = client.api.build(
            path=str(context),
            tag=name,
            platform=platform,
            network_mode=network,
            buildargs=proxies,
            nocache=fresh,
            rm=True,
            forcerm=True,
            decode=True,
        )
        for answer in answers:
            text = environment.hide_credentials(answer.get("stream") or answer.get("error") or "")
            out.write(text)
            out.flush()
            lines += text.splitlines()
            failure = answer.get("error") or failure
    if failure:
        tail = "\n".join(line for line in lines[-TAIL_LINES:] if line.strip())
        raise ProgramError(
            f"{name} was not built: {daemon.fault(failure)} The end of its log:\n{tail}"
        )
    image = find(client, name)
    if image is None:
        raise ProgramError(f"{name} was not built, and the daemon does not say why: see {log}.")
    return image


if __name__ == "__main__":
    program.run(main)
