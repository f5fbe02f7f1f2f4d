"""The fields of a `cuda_wheel` target, as the rules and the checks take them."""

from __future__ import annotations

from dataclasses import dataclass

from pants.core.goals.package import PackageFieldSet
from pants.engine.target import FieldSet

from cuda_wheels.tables.rows import Row
from cuda_wheels.target_types import (
    AccelField,
    ArchField,
    BuildRequiresField,
    CudaArchField,
    CudaWheelEnvironmentField,
    EnvField,
    GpuArchRuleField,
    LinksTorchField,
    MemoryPerJobField,
    NativeField,
    PackageField,
    PrebuiltField,
    PythonField,
    SkippedField,
    SystemHeadersField,
    TimeoutField,
    TorchField,
    VersionField,
    WheelOutputPathField,
    WheelSourceField,
)


@dataclass(frozen=True)
class CudaWheelFieldSet(FieldSet):
    """The fields of a `cuda_wheel` target."""

    required_fields = (PackageField, WheelSourceField)

    package: PackageField
    version: VersionField
    source: WheelSourceField
    arch: ArchField
    accel: AccelField
    torch: TorchField
    python: PythonField
    cuda_arch: CudaArchField
    gpu_arch_rule: GpuArchRuleField
    build_requires: BuildRequiresField
    links_torch: LinksTorchField
    native: NativeField
    skipped: SkippedField
    env: EnvField
    system_headers: SystemHeadersField
    memory_per_job_gb: MemoryPerJobField
    timeout: TimeoutField
    prebuilt: PrebuiltField
    environment: CudaWheelEnvironmentField
    output_path: WheelOutputPathField


@dataclass(frozen=True)
class CudaWheelPackageFieldSet(PackageFieldSet):
    """A `cuda_wheel` target for the goal `package`.

    Without its environment, which Pants would resolve before any rule of ours is asked, and raise
    where it cannot be used: `rules/wheel_environment.py` does that.
    """

    required_fields = CudaWheelFieldSet.required_fields


def row_of(field_set: CudaWheelFieldSet) -> Row:
    """The row that a target's fields name; without torch where the package does not link it."""
    return Row(
        arch=field_set.arch.value,
        accel=field_set.accel.value,
        torch=field_set.torch.value if field_set.links_torch.value else None,
        python=field_set.python.value,
        cuda_arch=tuple(field_set.cuda_arch.value or ()),
    )
