"""The Docker daemon, as the programs that make images talk to it, and its faults in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from cuda_wheels.sandbox.environment import hide_credentials
from cuda_wheels.sandbox.program import ProgramError

DEFAULT_HOST = "unix:///var/run/docker.sock"

# Sending a large context and the answer of a busy daemon take their time.
TIMEOUT_S = 600


def address() -> str:
    """Where the daemon is."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def connect() -> Any:
    """A client of the daemon, which has answered; raises ProgramError with what helps."""
    import docker
    import docker.errors

    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise ProgramError(no_daemon(str(error))) from error
    return client


def no_daemon(reason: str) -> str:
    """What to do where the daemon does not answer."""
    where = hide_credentials(address())
    if "Permission denied" in reason or "PermissionError" in reason:
        return (
            f"This user may not talk to the Docker daemon at {where}. Add them to its group "
            "(`sudo usermod -aG docker $USER`) and log in again, or run a daemon of their own "
            "(rootless) and name it in DOCKER_HOST."
        )
    return (
        f"No Docker daemon answers at {where}: {hide_credentials(reason)}. Start it "
        "(`systemctl start docker`, or `dockerd` as root), or name another one in DOCKER_HOST."
    )


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Turn what the daemon refuses, and a connection that breaks, into an error in words."""
    import docker.errors
    import requests
    import urllib3.exceptions

    # A connection that breaks while an answer is read is reported by the library below.
    broken = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
    try:
        yield
    except docker.errors.APIError as error:
        raise ProgramError(f"{what}: {fault(error.explanation or str(error))}") from error
    except (docker.errors.DockerException, *broken) as error:
        raise ProgramError(
            f"{what}: the Docker daemon at {hide_credentials(address())} went away: "
            f"{hide_credentials(str(error))}. Nothing is left half done: start it, and try again."
        ) from error


def fault(text: str) -> str:
    """A sentence of the daemon, and what to do about it where that is known."""
    text = hide_credentials(text).strip().rstrip(".")
    lower = text.lower()
    if "no space left" in lower:
        return (
            f"{text}. The disk of the daemon is full: `docker system df` shows what is on it, "
            "docs/images.md what may go."
        )
    if "non-zero code: 137" in lower:
        return f"{text}: it was killed, as where the daemon is stopped or memory runs out."
    if any(word in lower for word in ("auth", "denied", "forbidden")):
        return f"{text}. Log in to the registry (`docker login REGISTRY`)."
    return f"{text}."
