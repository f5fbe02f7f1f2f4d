"""Whether a wheel can be built, without building anything: the cells of the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Iterable

from pants.engine.addresses import Address
from pants.engine.fs import EMPTY_DIGEST
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.build_env import BuildEnvLock, BuildEnvLockRequest, lock_problem
from cuda_wheels.rules.spec import CheckedSpec, CudaWheelRequest, WheelSpec
from cuda_wheels.rules.toolchain import no_nvcc_problem
from cuda_wheels.subsystem import CudaWheelsSubsystem


class Status(Enum):
    """What becomes of a wheel when it is asked for."""

    BUILDABLE = "buildable"
    SKIPPED = "skipped"
    PENDING = "pending"
    REFUSED = "refused"


@dataclass(frozen=True)
class WheelStatus:
    """A wheel's status and its reasons; a buildable wheel's say what a machine must have for it.

    It holds for every machine: whether this one has a compiler is asked when the wheel is built.
    """

    spec: WheelSpec
    status: Status
    reasons: tuple[str, ...]

    @property
    def address(self) -> Address:
        """The wheel's target."""
        return self.spec.address


def wheel_status(
    checked: CheckedSpec,
    *,
    locked: bool,
    cuda_home: str | None = None,
    required: Iterable[WheelStatus] = (),
) -> WheelStatus:
    """The status of a checked wheel.

    `locked`: whether its row's build environment is there. `cuda_home`: the option, which supplies
    a compiler that no lock has. `required`: the statuses of its `build_requires`.
    """
    spec = checked.spec
    if checked.skipped:
        return WheelStatus(spec, Status.SKIPPED, (checked.skipped,))
    unusable = [one for one in required if one.status in (Status.REFUSED, Status.SKIPPED)]
    problems = (*checked.problems, *(_requirement(one) for one in unusable))
    if problems:
        return WheelStatus(spec, Status.REFUSED, problems)
    missing = () if locked else (lock_problem(spec.row, spec.address),)
    # Those that miss the same lock need no word: it is there for all of them or for none.
    waiting = [
        one
        for one in required
        if one.status == Status.PENDING and (locked or one.spec.row.lock_path != spec.row.lock_path)
    ]
    reasons = (*missing, *(_requirement(one) for one in waiting))
    if reasons:
        return WheelStatus(spec, Status.PENDING, reasons)
    toolkit = None if cuda_home else no_nvcc_problem(spec.row)
    return WheelStatus(spec, Status.BUILDABLE, (toolkit,) if toolkit else ())


def _requirement(other: WheelStatus) -> str:
    return (
        f"`build_requires` names {other.address}, which is {other.status.value}: "
        f"{' '.join(other.reasons)}"
    )


@rule(desc="Tell what becomes of a CUDA wheel", level=LogLevel.DEBUG)
async def status_of_wheel(request: CudaWheelRequest, options: CudaWheelsSubsystem) -> WheelStatus:
    checked = await Get(CheckedSpec, CudaWheelRequest, request)
    required: tuple[WheelStatus, ...] = ()
    # A wheel with a problem is not followed: what it requires may be no wheel, or lead back to it.
    if not checked.problems and not checked.skipped:
        targets = await MultiGet(
            Get(WrappedTarget, WrappedTargetRequest(one, description_of_origin="`build_requires`"))
            for one in checked.spec.build_requires
        )
        required = await MultiGet(
            Get(WheelStatus, CudaWheelRequest(CudaWheelFieldSet.create(wrapped.target)))
            for wrapped in targets
        )
    lock = await Get(BuildEnvLock, BuildEnvLockRequest(checked.spec.row))
    return wheel_status(
        checked,
        locked=lock.digest != EMPTY_DIGEST,
        cuda_home=options.cuda_home,
        required=required,
    )


def rules():
    return collect_rules()
