from __future__ import annotations

from typing import Any

import pytest
from pants.engine.addresses import Address

from cuda_wheels.rules.spec import build_requires_problems, narrow
from cuda_wheels.sources import FilesSource
from cuda_wheels.tables.rows import Row
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
