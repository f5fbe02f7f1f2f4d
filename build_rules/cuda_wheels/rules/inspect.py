"""The inspect step: what is in a repaired wheel, compared with what its target declares."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, collect_rules, rule
from pants.util.logging import LogLevel

from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.repair import RepairedWheel
from cuda_wheels.rules.spec import WheelSpec
from cuda_wheels.rules.stage import StageFailure, program_failure
from cuda_wheels.sources import PrebuiltWheel
from cuda_wheels.tables.glibc import AUTO
from cuda_wheels.wheel_checks import DeclaredWheel, mismatches
from cuda_wheels.wheel_facts import WheelFacts


@dataclass(frozen=True)
class InspectRequest:
    """A repaired wheel, and what it must be; `prebuilt` where it is upstream's."""

    spec: WheelSpec
    wheel: RepairedWheel
    prebuilt: PrebuiltWheel | None = None


@dataclass(frozen=True)
class InspectedWheel:
    """The facts of a wheel, or why it is refused."""

    facts: WheelFacts | None = None
    failure: StageFailure | None = None


def declared_wheel(spec: WheelSpec, prebuilt: PrebuiltWheel | None = None) -> DeclaredWheel:
    """What the target says its wheel is.

    A prebuilt has upstream's name and version, and may serve more GPUs than are promised.
    """
    declared = DeclaredWheel(
        distribution=spec.distribution,
        version=spec.full_version,
        arch=spec.row.arch,
        accel=spec.row.accel,
        platform=None if spec.platform == AUTO else spec.platform,
        python=spec.row.python,
        cubins=spec.applied.cubins if spec.native else (),
        ptx=spec.applied.ptx if spec.native else (),
        links_torch=spec.links_torch,
    )
    if prebuilt is None:
        return declared
    return dataclasses.replace(
        declared,
        distribution=prebuilt.name,
        version=prebuilt.version,
        cubins=(),
        ptx=(),
        serves=spec.gpu_archs if spec.native else (),
    )


@rule(desc="Inspect a CUDA wheel", level=LogLevel.DEBUG)
async def inspect_wheel(request: InspectRequest) -> InspectedWheel:
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "inspect_wheel",
            {"wheel": request.wheel.name},
            description=f"Inspect {request.spec.address}",
            input_digest=request.wheel.digest,
        ),
    )
    failure = program_failure("inspect", result)
    if failure:
        return InspectedWheel(failure=failure)
    facts = WheelFacts.from_json(json.loads(result.stdout))
    found = mismatches(facts, declared_wheel(request.spec, request.prebuilt))
    if found:
        return InspectedWheel(facts, StageFailure("inspect", "\n".join(found)))
    return InspectedWheel(facts)


def rules():
    return collect_rules()
