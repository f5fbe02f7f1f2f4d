"""The Docker daemon, as the programs that make images talk to it, and what it says in our words."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cuda_wheels.sandbox.environment import hide_credentials
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.docker_faults import FULL_DISK, START, no_daemon

DEFAULT_SOCKET = "/var/run/docker.sock"

# Sending a large context and the answer of a busy daemon take their time.
TIMEOUT_S = 600


def address() -> str:
    """Where the daemon is."""
    return os.environ.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"


def connect() -> Any:
    """A client of the daemon, which has answered; raises ProgramError with what helps."""
    import docker
    import docker.errors

    where = hide_credentials(address())
    path = where.removeprefix("unix://")
    fault = socket_fault(path, TIMEOUT_S) if path != where else None
    if fault:
        raise ProgramError(no_daemon(fault.kind, path, fault.detail))
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise ProgramError(no_daemon("other", where, hide_credentials(str(error)))) from error
    return client


@dataclass(frozen=True)
class SocketFault:
    """Why nobody can be asked at a Unix socket, `absent`, `stopped`, `refused` or `other`."""

    kind: str
    detail: str


def socket_fault(path: str, timeout_s: float) -> SocketFault | None:
    """What keeps this process from a Unix socket; None if somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(path)
        except FileNotFoundError as error:
            return SocketFault("absent", str(error))
        except ConnectionRefusedError as error:
            return SocketFault("stopped", str(error))
        except PermissionError as error:
            return SocketFault("refused", str(error))
        except OSError as error:
            return SocketFault("other", str(error))
    return None


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
            f"{hide_credentials(str(error))}. Nothing is left half done: start it again ({START}), "
            "and run the same command."
        ) from error


def fault(text: str) -> str:
    """A sentence of the daemon, and what to do about it where that is known."""
    text = hide_credentials(text).strip().rstrip(".")
    lower = text.lower()
    if "no space left" in lower:
        return f"{text}. {FULL_DISK}"
    if "non-zero code: 137" in lower:
        return f"{text}: it was killed, as where the daemon is stopped or memory runs out."
    if any(word in lower for word in ("auth", "denied", "forbidden")):
        return f"{text}. Log in to the registry (`docker login REGISTRY`)."
    return f"{text}."
