"""A `cuda_wheel` target's way from its fields to a proven wheel, stage by stage."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, Iterable

from pants.base.exceptions import IntrinsicError
from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact, PackageFieldSet
from pants.engine.addresses import Address
from pants.engine.environment import EnvironmentName
from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    CreateDigest,
    Digest,
    FileContent,
    MergeDigests,
    Snapshot,
)
from pants.engine.platform import Platform
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet, CudaWheelPackageFieldSet
from cuda_wheels.rules.build_env import BuildEnvLock, BuildEnvLockRequest, lock_problem
from cuda_wheels.rules.compile import CompiledWheel, CompileRequest, compile_env
from cuda_wheels.rules.container import Container, engine_problem
from cuda_wheels.rules.inspect import InspectedWheel, InspectRequest
from cuda_wheels.rules.place import Place
from cuda_wheels.rules.prebuilt import StandIn, StandInRequest
from cuda_wheels.rules.repair import RepairedWheel, RepairRequest
from cuda_wheels.rules.source import PatchedTreeRequest
from cuda_wheels.rules.spec import CheckedSpec, CudaWheelRequest, WheelSpec
from cuda_wheels.rules.stage import SKIP, StageFailure, Tree
from cuda_wheels.rules.toolchain import (
    Host,
    Surroundings,
    cuda_home_problems,
    disk_problems,
    header_problems,
    host_problems,
    image_problems,
)
from cuda_wheels.rules.wheel_environment import WheelEnvironment, WheelEnvironmentRequest
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.glibc import platform_tag

# The platform that a wheel of each `arch` is compiled on.
PLATFORMS = {"amd64": Platform.linux_x86_64, "arm64": Platform.linux_arm64}


class CudaWheelError(Exception):
    """A wheel could not be built; the message says at which stage, and everything that is wrong."""


@dataclass(frozen=True)
class FallibleCudaWheel:
    """A proven wheel at the top of `wheel`, and its facts as JSON; or why there is none.

    `log` holds the compile step's `build.log` where that step was reached. `prebuilt`: the wheel is
    upstream's. `notes` are the reasons why a prebuilt was not taken, one line each.
    """

    address: Address
    name: str = ""
    wheel: Digest = EMPTY_DIGEST
    facts: Digest = EMPTY_DIGEST
    output_path: str = ""
    log: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None
    prebuilt: bool = False
    notes: tuple[str, ...] = ()

    @property
    def skipped(self) -> str | None:
        """Why the package cannot serve the row; None where it can, or where it failed."""
        return self.failure.message if self.failure and self.failure.stage == SKIP else None

    @property
    def error(self) -> str | None:
        """The failure as users read it."""
        if self.failure is None:
            return None
        if self.skipped:
            return f"{self.address} is skipped: {self.skipped}"
        lines = [*self.failure.message.splitlines(), *map(compiled_because, self.notes)]
        return f"{self.address} failed at the stage `{self.failure.stage}`:\n" + "\n".join(
            f"  {line}" for line in lines
        )


def compiled_because(reason: str) -> str:
    """A reason against a prebuilt as users read it."""
    return f"The prebuilt does not stand in: {reason}"


@dataclass(frozen=True)
class CheckedBuild:
    """A checked wheel, with all that its compile step needs to know of the host.

    `stand_in` says why it is compiled where that was asked; `image_id` is that of the image that
    it is compiled in.
    """

    spec: WheelSpec
    host: Host
    lock: BuildEnvLock
    stand_in: StandIn = StandIn()
    image_id: str | None = None


@dataclass(frozen=True)
class PrebuiltTaken:
    """A wheel for which upstream's stands in."""

    spec: WheelSpec
    stand_in: StandIn


@dataclass(frozen=True)
class FallibleCheckedBuild:
    """A wheel that may be built, or everything that is wrong with it."""

    build: CheckedBuild | None = None
    failure: StageFailure | None = None


@dataclass(frozen=True)
class FallibleCompileRequest:
    """What the compile step of a checked wheel gets, or why an earlier stage did not give it."""

    request: CompileRequest | None = None
    failure: StageFailure | None = None


