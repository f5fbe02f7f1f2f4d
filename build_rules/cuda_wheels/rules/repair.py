"""The repair step: a raw wheel in, a wheel with its platform tag and its unique version out."""

from __future__ import annotations

from dataclasses import dataclass

from pants.engine.fs import EMPTY_DIGEST, Digest, RemovePrefix, Snapshot
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, collect_rules, rule
from pants.util.logging import LogLevel

from cuda_wheels.rules.compile import CompiledWheel
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.spec import WheelSpec
from cuda_wheels.rules.stage import StageFailure, program_failure
from cuda_wheels.tables.libraries import EXCLUDED_LIBRARIES

OUT = "repaired"


@dataclass(frozen=True)
class RepairRequest:
    """A compiled wheel, and the platform and version that it is to get."""

    spec: WheelSpec
    compiled: CompiledWheel


@dataclass(frozen=True)
class RepairedWheel:
    """The repaired wheel at the top of `digest`, or why there is none."""

    name: str = ""
    digest: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None


@rule(desc="Repair a CUDA wheel", level=LogLevel.DEBUG)
async def repair_wheel(request: RepairRequest) -> RepairedWheel:
    spec = request.spec
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "repair",
            {
                "wheel": request.compiled.name,
                "platform": spec.platform,
                "exclude": list(EXCLUDED_LIBRARIES),
                "local_version": spec.local_version,
                "out": OUT,
            },
            description=f"Repair {spec.address}",
            input_digest=request.compiled.digest,
            output_directories=(OUT,),
        ),
    )
    failure = program_failure("repair", result)
    if failure:
        return RepairedWheel(failure=failure)
    wheels = await Get(Snapshot, Digest, await Get(Digest, RemovePrefix(result.output_digest, OUT)))
    (name,) = wheels.files
    return RepairedWheel(name, wheels.digest)


def rules():
    return collect_rules()
