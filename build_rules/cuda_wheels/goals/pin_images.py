"""`./pants cuda-pin-images`: writes digests of toolchain images and of their bases into a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from pants.core.goals.package import PackageFieldSet
from pants.engine.addresses import Address
from pants.engine.console import Console
from pants.engine.fs import EMPTY_DIGEST, CreateDigest, Digest, FileContent, Workspace
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule, rule
from pants.engine.target import FilteredTargets
from pants.engine.unions import UnionMembership
from pants.option.option_types import BoolOption
from pants.util.frozendict import FrozenDict
from pants.util.strutil import help_text, softwrap

from cuda_wheels import image_pins
from cuda_wheels.rules.image_index import ImageIndex, ImageIndexFieldSet, ImageIndexRequest
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.stage import program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.rules.toolchain_image import (
    IMAGE_LOCKS,
    CudaImagesSubsystem,
    DockerEnvironment,
    ImageContext,
    ImageContextRequest,
    ToolchainImageFieldSet,
)


class CudaPinImagesSubsystem(GoalSubsystem):
    name = "cuda-pin-images"
    help = help_text("""
        Write the digests of the given toolchain images, and of indexes over them, into
        `images/pins.py`.

        `./pants cuda-pin-images images:amd64-cu130` asks the registry that the image was published
        to; from then on the environment of that name compiles in it. `--bases` asks the registry of
        the images that they are built on instead. Look at the change before you commit it.
        """)

    bases = BoolOption(
        default=False,
        help=softwrap("""
            Pin the images that the given ones are built on: their digests of today.
            """),
    )
    local = BoolOption(
        default=False,
        help=softwrap("""
            Pin the images that the daemon of this machine has, by name and tag. Nobody else has
            them: do not commit that.
            """),
    )

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership


class CudaPinImages(Goal):
    subsystem_cls = CudaPinImagesSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


@dataclass(frozen=True)
class Found:
    """Name -> pin, and a sentence for each name that has none."""

    pins: FrozenDict[str, str] = FrozenDict()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, one: Iterable[Found]) -> Found:
        """What all of them found."""
        several = tuple(one)
        return cls(
            FrozenDict({name: pin for found in several for name, pin in found.pins.items()}),
            tuple(problem for found in several for problem in found.problems),
        )


@dataclass(frozen=True)
class BasesRequest:
    """Base images by their names, whose digests are wanted."""

    names: tuple[str, ...]


@rule
async def pin_bases(request: BasesRequest, docker: DockerEnvironment) -> Found:
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        _program({"bases": request.names}, "Ask for the digests of base images", docker),
    )
    failure = program_failure("pin", result)
    if failure:
        return Found(problems=(failure.message,))
    return Found(FrozenDict(json.loads(result.stdout)))


@dataclass(frozen=True)
class PinRequest:
    """A name of `images/pins.py`, whose image is looked for with this program's request.

    Where there are `problems` nothing is looked for.
    """

    address: Address
    request: FrozenDict[str, Any]
    problems: tuple[str, ...]
    digest: Digest = EMPTY_DIGEST


@rule
async def pin(request: PinRequest, docker: DockerEnvironment) -> Found:
    if request.problems:
        return Found(problems=request.problems)
    description = f"Look for {request.address}"
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        _program(dict(request.request), description, docker, request.digest),
    )
    failure = program_failure("pin", result)
    if failure:
        return Found(problems=(f"{request.address}: {failure.message}",))
    return Found(FrozenDict({request.address.target_name: json.loads(result.stdout)["image"]}))


@dataclass(frozen=True)
class PinImageRequest:
    """The image that a `toolchain_image` stands for now; that of this machine where it is `local`."""

    field_set: ToolchainImageFieldSet
    local: bool


@rule
async def pin_image(request: PinImageRequest, options: CudaImagesSubsystem) -> Found:
    fields = request.field_set
    to = None if request.local else fields.place(options)
    context = await Get(ImageContext, ImageContextRequest(fields))
    problems = [f"{fields.address}: {problem}" for problem in context.problems]
    if to == "":
        problems.append(
            f"{_nowhere(fields.address)}, or pin the image of this machine with `--local`."
        )
    where = FrozenDict({**context.request, "to": to})
    return await Get(Found, PinRequest(fields.address, where, tuple(problems), context.digest))


@dataclass(frozen=True)
class PinIndexRequest:
    """The index that a `toolchain_image_index` stands for now."""

    field_set: ImageIndexFieldSet
    local: bool


@rule
async def pin_index(request: PinIndexRequest, options: CudaImagesSubsystem) -> Found:
    fields = request.field_set
    to = fields.place(options)
    index = await Get(ImageIndex, ImageIndexRequest(fields))
    problems = [f"{fields.address}: {problem}" for problem in index.problems]
    if request.local:
        problems.append(
            f"{fields.address} is an index, which only a registry has: leave out `--local`."
        )
    elif not to:
        problems.append(f"{_nowhere(fields.address)}.")
    where = FrozenDict({"name": index.name, "to": to})
    return await Get(Found, PinRequest(fields.address, where, tuple(problems)))


def _nowhere(address: Address) -> str:
    return (
        f"{address}: neither `publish_to` nor `[cuda-images].publish_to` names a registry. Name one"
    )


@goal_rule
async def cuda_pin_images(
    console: Console,
    workspace: Workspace,
    targets: FilteredTargets,
    goal: CudaPinImagesSubsystem,
    pins: image_pins.Pins,
) -> CudaPinImages:
    images = [
        ToolchainImageFieldSet.create(target)
        for target in targets
        if ToolchainImageFieldSet.is_applicable(target)
    ]
    indexes = [
        ImageIndexFieldSet.create(target)
        for target in targets
        if ImageIndexFieldSet.is_applicable(target)
    ]
    if not images and (goal.bases or not indexes):
        console.print_stderr(
            f"{console.sigil_failed()} No `toolchain_image` is named. "
            "`./pants list images:` lists those that there are."
        )
        return CudaPinImages(exit_code=1)
    # The host's probe hands this session's indexes to a program that may have to make its tools.
    await Get(Host)
    if goal.bases:
        names = sorted({one.published_base for one in images if one.published_base})
        found = await Get(Found, BasesRequest(tuple(names)))
        new = pins.with_bases(found.pins)
    else:
        found = Found.of(
            (
                *await MultiGet(Get(Found, PinImageRequest(one, goal.local)) for one in images),
                *await MultiGet(Get(Found, PinIndexRequest(one, goal.local)) for one in indexes),
            )
        )
        new = pins.with_images(found.pins)
    if new != pins:
        workspace.write_digest(
            await Get(Digest, CreateDigest([FileContent(image_pins.PATH, new.text.encode())]))
        )
    for line in changes(pins, new):
        console.print_stdout(line)
    for message in found.problems:
        console.print_stderr(f"{console.sigil_failed()} {message}")
    return CudaPinImages(exit_code=1 if found.problems else 0)


def changes(before: image_pins.Pins, after: image_pins.Pins) -> tuple[str, ...]:
    """What to say of a new file of pins: each name that has another pin, and whether it was written."""
    old = {**before.bases, **before.images}
    new = {**after.bases, **after.images}
    lines = (f"{name}: {pin}" for name, pin in sorted(new.items()) if old.get(name) != pin)
    what = "Wrote" if before != after else "Nothing changed in"
    return (*lines, f"{what} {image_pins.PATH}")


def _program(
    request: Mapping[str, Any],
    description: str,
    docker: DockerEnvironment,
    digest: Digest = EMPTY_DIGEST,
) -> ProgramProcess:
    return ProgramProcess.create(
        "image_pin",
        request,
        description=description,
        locks=IMAGE_LOCKS,
        input_digest=digest,
        # A registry changes: it is asked each time.
        cache_scope=ProcessCacheScope.PER_SESSION,
        env=docker.variables,
    )


def rules():
    return collect_rules()
