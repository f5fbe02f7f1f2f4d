"""Where the processes of an environment run: on this machine, in an image's container, elsewhere."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pants.core.util_rules.environments import (
    DockerEnvironmentTarget,
    DockerImageField,
    EnvironmentTarget,
    LocalEnvironmentTarget,
)
from pants.engine.rules import collect_rules, rule


class PlaceKind(enum.Enum):
    """By the type of the target that an environment's name stands for."""

    LOCAL = "local"
    DOCKER = "docker"
    REMOTE = "remote"


@dataclass(frozen=True)
class Place:
    """Where an environment is. `environment` is its name in messages, `image` of a container."""

    kind: PlaceKind
    environment: str | None = None
    image: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the compilers are those of this machine."""
        return self.kind is PlaceKind.LOCAL

    @property
    def is_remote(self) -> bool:
        """Whether a cluster decides which machine runs a process."""
        return self.kind is PlaceKind.REMOTE


@rule
async def place_of(environment: EnvironmentTarget) -> Place:
    target = environment.val
    if target is None or isinstance(target, LocalEnvironmentTarget):
        return Place(PlaceKind.LOCAL, environment.name)
    if isinstance(target, DockerEnvironmentTarget):
        return Place(PlaceKind.DOCKER, environment.name, target[DockerImageField].value)
    return Place(PlaceKind.REMOTE, environment.name)


def rules():
    return collect_rules()
