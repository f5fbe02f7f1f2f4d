from __future__ import annotations

import subprocess
from typing import Any

import pytest
from pants.engine.addresses import Address

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.sources import FilesSource, PrebuiltWheel
from cuda_wheels.tables.gpu_archs import FLASH_ATTN, TORCH, GpuArchRule, apply_rule
from cuda_wheels.tables.rows import Row
from cuda_wheels.target_checks import (
    MAX_TIMEOUT,
    MAX_VARIABLE,
    build_requires_problems,
    cycle_problems,
    dropped_problems,
    env_problems,
    identity_problems,
    mirror_problems,
    narrow,
    nothing_left,
    number_problems,
    output_path_problems,
    prebuilt_problems,
    skipped_problems,
    system_header_problems,
)
from cuda_wheels.target_types import CudaSourceTarget, CudaWheelTarget

PROMISED = ("8.0", "9.0", "12.0")
ROW = Row("amd64", "cu130", "2.11.0", "3.12", ("9.0",))


def test_nothing_asked_for_builds_what_is_promised() -> None:
    assert narrow(PROMISED, "", ()) == (PROMISED, ())


def test_narrowing_keeps_the_order_of_the_target() -> None:
    assert narrow(PROMISED, "12.0 8.0", ()) == (("8.0", "12.0"), ())


def test_native_takes_the_gpus_of_the_machine() -> None:
    assert narrow(PROMISED, "native", ("9.0", "9.0")) == (("9.0",), ())


def test_native_without_a_gpu_says_what_to_write_instead() -> None:
    _, (problem,) = narrow(PROMISED, "native", ())
    assert "nvidia-smi" in problem and "--cuda-wheels-gpu-archs" in problem


def test_a_capability_that_is_not_promised_is_refused() -> None:
    _, (problem,) = narrow(PROMISED, "9.0,8.6", ())
    assert "8.6" in problem and "8.0 9.0 12.0" in problem


def test_a_gpu_that_is_not_promised_is_refused() -> None:
    _, (problem,) = narrow(PROMISED, "native", ("7.5",))
    assert "7.5" in problem


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (";", "names nothing"),
        ("9.0 sm_90", "'sm_90'"),
        ("nine 8.0 9", "'nine', '9'"),
    ],
)
def test_what_is_no_capability_does_not_narrow(option: str, words: str) -> None:
    archs, (problem,) = narrow(PROMISED, option, ())
    assert archs == PROMISED
    assert words in problem and "written like 9.0" in problem


def test_a_mirror_that_is_no_text() -> None:
    (problem,) = mirror_problems({"https://a/": "https://b/", "https://c/": 1})
    assert "'https://c/'" in problem


def test_a_wheel_without_device_code_is_not_narrowed() -> None:
    assert narrow((), "9.0", ()) == ((), ())


def wheel(**fields: Any) -> CudaWheelTarget:
    return CudaWheelTarget(
        {
            "package": "cumm",
            "version": "0.8.2",
            "source": ":src",
            "arch": "amd64",
            "accel": "cu130",
            "torch": "2.11.0",
            "cuda_arch": ["9.0"],
            **fields,
        },
        Address("packages/cumm", target_name="wheel"),
    )


@pytest.mark.parametrize("fields", [{}, {"links_torch": False}, {"cuda_arch": ["8.0", "9.0"]}])
def test_a_wheel_of_the_same_row_may_be_required(fields: dict[str, Any]) -> None:
    assert build_requires_problems(ROW, [wheel(**fields)]) == ()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"arch": "arm64"}, "arm64-cu130-torch2.11.0-cp312"),
        ({"accel": "cu128"}, "amd64-cu128-torch2.11.0-cp312"),
        ({"torch": "2.9.1"}, "amd64-cu130-torch2.9.1-cp312"),
        ({"python": "3.11"}, "amd64-cu130-torch2.11.0-cp311"),
    ],
)
def test_a_required_wheel_of_another_row_is_named(fields: dict[str, Any], found: str) -> None:
    (problem,) = build_requires_problems(ROW, [wheel(**fields)])
    for part in ("packages/cumm:wheel", found, ROW.variant):
        assert part in problem


