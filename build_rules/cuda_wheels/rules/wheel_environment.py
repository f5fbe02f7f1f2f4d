"""The environment that a wheel is built in on this machine, or why nothing of it runs here.

Pants raises where it cannot use an environment, which ends a goal for all of its targets, with a
message that knows no wheels. So the goals ask for it here, and Pants is given the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pants.core.util_rules.environments import (
    DockerEnvironmentTarget,
    DockerImageField,
    DockerPlatformField,
    EnvironmentNameRequest,
    EnvironmentsSubsystem,
    EnvironmentTarget,
    NoFallbackEnvironmentError,
    RemoteEnvironmentTarget,
)
from pants.engine.environment import EnvironmentName
from pants.engine.platform import Platform
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.target import Target

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.container import arch_of
from cuda_wheels.target_checks import environment_problems


@dataclass(frozen=True)
class WheelEnvironmentRequest:
    """The `cuda_wheel` target whose environment is wanted."""

    field_set: CudaWheelFieldSet


@dataclass(frozen=True)
class WheelEnvironment:
    """The name that Pants knows it by, None for what is outside of all; or what is wrong with it."""

    name: str | None = None
    problems: tuple[str, ...] = ()


@rule
async def wheel_environment(
    request: WheelEnvironmentRequest, environments: EnvironmentsSubsystem
) -> WheelEnvironment:
    fields = request.field_set
    unknown = environment_problems(fields, environments.names)
    if unknown:
        return WheelEnvironment(problems=unknown)
    try:
        found = await Get(
            EnvironmentName, EnvironmentNameRequest, EnvironmentNameRequest.from_field_set(fields)
        )
    except NoFallbackEnvironmentError:
        declared = await Get(EnvironmentTarget, EnvironmentName(fields.environment.value))
        here = Platform.create_for_localhost()
        return WheelEnvironment(
            problems=(unusable_environment(fields.environment.value, declared.val, here),)
        )
    return WheelEnvironment(found.val)


def unusable_environment(name: str, declared: Target | None, here: Platform) -> str:
    """Why Pants runs nothing in an environment on this machine, and what to do.

    `declared` is the target that the name stands for.
    """
    if isinstance(declared, DockerEnvironmentTarget):
        platform = declared[DockerPlatformField].normalized_value
        image = declared[DockerImageField].value
        if platform != here:
            return (
                f"The environment `{name}` is the image {image} for {arch_of(platform)}, but this "
                f"machine and its Docker daemon are {arch_of(here)}, and containers run natively. "
                f"Run the same command on an {arch_of(platform)} machine that has Docker, or have "
                "the workers of a cluster do it (`pants.remote-execution.toml`, docs/remote.md). "
                "A daemon on another machine, by DOCKER_HOST, does not help: Pants mounts its "
                "sandboxes in the containers."
            )
        return (
            f"The environment `{name}` is the image {image}, but `[GLOBAL].docker_execution` is "
            "off. Leave that option on, or build with a configuration whose "
            f"`[environments-preview.names]` has another place for `{name}`."
        )
    if isinstance(declared, RemoteEnvironmentTarget):
        return (
            f"The environment `{name}` is that of a cluster's workers, but "
            "`[GLOBAL].remote_execution` is off. Switch it on as `pants.remote-execution.toml` does "
            "(docs/remote.md), or build with a configuration whose `[environments-preview.names]` "
            f"has another place for `{name}`."
        )
    return (
        f"Nothing runs in the environment `{name}` on this machine, whose platform is {here.value}: "
        f"its `compatible_platforms` or those of its `fallback_environment` do not have that. Build "
        "on a machine of such a platform, or with a configuration whose "
        f"`[environments-preview.names]` has another place for `{name}`."
    )


def rules():
    return collect_rules()
