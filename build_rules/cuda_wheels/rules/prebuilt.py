"""The prebuilt step: the wheel that upstream publishes, or why a target is compiled instead."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Iterable

from pants.engine.addresses import Address
from pants.engine.fs import Digest, RemovePrefix, Snapshot
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import AllTargets, WrappedTarget, WrappedTargetRequest
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.prebuilt_checks import (
    NOT_NAMED,
    as_reason,
    as_reasons,
    group_of,
    group_reasons,
    requirement_reasons,
    tag_reasons,
    torch_reasons,
)
from cuda_wheels.rules.addresses import NamedTargets, NamedTargetsRequest
from cuda_wheels.rules.compile import CompiledWheel
from cuda_wheels.rules.inspect import InspectedWheel, InspectRequest
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.repair import RepairedWheel, RepairRequest
from cuda_wheels.rules.spec import CheckedSpec, CudaWheelRequest, WheelSpec
from cuda_wheels.rules.stage import StageFailure, program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.sources import PrebuiltWheel
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.target_types import BuildRequiresField
from cuda_wheels.wheel_facts import WheelFacts

STAGE = "prebuilt"
OUT = "prebuilt"


@dataclass(frozen=True)
class PrebuiltRequest:
    """The prebuilt of one wheel, to be looked at by itself."""

    spec: WheelSpec


@dataclass(frozen=True)
class TriedPrebuilt:
    """A prebuilt that does for its target, repaired; or every reason why it does not.

    `file` is upstream's name of it; it has `facts` if it could be repaired. A `failure` is no reason to compile: the pin is wrong, or the
    file cannot be had.
    """

    file: str = ""
    wheel: RepairedWheel = RepairedWheel()
    facts: WheelFacts | None = None
    reasons: tuple[str, ...] = ()
    failure: StageFailure | None = None


@dataclass(frozen=True)
class StandInRequest:
    """A wheel that is about to be built."""

    spec: WheelSpec


@dataclass(frozen=True)
class StandIn:
    """The prebuilt that is taken for a wheel (`facts` is set), or why it is compiled.

    Without reasons and without facts nothing was to be asked: no prebuilt, or none preferred.
    """

    file: str = ""
    wheel: RepairedWheel = RepairedWheel()
    facts: WheelFacts | None = None
    reasons: tuple[str, ...] = ()
    failure: StageFailure | None = None

    def document(self, spec: WheelSpec) -> dict[str, Any]:
        """What the facts file of the wheel says of where it came from."""
        origin = "compiled" if self.facts is None else "prebuilt"
        if spec.prebuilt is None or not (self.facts or self.reasons):
            return {"origin": origin}
        upstream = {
            "file": self.file or None,
            "name": spec.prebuilt.name,
            "version": spec.prebuilt.version,
            "sha256": spec.prebuilt.sha256,
            "reasons": list(self.reasons),
        }
        return {"origin": origin, "prebuilt": upstream}


def fetch_document(prebuilt: PrebuiltWheel, spec: WheelSpec) -> dict[str, Any]:
    """The JSON file of the program that fetches a prebuilt."""
    page = prebuilt.page(spec.row.torch, spec.row.accel)
    return {
        "kind": "wheel",
        "name": prebuilt.name,
        "version": prebuilt.version,
        "sha256": prebuilt.sha256,
        "unpack": False,
        "tags": [spec.row.python_tag, MACHINES.get(spec.row.arch, spec.row.arch)],
        "out": OUT,
        **({"page": page} if page else {}),
    }


def unavailable(prebuilt: PrebuiltWheel, failure: StageFailure) -> StageFailure:
    """The error for a prebuilt that cannot be had; what it names must exist, or not be asked for."""
    return StageFailure(
        STAGE,
        f"{failure.message}\n`prebuilt` names this {prebuilt.title}. Correct it, or compile the "
        "package: `--no-cuda-wheels-prefer-prebuilt`.",
    )


@rule(desc="Look at a prebuilt wheel", level=LogLevel.DEBUG)
async def try_prebuilt(request: PrebuiltRequest) -> TriedPrebuilt:
    spec, prebuilt = request.spec, request.spec.prebuilt
    assert prebuilt is not None
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "fetch",
            fetch_document(prebuilt, spec),
            description=f"Fetch {prebuilt.title}",
            output_directories=(OUT,),
        ),
    )
    failure = program_failure("fetch", result)
    if failure:
        return TriedPrebuilt(failure=unavailable(prebuilt, failure))
    files = await Get(Snapshot, Digest, await Get(Digest, RemovePrefix(result.output_digest, OUT)))
    (file,) = files.files
    reasons = (*tag_reasons(file, spec.row), *torch_reasons(prebuilt, spec.row))
    # It keeps its own name and version: other wheels of upstream's require it by them.
    repaired = await Get(
        RepairedWheel,
        RepairRequest(
            dataclasses.replace(spec, local_version=None), CompiledWheel(file, files.digest)
        ),
    )
    if repaired.failure:
        return TriedPrebuilt(file, reasons=(*reasons, as_reason(repaired.failure.message)))
    inspected = await Get(InspectedWheel, InspectRequest(spec, repaired, prebuilt))
    if inspected.failure:
        message = inspected.failure.message
        found = as_reasons(message) if inspected.facts else (as_reason(message),)
        reasons = (*reasons, *found)
    return TriedPrebuilt(file, repaired, inspected.facts, reasons)


# --------------------------------------------------------------------------------------------
# Wheels that are built with one another
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllBuildRequires:
    """What each wheel of the repository needs while it is compiled; wheels without are left out."""

    by_wheel: FrozenDict[Address, tuple[Address, ...]]


@rule
async def all_build_requires(targets: AllTargets) -> AllBuildRequires:
    fields = [
        target[BuildRequiresField]
        for target in targets
        if target.has_field(BuildRequiresField) and target[BuildRequiresField].value
    ]
    # An address that names nothing is a fault of its own wheel, which says so when it is built.
    required = await MultiGet(
        Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(field)) for field in fields
    )
    return AllBuildRequires(
        FrozenDict(
            {
                field.address: tuple(target.address for target in some.targets)
                for field, some in zip(fields, required)
            }
        )
    )


@dataclass(frozen=True)
class GroupRequest:
    """A wheel whose group is looked for."""

    spec: WheelSpec


@dataclass(frozen=True)
class Group:
    """The wheels that are built with one another, itself first, without those that are never built."""

    specs: tuple[WheelSpec, ...]


@rule
async def find_group(request: GroupRequest, requires: AllBuildRequires) -> Group:
    spec = request.spec
    others = [one for one in group_of(spec.address, requires.by_wheel) if one != spec.address]
    wrapped = await MultiGet(
        Get(WrappedTarget, WrappedTargetRequest(one, description_of_origin="`build_requires`"))
        for one in others
    )
    checked = await MultiGet(
        Get(CheckedSpec, CudaWheelRequest(CudaWheelFieldSet.create(one.target)))
        for one in wrapped
        if CudaWheelFieldSet.is_applicable(one.target)
    )
    return Group((spec, *(one.spec for one in checked if not (one.problems or one.skipped))))


@rule(desc="Look for a prebuilt wheel", level=LogLevel.DEBUG)
async def find_stand_in(request: StandInRequest, options: CudaWheelsSubsystem) -> StandIn:
    spec = request.spec
    if not options.prefer_prebuilt or spec.prebuilt is None:
        return StandIn()
    group = await Get(Group, GroupRequest(spec))
    if any(one.prebuilt is None for one in group.specs):
        # Nothing is fetched for what is compiled in any case.
        own = {one.address: () if one.prebuilt else (NOT_NAMED,) for one in group.specs}
        return StandIn(reasons=group_reasons(spec.address, own))
    # The host's probe hands this session's indexes and mirrors to the program that fetches.
    await Get(Host)
    tried = await MultiGet(Get(TriedPrebuilt, PrebuiltRequest(one)) for one in group.specs)
    mine = tried[0]
    for one, its in zip(group.specs, tried):
        if its.failure:
            message = its.failure.message
            if one.address != spec.address:
                message = f"The prebuilt of {one.address} decides about this one too.\n{message}"
            return StandIn(mine.file, failure=StageFailure(STAGE, message))
    reasons = group_reasons(
        spec.address,
        {one.address: (*its.reasons, *_unmet(its, tried)) for one, its in zip(group.specs, tried)},
    )
    if reasons:
        return StandIn(mine.file, reasons=reasons)
    return StandIn(mine.file, mine.wheel, mine.facts)


def _unmet(one: TriedPrebuilt, group: Iterable[TriedPrebuilt]) -> tuple[str, ...]:
    if one.facts is None:
        return ()
    return requirement_reasons(one.facts, [its.facts for its in group if its.facts])


def rules():
    return collect_rules()
