"""What a `cuda_wheel` target asks for, as one value, with everything that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from pants.core.util_rules.environments import EnvironmentsSubsystem
from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import WrappedTarget, WrappedTargetRequest
from pants.util.frozendict import FrozenDict
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet, row_of
from cuda_wheels.rules.addresses import NamedTargets, NamedTargetsRequest
from cuda_wheels.rules.source import (
    PackageSource,
    PackageSourceRequest,
    SelectedPatches,
    SelectedPatchesRequest,
)
from cuda_wheels.rules.toolchain import Surroundings
from cuda_wheels.sources import FilesSource, PrebuiltWheel
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.accelerators import find_accelerator
from cuda_wheels.tables.glibc import platform_problem, platform_tag
from cuda_wheels.tables.gpu_archs import GPU_ARCH_RULES, AppliedArchs, apply_rule
from cuda_wheels.tables.rows import Row, local_version, row_problems
from cuda_wheels.target_checks import (
    NATIVE,
    build_requires_problems,
    cycle_problems,
    dropped_problems,
    env_problems,
    environment_problems,
    gpu_arch_rule_problems,
    identity_problems,
    mirror_problems,
    narrow,
    nothing_left,
    number_problems,
    output_path_problems,
    prebuilt_problems,
    python_problems,
    skipped_problems,
    system_header_problems,
    torch_problems,
)
from cuda_wheels.target_types import BuildRequiresField

# What a row without CUDA compiles for GPUs: nothing, and no variable says so.
_HOST_ONLY = AppliedArchs(rule="cpu", env=(), cubins=(), ptx=(), dropped=())


def full_version(version: str, local: str | None) -> str:
    """`version` with a further local part, as the repair step adds it."""
    if not local:
        return version
    return f"{version}{'.' if '+' in version else '+'}{local}"


@dataclass(frozen=True)
class WheelSpec:
    """A wheel to build: its row, its patched source and what its device code must be.

    `row.cuda_arch` is what the target promises, `applied` what this build compiles: the same, or
    less where `[cuda-wheels].gpu_archs` narrows it, as are `gpu_archs`, the capabilities that it is
    to serve. `native`: it must contain device code. `prebuilt`: a wheel that may stand in.
    """

    address: Address
    distribution: str
    version: str
    row: Row
    applied: AppliedArchs
    source: PackageSource
    patches: SelectedPatches
    build_requires: tuple[Address, ...]
    links_torch: bool
    native: bool
    env: tuple[tuple[str, str], ...]
    system_headers: tuple[str, ...]
    memory_per_job_gb: float
    timeout: int
    local_version: str | None
    platform: str
    output_path: str
    gpu_archs: tuple[str, ...] = ()
    prebuilt: PrebuiltWheel | None = None

    @property
    def full_version(self) -> str:
        """The version of the wheel, with the local part that names its row."""
        return full_version(self.version, self.local_version)

    @property
    def description(self) -> str:
        """The wheel as messages name it."""
        return f"{self.distribution} {self.version} for {self.row.variant}"


@dataclass(frozen=True)
class CheckedSpec:
    """A spec together with all its faults, or with why its package cannot serve the row.

    Empty `problems` and no `skipped` mean that it may be built.
    """

    spec: WheelSpec
    problems: tuple[str, ...]
    skipped: str | None = None


@dataclass(frozen=True)
class CudaWheelRequest(EngineAwareParameter):
    """One `cuda_wheel` target, to be checked or built in the environment of its field."""

    field_set: CudaWheelFieldSet

    @property
    def address(self) -> Address:
        """The target's address."""
        return self.field_set.address

    def debug_hint(self) -> str:
        """What Pants adds to the name of a rule that runs for this request."""
        return self.address.spec


def checked(
    spec: WheelSpec, declared: str | None, unserved: str | None, problems: tuple[str, ...]
) -> CheckedSpec:
    """Whether a wheel is skipped, faulty or neither.

    `declared` is the `skipped` field: nothing else of such a target matters. `unserved` is what
    `nothing_left` says: no skip for a target whose faults may be the cause.
    """
    if declared and declared.strip():
        return CheckedSpec(spec, (), " ".join(declared.split()))
    if not problems:
        return CheckedSpec(spec, (), unserved)
    return CheckedSpec(spec, (*problems, *((unserved,) if unserved else ())))


@dataclass(frozen=True)
class RequiresRequest:
    """A `cuda_wheel` target whose `build_requires` are to be followed as far as they lead."""

    address: Address


@dataclass(frozen=True)
class Requires:
    """What each wheel that a target leads to requires."""

    by_wheel: FrozenDict[Address, tuple[Address, ...]]


