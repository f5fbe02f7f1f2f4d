"""The Docker daemon of this machine, for tests; what they make there they remove."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import docker
import docker.errors
import pytest

from cuda_wheels.sandbox.program import ProgramError

LABEL = "cuda-wheels.test"
"""A label of all images that tests build for themselves."""


def told(action: Callable[[], Any]) -> str:
    """The text of the ProgramError that the action raises."""
    with pytest.raises(ProgramError) as raised:
        action()
    return str(raised.value)


@contextlib.contextmanager
def docker_client() -> Iterator[Any]:
    """A client of the daemon; skips the test where none answers, unless `.ci/run` says it must."""
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        if os.environ.get("CUDA_WHEELS_DOCKER_TESTS") == "required":
            raise
        pytest.skip(f"no Docker daemon answers here (`apt-get install docker.io`): {error}")
    before = {image.id for image in client.images.list(all=True)}
    try:
        yield client
    finally:
        for image in client.images.list(filters={"label": LABEL}):
            if image.id not in before:
                with contextlib.suppress(docker.errors.ImageNotFound):
                    client.images.remove(image.id, force=True)
        client.close()
