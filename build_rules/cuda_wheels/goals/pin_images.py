"""`./pants cuda-pin-images`: writes digests of toolchain images and of their bases into a file."""

from __future__ import annotations

import json
from typing import Any, Mapping

from pants.core.goals.package import PackageFieldSet
from pants.engine.console import Console
from pants.engine.fs import EMPTY_DIGEST, CreateDigest, Digest, FileContent, Workspace
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.engine.target import FilteredTargets
from pants.engine.unions import UnionMembership
from pants.option.option_types import BoolOption
from pants.util.strutil import help_text, softwrap

from cuda_wheels import image_pins
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
        Write the digests of the given `toolchain_image` targets into `images/pins.py`.

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


@goal_rule
async def cuda_pin_images(
    console: Console,
    workspace: Workspace,
    targets: FilteredTargets,
    goal: CudaPinImagesSubsystem,
    options: CudaImagesSubsystem,
    pins: image_pins.Pins,
    docker: DockerEnvironment,
) -> CudaPinImages:
    images = [
        ToolchainImageFieldSet.create(target)
        for target in targets
        if ToolchainImageFieldSet.is_applicable(target)
    ]
    if not images:
        console.print_stderr(
            f"{console.sigil_failed()} No `toolchain_image` is named. "
            "`./pants list images:` lists those that there are."
        )
        return CudaPinImages(exit_code=1)
    # The host's probe hands this session's indexes to a program that may have to make its tools.
    await Get(Host)
    failed: list[str] = []
    if goal.bases:
        names = sorted({one.published_base for one in images if one.published_base})
        result = await Get(
            FallibleProcessResult,
            ProgramProcess,
            _program({"bases": names}, "Ask for the digests of base images", docker),
        )
        failure = program_failure("pin", result)
        failed += [failure.message] if failure else []
        new = pins if failure else pins.with_bases(json.loads(result.stdout))
    else:
        contexts = await MultiGet(Get(ImageContext, ImageContextRequest(one)) for one in images)
        nowhere = [
            f"{one.address}: neither `publish_to` nor `[cuda-images].publish_to` names a registry. "
            "Name one, or pin the image of this machine with `--local`."
            for one in images
            if not (goal.local or one.publish_to.value or options.publish_to)
        ]
        failed += nowhere
        failed += [
            f"{context.address}: {problem}" for context in contexts for problem in context.problems
        ]
        good = [
            (one, context)
            for one, context in zip(images, contexts)
            if not context.problems and not nowhere
        ]
        results = await MultiGet(
            Get(
                FallibleProcessResult,
                ProgramProcess,
                _program(
                    {
                        **context.request,
                        "to": None if goal.local else one.publish_to.value or options.publish_to,
                    },
                    f"Look for {one.address}",
                    docker,
                    context.digest,
                ),
            )
            for one, context in good
        )
        found = {}
        for (one, _), result in zip(good, results):
            failure = program_failure("pin", result)
            if failure:
                failed.append(f"{one.address}: {failure.message}")
            else:
                found[one.name] = json.loads(result.stdout)["image"]
        new = pins.with_images(found)
    if new != pins:
        workspace.write_digest(
            await Get(Digest, CreateDigest([FileContent(image_pins.PATH, new.text.encode())]))
        )
    before = {**pins.bases, **pins.images}
    for name, value in sorted({**new.bases, **new.images}.items()):
        if before.get(name) != value:
            console.print_stdout(f"{name}: {value}")
    what = "Wrote" if new != pins else "Nothing changed in"
    console.print_stdout(f"{what} {image_pins.PATH}")
    for message in failed:
        console.print_stderr(f"{console.sigil_failed()} {message}")
    return CudaPinImages(exit_code=1 if failed else 0)


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
