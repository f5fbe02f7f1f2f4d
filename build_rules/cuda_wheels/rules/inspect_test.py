from __future__ import annotations

import dataclasses

from pants.engine.addresses import Address

from cuda_wheels.rules.inspect import declared_wheel
from cuda_wheels.rules.source import PackageSource, SelectedPatches
from cuda_wheels.rules.spec import WheelSpec
from cuda_wheels.sources import FilesSource
from cuda_wheels.tables.gpu_archs import TORCH, apply_rule
from cuda_wheels.tables.rows import Row

ADDRESS = Address("packages/thing", target_name="wheel")
SPEC = WheelSpec(
    address=ADDRESS,
    distribution="thing",
    version="1.0",
    row=Row("amd64", "cu130", "2.11.0", "3.12", ("9.0",)),
    applied=apply_rule(TORCH, ["9.0+PTX"]),
    source=PackageSource(ADDRESS, FilesSource(".")),
    patches=SelectedPatches((), ()),
    build_requires=(),
    links_torch=True,
    native=True,
    env=(),
    system_headers=(),
    memory_per_job_gb=3.0,
    timeout=60,
    local_version="cu130.torch2.11.0",
    platform="manylinux_2_28_x86_64",
    output_path="",
)


def test_a_native_wheel_declares_the_device_code_that_its_rule_gives() -> None:
    declared = declared_wheel(SPEC)
    assert declared.version == "1.0+cu130.torch2.11.0"
    assert (declared.cubins, declared.ptx) == (("sm_90",), ("compute_90",))
    assert declared.platform == "manylinux_2_28_x86_64"


def test_a_wheel_that_needs_no_gpu_code_declares_none() -> None:
    declared = declared_wheel(dataclasses.replace(SPEC, native=False))
    assert (declared.cubins, declared.ptx) == ((), ())


def test_any_platform_will_do_where_the_policy_is_to_measure_it() -> None:
    assert declared_wheel(dataclasses.replace(SPEC, platform="auto")).platform is None