@rule
async def follow_build_requires(request: RequiresRequest) -> Requires:
    found: dict[Address, tuple[Address, ...]] = {}
    waiting: tuple[Address, ...] = (request.address,)
    while waiting:
        wrapped = await MultiGet(
            Get(
                WrappedTarget,
                WrappedTargetRequest(address, description_of_origin="`build_requires`"),
            )
            for address in waiting
        )
        # What names no target is a problem of the wheel that names it, not of `request`.
        named = await MultiGet(
            (
                Get(
                    NamedTargets,
                    NamedTargetsRequest,
                    NamedTargetsRequest.of(one.target[BuildRequiresField]),
                )
                if one.target.has_field(BuildRequiresField)
                else Get(NamedTargets, NamedTargetsRequest(one.target.address, "", ()))
            )
            for one in wrapped
        )
        required = [tuple(target.address for target in some.targets) for some in named]
        found.update(zip(waiting, required))
        waiting = tuple(
            dict.fromkeys(address for some in required for address in some if address not in found)
        )
    return Requires(FrozenDict(found))


@rule(desc="Check a CUDA wheel target", level=LogLevel.DEBUG)
async def check_spec(
    request: CudaWheelRequest, options: CudaWheelsSubsystem, environments: EnvironmentsSubsystem
) -> CheckedSpec:
    """Read a target's fields and check them together: every fault is reported, not the first."""
    fields = request.field_set
    row = row_of(fields)
    accel = find_accelerator(row.accel)
    named_source, build_requires = await MultiGet(
        Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(fields.source)),
        Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(fields.build_requires)),
    )
    source = PackageSource(request.address, FilesSource("."), problems=named_source.problems)
    if named_source.targets:
        source = await Get(PackageSource, PackageSourceRequest(named_source.targets[0].address))
    patches = SelectedPatches((), ())
    if accel is not None:
        patches = await Get(SelectedPatches, SelectedPatchesRequest(source, row.accel, row.torch))
    gpus: tuple[str, ...] = ()
    if options.gpu_archs.strip() == NATIVE:
        # Nothing else here asks the machine: a check of a hundred targets starts no process.
        gpus = (await Get(Surroundings)).gpus
    gpu_archs, narrow_problems = narrow(row.cuda_arch, options.gpu_archs, gpus)
    applied = _HOST_ONLY
    rule_problems: tuple[str, ...] = ()
    gpu_arch_rule = GPU_ARCH_RULES.get(fields.gpu_arch_rule.value)
    if accel is not None and accel.kind == "cuda" and gpu_arch_rule is not None:
        applied = apply_rule(gpu_arch_rule, gpu_archs)
        rule_problems = dropped_problems(applied)
    local = None
    if options.local_version:
        local = local_version(
            row,
            links_torch=fields.links_torch.value,
            narrowed_to=gpu_archs if gpu_archs != row.cuda_arch else None,
        )
    spec = WheelSpec(
        address=request.address,
        distribution=fields.package.value,
        version=fields.version.value,
        row=row,
        applied=applied,
        source=source,
        patches=patches,
        build_requires=tuple(target.address for target in build_requires.targets),
        links_torch=fields.links_torch.value,
        native=fields.native.value and row.accel != "cpu",
        env=tuple(sorted((fields.env.value or {}).items())),
        system_headers=tuple(sorted(fields.system_headers.value or ())),
        memory_per_job_gb=fields.memory_per_job_gb.value,
        timeout=fields.timeout.value,
        local_version=local,
        platform=platform_tag(options.platform_policy, row.arch),
        output_path=fields.output_path.value or "",
        gpu_archs=gpu_archs,
        prebuilt=fields.prebuilt.value,
    )
    policy = platform_problem(options.platform_policy)
    requires = await Get(Requires, RequiresRequest(request.address))
    return checked(
        spec,
        fields.skipped.value,
        nothing_left(applied),
        (
            *identity_problems(fields),
            *skipped_problems(fields),
            *row_problems(row),
            *torch_problems(fields),
            *python_problems(row),
            *number_problems(fields),
            *gpu_arch_rule_problems(fields),
            *env_problems(fields),
            *system_header_problems(fields),
            *output_path_problems(fields.output_path),
            *prebuilt_problems(fields),
            *environment_problems(fields, environments.names),
            *build_requires.problems,
            *build_requires_problems(row, build_requires.targets),
            *cycle_problems(request.address, requires.by_wheel),
            *narrow_problems,
            *rule_problems,
            *((policy,) if policy else ()),
            *mirror_problems(options.source_mirrors),
            *source.problems,
            *patches.problems,
        ),
    )


def rules():
    return collect_rules()