@dataclass(frozen=True)
class CudaWheelInEnvironmentRequest:
    """One `cuda_wheel` target, to be built in the environment that it names."""

    field_set: CudaWheelFieldSet


@dataclass(frozen=True)
class BuildRequirementsRequest:
    """The `cuda_wheel` targets of a `build_requires` field."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True)
class BuildRequirements:
    """The wheels that must be installed while a package is compiled."""

    wheels: Snapshot
    failure: StageFailure | None = None


@dataclass(frozen=True)
class WheelFiles:
    """The files that a built wheel puts below `--distdir`."""

    wheel: FallibleCudaWheel


def platform_problem(arch: str, platform: Platform, environment: str | None) -> tuple[str, ...]:
    """Why this environment cannot compile for `arch`; empty if it can."""
    needed = PLATFORMS.get(arch)
    if needed is None or needed == platform:
        return ()
    return (
        f"The target is for `{arch}` ({needed.value}), but its environment `{environment}` is "
        f"{platform.value} here. Wheels are compiled natively: package it on an `{arch}` host, or "
        "have `[environments-preview.names]` name an environment of that platform for it.",
    )


@rule(desc="Build a CUDA wheel", level=LogLevel.DEBUG)
async def build_wheel(request: CudaWheelRequest, platform: Platform) -> FallibleCudaWheel:
    checked, container = await MultiGet(Get(CheckedSpec, CudaWheelRequest, request), Get(Container))
    spec = checked.spec
    stand_in = StandIn()
    if not (
        checked.skipped
        or checked.problems
        or container.problems
        or platform_problem(spec.row.arch, platform, request.field_set.environment.value)
    ):
        # First of all: it needs no compiler and no build environment.
        stand_in = await Get(StandIn, StandInRequest(spec))
    if stand_in.failure:
        return FallibleCudaWheel(request.address, failure=stand_in.failure)
    if stand_in.facts:
        return await Get(FallibleCudaWheel, PrebuiltTaken(spec, stand_in))
    try:
        compilable = await Get(FallibleCheckedBuild, CudaWheelRequest, request)
        if compilable.build is None:
            built = FallibleCudaWheel(request.address, failure=compilable.failure)
        else:
            built = await Get(
                FallibleCudaWheel, CheckedBuild, replace(compilable.build, stand_in=stand_in)
            )
    except IntrinsicError as error:
        problem = engine_problem(str(error)) if container.image_id else None
        if problem is None:
            raise
        built = FallibleCudaWheel(request.address, failure=StageFailure("container", problem))
    return replace(built, notes=stand_in.reasons)


@rule
async def check_build(
    request: CudaWheelRequest, platform: Platform, options: CudaWheelsSubsystem
) -> FallibleCheckedBuild:
    checked = await Get(CheckedSpec, CudaWheelRequest, request)
    spec = checked.spec
    if checked.skipped:
        return FallibleCheckedBuild(failure=StageFailure(SKIP, checked.skipped))
    container, lock = await MultiGet(
        Get(Container), Get(BuildEnvLock, BuildEnvLockRequest(spec.row))
    )
    wrong_platform = platform_problem(spec.row.arch, platform, request.field_set.environment.value)
    known = (*checked.problems, *_lock_problems(lock, checked), *wrong_platform)
    if container.problems:
        # No process runs there that could look at the rest.
        return FallibleCheckedBuild(failure=check_failure((*known, *container.problems)))
    host, surroundings = await MultiGet(Get(Host), Get(Surroundings))
    problems = (
        *known,
        *(() if wrong_platform else image_problems(host, spec.row)),
        *(() if wrong_platform else host_problems(host, spec.row)),
        *(() if wrong_platform else header_problems(host, spec.system_headers)),
        *cuda_home_problems(surroundings),
        *disk_problems(surroundings, lock.sha256),
    )
    if problems:
        return FallibleCheckedBuild(failure=check_failure(problems))
    if options.options.is_default("platform_policy"):
        spec = for_image(spec, host)
    return FallibleCheckedBuild(CheckedBuild(spec, host, lock, image_id=container.image_id))


def check_failure(problems: Iterable[str]) -> StageFailure:
    """The failure of a wheel that must not be built, for all of these reasons."""
    return StageFailure("check", "\n".join(f"* {problem}" for problem in problems))


def for_image(spec: WheelSpec, host: Host) -> WheelSpec:
    """The spec with the platform of the image that it is compiled in, where that declares one."""
    if host.image is None or host.image.platform_policy is None:
        return spec
    return replace(spec, platform=platform_tag(host.image.platform_policy, spec.row.arch))


@rule
async def take_prebuilt(request: PrebuiltTaken) -> FallibleCudaWheel:
    spec, stand_in = request.spec, request.stand_in
    assert stand_in.facts is not None and spec.prebuilt is not None
    wheel = stand_in.wheel
    document = {
        "wheel": stand_in.facts.to_json(),
        **target_document(spec),
        **stand_in.document(spec),
        "source": f"{spec.prebuilt.title}, sha256 {spec.prebuilt.sha256}",
        "patches": [],
        "pin_relaxations": [],
    }
    return FallibleCudaWheel(
        spec.address,
        name=wheel.name,
        wheel=wheel.digest,
        facts=await Get(Digest, CreateDigest([facts_file(wheel.name, document)])),
        output_path=spec.output_path,
        prebuilt=True,
    )


def facts_file(wheel: str, document: dict[str, Any]) -> FileContent:
    """The file beside a wheel that says what is in it and where it came from."""
    content = json.dumps(document, indent=1, sort_keys=True) + "\n"
    return FileContent(wheel.replace(".whl", ".facts.json"), content.encode())


def toolchain_document(build: CheckedBuild, place: Place) -> dict[str, Any]:
    """What the facts file of a wheel says of what compiled it, and where that was."""
    image = build.host.image
    return {
        "identity": build.host.toolchain_identity,
        "local": place.is_local,
        **({"image": image.name, "base": image.base} if image else {}),
        **({"image_id": build.image_id} if build.image_id else {}),
    }


def target_document(spec: WheelSpec) -> dict[str, Any]:
    """What the facts file of a wheel says of its target, compiled or not."""
    return {
        "source": spec.source.origin.description,
        "patches": [patch.name for patch in spec.patches.patches],
        "pin_relaxations": [
            {
                "patch": patch.name,
                "requirement": patch.header.relaxes,
                "reason": patch.header.reason,
            }
            for patch in spec.patches.patches
            if patch.header.relaxes
        ],
        "build_requires": [address.spec for address in spec.build_requires],
        # Less than the target's `cuda_arch` where the build was narrowed.
        "gpu_archs": list(spec.gpu_archs),
    }


def _lock_problems(lock: BuildEnvLock, checked: CheckedSpec) -> tuple[str, ...]:
    """A missing or unreadable lock, unless the row itself is wrong: then it needs none."""
    if lock.problem:
        return (lock.problem,)
    if lock.digest != EMPTY_DIGEST or checked.problems:
        return ()
    return (lock_problem(checked.spec.row, checked.spec.address),)


@rule
async def prepare_compile(build: CheckedBuild) -> FallibleCompileRequest:
    spec = build.spec
    tree, wheels = await MultiGet(
        Get(Tree, PatchedTreeRequest(spec.source, spec.patches.patches)),
        Get(BuildRequirements, BuildRequirementsRequest(spec.build_requires)),
    )
    failure = tree.failure or wheels.failure
    if failure:
        return FallibleCompileRequest(failure=failure)
    return FallibleCompileRequest(
        CompileRequest(spec, tree.digest, build.lock, build.host, wheels.wheels)
    )


@rule
async def build_checked_wheel(build: CheckedBuild, place: Place) -> FallibleCudaWheel:
    spec = build.spec
    prepared = await Get(FallibleCompileRequest, CheckedBuild, build)
    if prepared.request is None:
        return FallibleCudaWheel(spec.address, failure=prepared.failure)
    compiled = await Get(CompiledWheel, CompileRequest, prepared.request)
    if compiled.failure:
        return FallibleCudaWheel(spec.address, log=compiled.log, failure=compiled.failure)
    repaired = await Get(RepairedWheel, RepairRequest(spec, compiled))
    if repaired.failure:
        return FallibleCudaWheel(spec.address, log=compiled.log, failure=repaired.failure)
    inspected = await Get(InspectedWheel, InspectRequest(spec, repaired))
    if inspected.failure or inspected.facts is None:
        return FallibleCudaWheel(spec.address, log=compiled.log, failure=inspected.failure)
    facts = await Get(
        Digest,
        CreateDigest(
            [
                facts_file(
                    repaired.name,
                    {
                        "wheel": inspected.facts.to_json(),
                        "compile": json.loads(compiled.facts),
                        **target_document(spec),
                        "lock": build.lock.path,
                        "lock_sha256": build.lock.sha256,
                        "toolchain": toolchain_document(build, place),
                        "env": compile_env(spec),
                        **build.stand_in.document(spec),
                    },
                )
            ]
        ),
    )
    return FallibleCudaWheel(
        spec.address,
        name=repaired.name,
        wheel=repaired.digest,
        facts=facts,
        output_path=spec.output_path,
        log=compiled.log,
    )


# --------------------------------------------------------------------------------------------
# Wheels that other wheels need
# --------------------------------------------------------------------------------------------


@rule
async def build_requirements(request: BuildRequirementsRequest) -> BuildRequirements:
    targets = await MultiGet(
        Get(WrappedTarget, WrappedTargetRequest(address, description_of_origin="`build_requires`"))
        for address in request.addresses
    )
    built = await MultiGet(
        Get(
            FallibleCudaWheel,
            CudaWheelInEnvironmentRequest(CudaWheelFieldSet.create(wrapped.target)),
        )
        for wrapped in targets
    )
    wheels = await Get(Snapshot, MergeDigests(wheel.wheel for wheel in built))
    errors = [wheel.error for wheel in built if wheel.error]
    if not errors:
        return BuildRequirements(wheels)
    return BuildRequirements(wheels, StageFailure("build_requires", "\n".join(errors)))


@rule
async def build_wheel_in_environment(
    request: CudaWheelInEnvironmentRequest,
) -> FallibleCudaWheel:
    environment = await Get(WheelEnvironment, WheelEnvironmentRequest(request.field_set))
    if environment.problems:
        return FallibleCudaWheel(
            request.field_set.address, failure=check_failure(environment.problems)
        )
    return await Get(
        FallibleCudaWheel,
        {
            CudaWheelRequest(request.field_set): CudaWheelRequest,
            EnvironmentName(environment.name): EnvironmentName,
        },
    )


@rule(desc="Package a CUDA wheel", level=LogLevel.DEBUG)
async def package_wheel(field_set: CudaWheelPackageFieldSet) -> BuiltPackage:
    wrapped = await Get(
        WrappedTarget,
        WrappedTargetRequest(field_set.address, description_of_origin="the goal `package`"),
    )
    wheel = await Get(
        FallibleCudaWheel,
        CudaWheelInEnvironmentRequest(CudaWheelFieldSet.create(wrapped.target)),
    )
    if wheel.failure:
        raise CudaWheelError(wheel.error)
    return BuiltPackage(
        await Get(Digest, WheelFiles(wheel)),
        (
            BuiltPackageArtifact(
                os.path.join(wheel.output_path, wheel.name),
                extra_log_lines=tuple(map(compiled_because, wheel.notes)),
            ),
        ),
    )


@rule
async def wheel_files(request: WheelFiles) -> Digest:
    wheel = request.wheel
    files = await Get(Digest, MergeDigests([wheel.wheel, wheel.facts]))
    return await Get(Digest, AddPrefix(files, wheel.output_path))


def rules():
    return [*collect_rules(), UnionRule(PackageFieldSet, CudaWheelPackageFieldSet)]