def test_what_is_required_must_be_a_wheel() -> None:
    source = CudaSourceTarget(
        {"source": FilesSource(".")}, Address("packages/cumm", target_name="src")
    )
    problems = build_requires_problems(ROW, [source, wheel(accel="cu128")])
    assert len(problems) == 2
    assert "packages/cumm:src" in problems[0] and "`cuda_source`" in problems[0]


def test_what_is_required_must_not_be_skipped() -> None:
    (problem,) = build_requires_problems(ROW, [wheel(skipped="It has no CUDA code.")])
    assert "packages/cumm:wheel, which is skipped: It has no CUDA code." in problem


A, B, C = (Address("packages/x", target_name=name) for name in "abc")


@pytest.mark.parametrize(
    ("requires", "way"),
    [
        ({A: (A,)}, "packages/x:a -> packages/x:a"),
        ({A: (B,), B: (C,), C: (A,)}, "packages/x:a -> packages/x:b -> packages/x:c"),
        # The wheel leads into a circle, and is not on it: those that are report it.
        ({A: (B,), B: (C,), C: (B,)}, None),
        ({A: (B, C), B: (C,)}, None),
        ({}, None),
    ],
)
def test_a_wheel_cannot_require_itself(
    requires: dict[Address, tuple[Address, ...]], way: str | None
) -> None:
    problems = cycle_problems(A, requires)
    assert len(problems) == (1 if way else 0)
    assert not way or way in problems[0]


def field_set(**fields: Any) -> CudaWheelFieldSet:
    return CudaWheelFieldSet.create(wheel(**fields))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("package", name) for name in ("", "my package", "../x", "nögpu", "-x")),
        *(("version", version) for version in ("", "one", "1.0/2", "1.0+a+b")),
    ],
)
def test_a_name_or_version_that_no_wheel_can_have(field: str, value: str) -> None:
    (problem,) = identity_problems(field_set(**{field: value}))
    assert f"`{field}`" in problem and repr(value) in problem


def test_a_wrong_name_and_a_wrong_version_come_together() -> None:
    assert len(identity_problems(field_set(package="a b", version="x"))) == 2
    assert identity_problems(field_set(package="flash_attn", version="2.8.3.post2")) == ()


def test_variables_that_no_process_can_have() -> None:
    env = {"A B": "1", "": "1", "C=D": "1", "NUL": "a\0b", "FINE_1": "any = thing\n"}
    problems = env_problems(field_set(env=env))
    assert len(problems) == 4
    assert not any("FINE_1" in problem for problem in problems)


def test_a_variable_that_is_too_long_for_linux() -> None:
    longest = "x" * (MAX_VARIABLE - len("A=") - 1)
    assert env_problems(field_set(env={"A": longest})) == ()
    (problem,) = env_problems(field_set(env={"A": f"{longest}x"}))
    assert f"`env` sets 'A' to {len(longest) + 1} characters" in problem
    subprocess.run(["true"], env={"A": longest}, check=True)
    with pytest.raises(OSError):
        subprocess.run(["true"], env={"A": f"{longest}x"}, check=True)


def test_a_header_that_is_in_no_table_is_refused() -> None:
    headers = ["google/dense_hash_map", "/usr/include/zlib.h"]
    (problem,) = system_header_problems(field_set(system_headers=headers))
    assert "'/usr/include/zlib.h'" in problem and "tables/system_headers.py" in problem
    assert system_header_problems(field_set()) == ()


@pytest.mark.parametrize("archs", [("sm_90", "9.0"), ("nine",), ()])
def test_what_is_no_capability_is_left_to_the_check_of_the_row(archs: tuple[str, ...]) -> None:
    assert dropped_problems(apply_rule(TORCH, archs)) == ()


def test_what_the_package_does_not_compile_for_is_named() -> None:
    (problem,) = dropped_problems(apply_rule(FLASH_ATTN, ("7.5", "9.0")))
    assert "7.5" in problem


