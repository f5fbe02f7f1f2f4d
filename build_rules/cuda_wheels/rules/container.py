"""Whether wheels can be compiled in the container of an environment, asked before Pants tries.

Pants itself would pull what is missing, wait for a registry that knows nothing of it, and end in an
error of the registry's. So the daemon is asked first, on this machine and in every session: a
daemon or an image may be gone that was there a minute ago.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Mapping

from pants.core.util_rules.environments import ChosenLocalEnvironmentName
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.environment import EnvironmentName
from pants.engine.internals.docker import DockerResolveImageRequest, DockerResolveImageResult
from pants.engine.platform import Platform
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, collect_rules, rule
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from cuda_wheels.rules.place import Place, PlaceKind
from cuda_wheels.rules.programs import PROGRAM_ENV, ProgramProcess
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.tables.docker_faults import FULL_DISK, RESTART_PANTSD, START, no_daemon

# What images/environments names an image that is in no pin.
NOT_PINNED = "not-pinned"

_ARCHES = {Platform.linux_x86_64: "amd64", Platform.linux_arm64: "arm64"}


@dataclass(frozen=True)
class DockerStateRequest:
    """What to ask the Docker daemon of this machine: about images, and what builds left there."""

    images: tuple[str, ...] = ()
    leftovers: bool = False


@dataclass(frozen=True)
class DockerImage:
    """An image that the daemon has."""

    id: str
    arch: str
    user: str = ""


@dataclass(frozen=True)
class DockerContainer:
    """A container that a Pants started."""

    id: str
    image: str
    state: str


@dataclass(frozen=True)
class DockerVolume:
    """A volume with the append-only caches of the containers of one image."""

    name: str
    image: str | None
    size: int


@dataclass(frozen=True)
class OwnImage:
    """A toolchain image, by its label."""

    id: str
    names: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class DockerState:
    """What the daemon told; with a `fault` nothing but why it did not. Sizes are in bytes.

    `fault`: `absent`, `stopped`, `refused`, `remote` or `other`; None where the daemon answers.
    `images` has those that are there; `pantsds` the build roots of the Pants daemons that run.
    """

    socket: str
    fault: str | None = None
    detail: str = ""
    version: str = ""
    images: FrozenDict[str, DockerImage] = FrozenDict()
    containers: tuple[DockerContainer, ...] = ()
    volumes: tuple[DockerVolume, ...] = ()
    own_images: tuple[OwnImage, ...] = ()
    pantsds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Container:
    """The container of an environment: the id of its image, or what is wrong with it.

    Both are empty where an environment's processes do not run in a container.
    """

    image_id: str | None = None
    problems: tuple[str, ...] = ()


def parse_docker_state(facts: Mapping[str, Any]) -> DockerState:
    """The JSON of `sandbox/docker_state.py` as values."""
    if facts["fault"]:
        return DockerState(facts["socket"], facts["fault"], facts["detail"])
    return DockerState(
        facts["socket"],
        version=facts["version"],
        images=FrozenDict(
            {
                name: DockerImage(found["id"], found["arch"], found["user"])
                for name, found in facts["images"].items()
                if found
            }
        ),
        containers=tuple(
            DockerContainer(one["id"], one["image"], one["state"]) for one in facts["containers"]
        ),
        volumes=tuple(
            DockerVolume(one["name"], one["image"], one["bytes"]) for one in facts["volumes"]
        ),
        own_images=tuple(
            OwnImage(one["id"], tuple(one["names"]), one["bytes"]) for one in facts["own_images"]
        ),
        pantsds=tuple(facts["pantsds"]),
    )


@rule(desc="Ask the Docker daemon", level=LogLevel.DEBUG)
async def docker_state(request: DockerStateRequest) -> DockerState:
    # The probe also hands the session's index settings to the program.
    await Get(Host)
    env = await Get(EnvironmentVars, EnvironmentVarsRequest(["DOCKER_HOST"]))
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "docker_state",
            {"images": request.images, "leftovers": request.leftovers},
            description="Ask the Docker daemon",
            locks=("bootstrap_lock", "image_lock"),
            cache_scope=ProcessCacheScope.PER_SESSION,
            env=tuple({**PROGRAM_ENV, **env}.items()),
        ),
    )
    if result.exit_code:
        return DockerState("", "other", result.stderr.decode(errors="replace").strip())
    return parse_docker_state(json.loads(result.stdout))


@rule
async def container_of(
    place: Place, platform: Platform, local: ChosenLocalEnvironmentName
) -> Container:
    if place.kind is not PlaceKind.DOCKER:
        return Container()
    image = place.image or ""
    problems = name_problems(image, place.environment)
    if problems:
        return Container(problems=problems)
    state = await Get(
        DockerState, {DockerStateRequest((image,)): DockerStateRequest, local.val: EnvironmentName}
    )
    problems = state_problems(state, image, arch_of(platform))
    if problems:
        return Container(problems=problems)
    # Pants asks once in its daemon's life. The image is there, so this does not pull.
    resolved = await Get(
        DockerResolveImageResult, DockerResolveImageRequest(image, platform=platform.name)
    )
    found = state.images[image].id
    return Container(found, stale_problems(image, found, resolved.image_id))


def arch_of(platform: Platform) -> str:
    """Docker's name of a platform's architecture."""
    return _ARCHES.get(platform, platform.value)


def name_problems(image: str, environment: str | None) -> tuple[str, ...]:
    """Why a name cannot be that of a toolchain image; empty if it can."""
    if image.endswith(f":{NOT_PINNED}"):
        return (
            f"No toolchain image is pinned for the environment `{environment}` in `IMAGE_PINS` of "
            f"`images/pins.py`. Build one with `./pants package images:{environment}` and pin it "
            f"with `./pants cuda-pin-images --local images:{environment}`, or without `--local` "
            "one that was published. docs/docker.md has the steps.",
        )
    if image.endswith(":latest"):
        return (
            f"The environment `{environment}` names the image {image!r}. Pants pulls `:latest` anew "
            "at each start, and what it gets may be another image tomorrow. Name the tag or the "
            "digest of a toolchain image in `images/pins.py`.",
        )
    return ()


def state_problems(state: DockerState, image: str, arch: str) -> tuple[str, ...]:
    """Everything that keeps containers of an image from running here, each with what helps."""
    if state.fault:
        return (daemon_problem(state),)
    found = state.images.get(image)
    if found is None:
        return (missing_image(image),)
    problems = []
    if found.arch != arch:
        problems.append(
            f"The image {image} is for {found.arch}, but its environment is for {arch}. Name one "
            f"for {arch} in `images/pins.py`."
        )
    if found.user not in ("", "0", "root", "0:0", "root:root"):
        problems.append(
            f"The containers of {image} run as the user {found.user!r}, who cannot write Pants' "
            "sandboxes and caches in there. Build the image with `USER root` as its last user."
        )
    return tuple(problems)


def daemon_problem(state: DockerState) -> str:
    """Why the Docker daemon does not answer, and what to do."""
    return no_daemon(state.fault or "", state.socket, state.detail)


def missing_image(image: str) -> str:
    """What to say of an image that the daemon does not have, by what kind of name it is."""
    text = f"The toolchain image {image} is not on this machine. "
    if image.startswith("sha256:"):
        return text + (
            "An image's id cannot be pulled: build the image again with `./pants package images:` "
            "and the name of its target, or name another one in `images/pins.py`."
        )
    if "/" in image and "." in image.split("/")[0] or "@sha256:" in image:
        return text + f"Pull it: `docker pull {image}`."
    return text + (
        "Build it with `./pants package images:` and the name of its target (`./pants list "
        f"images:` has them), or pull it if a registry has it: `docker pull {image}`."
    )


def stale_problems(image: str, found: str, resolved: str) -> tuple[str, ...]:
    """That this Pants daemon knows another image by the name than Docker does; empty if not."""
    if found == resolved:
        return ()
    return (
        f"The image {image} is {found} by now, but Pants' daemon still knows {resolved} by that "
        "name, and would compile in that. Give each image a name of its own (toolchain images have "
        f"a tag that stands for all that they are made of), and end the daemon: {RESTART_PANTSD}.",
    )


# What Pants 2.17's engine says of containers (`process_execution/docker`) -> what that means.
_ENGINE_FAULTS = (
    (
        re.compile(r"no space left on device", re.IGNORECASE),
        FULL_DISK,
    ),
    (
        re.compile(r"container \w+ is not running|no such container", re.IGNORECASE),
        "The environment's container has stopped or was removed: Docker was restarted, or somebody "
        f"did it. Pants' daemon holds on to it for as long as it lives. End that: {RESTART_PANTSD}.",
    ),
    (
        re.compile(r"HyperResponseError|connection (closed|reset|refused)|broken pipe|os error"),
        f"The Docker daemon went away while it was needed. Start it again ({START}), and end Pants' "
        f"daemon, whose container has stopped with it: {RESTART_PANTSD}.",
    ),
    (
        re.compile(r"\bDocker\b|docker_execution"),
        "Docker did not run the step. `./pants cuda-doctor` looks at it from here.",
    ),
)


def engine_problem(error: str) -> str | None:
    """What an error of Pants' engine says of a container, in our words; None if it is about none.

    Nothing half-built is kept: what has no result is in no cache, and objects that were compiled
    are in that of the compiler.
    """
    for pattern, text in _ENGINE_FAULTS:
        if pattern.search(error):
            said = error.strip().splitlines()[-1]
            return (
                f"{text} The same command then resumes: what was compiled is in the compiler's cache."
                f"\nPants: {said}"
            )
    return None


def rules():
    return collect_rules()