@pytest.mark.parametrize(
    ("rule", "archs", "reported", "left"),
    [
        pytest.param(FLASH_ATTN, ("9.0",), 0, True, id="all of it"),
        pytest.param(FLASH_ATTN, ("7.5", "9.0"), 1, True, id="a part of it"),
        pytest.param(FLASH_ATTN, ("7.5", "11.0"), 0, False, id="none of it"),
        pytest.param(FLASH_ATTN, ("7.5", "sm_90"), 0, True, id="no capability among them"),
        pytest.param(FLASH_ATTN, (), 0, True, id="nothing asked for"),
    ],
)
def test_what_is_left_of_the_promise(
    rule: GpuArchRule, archs: tuple[str, ...], reported: int, left: bool
) -> None:
    applied = apply_rule(rule, archs)
    assert len(dropped_problems(applied)) == reported
    assert (nothing_left(applied) is None) == left


@pytest.mark.parametrize(
    ("value", "faulty"), [(None, False), ("why", False), ("", True), (" ", True)]
)
def test_a_reason_says_something(value: str | None, faulty: bool) -> None:
    assert bool(skipped_problems(field_set(skipped=value))) == faulty


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), float("inf")])
def test_memory_that_no_job_can_need(memory: float) -> None:
    (problem,) = number_problems(field_set(memory_per_job_gb=memory))
    assert f"`memory_per_job_gb` is {memory}" in problem


@pytest.mark.parametrize("timeout", [0, -1, MAX_TIMEOUT + 1, 10**20])
def test_a_timeout_that_pants_cannot_keep(timeout: int) -> None:
    (problem,) = number_problems(field_set(timeout=timeout))
    assert f"`timeout` is {timeout}" in problem and f"at most {MAX_TIMEOUT}" in problem


def test_numbers_that_will_do() -> None:
    assert number_problems(field_set(memory_per_job_gb=0.5, timeout=MAX_TIMEOUT)) == ()


@pytest.mark.parametrize("path", ["/tmp", "..", "a/../../b"])
def test_a_wheel_is_written_below_the_distdir(path: str) -> None:
    (problem,) = output_path_problems(field_set(output_path=path).output_path)
    assert repr(path) in problem and "--distdir" in problem


@pytest.mark.parametrize("path", [None, "", "wheels/a..b"])
def test_a_directory_below_the_distdir_is_fine(path: str | None) -> None:
    assert output_path_problems(field_set(output_path=path).output_path) == ()


@pytest.mark.parametrize("version", ["2.8.3.post2", "1.0+git1a2b3c4"])
def test_versions_that_a_wheel_can_have(version: str) -> None:
    assert identity_problems(field_set(version=version)) == ()


PREBUILT = PrebuiltWheel("cumm-cu130", "0.8.2+pt211cu130", "0" * 64, "pyg")


def prebuilt_faults(prebuilt: PrebuiltWheel | None, **fields: Any) -> tuple[str, ...]:
    return prebuilt_problems(CudaWheelFieldSet.create(wheel(prebuilt=prebuilt, **fields)))


@pytest.mark.parametrize("prebuilt", [None, PREBUILT])
def test_a_prebuilt_may_stand_in(prebuilt: PrebuiltWheel | None) -> None:
    assert prebuilt_faults(prebuilt) == ()


def test_a_prebuilt_is_pinned_whether_or_not_it_is_preferred() -> None:
    (problem,) = prebuilt_faults(PrebuiltWheel("cumm-cu130", "0.8.2"))
    assert "prebuilt_wheel('cumm-cu130', '0.8.2')" in problem and "sha256" in problem


def test_a_prebuilt_of_another_version_is_other_code() -> None:
    (problem,) = prebuilt_faults(PREBUILT, version="0.8.3")
    assert "0.8.2+pt211cu130" in problem and "`version` is 0.8.3" in problem


def test_pyg_lists_only_what_links_torch() -> None:
    (problem,) = prebuilt_faults(PREBUILT, links_torch=False)
    assert "`links_torch`" in problem
