from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cuda_wheels.tables.rows import Row
from cuda_wheels.tables.this_host import Machine, choose_accel, covers


def row(accel: str, cuda_arch: str, arch: str = "amd64", torch: str | None = "2.9.1") -> Row:
    return Row(arch, accel, torch, "3.12", tuple(cuda_arch.split()))


MATRIX = (
    row("cpu", ""),
    row("cu126", "8.0 8.6 8.9 9.0"),
    row("cu128", "8.0 8.6 8.9 9.0 10.0 12.0"),
    row("cu129", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    row("cu130", "8.0 8.6 8.9 9.0 10.0 10.3 12.0"),
    row("cu126", "8.0 8.6 8.9 9.0", arch="arm64"),
    row("cu130", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1", arch="arm64"),
)
H200 = Machine("x86_64", "/usr/bin/nvidia-smi", ("9.0",), "580.95.05", "13.0")


def machine(**changes: Any) -> Machine:
    return dataclasses.replace(H200, **changes)


@pytest.mark.parametrize(
    ("changes", "accel"),
    [
        pytest.param({}, "cu130", id="newest"),
        pytest.param({"cuda": "13.1", "driver": "590.44.01"}, "cu130", id="newer driver"),
        pytest.param({"cuda": "12.9", "driver": "575.57"}, "cu129", id="12.9"),
        pytest.param({"cuda": "12.8", "driver": "570.86"}, "cu128", id="12.8"),
        pytest.param({"cuda": "12.7", "driver": "565.57"}, "cu126", id="between two"),
        pytest.param({"cuda": "12.6", "driver": "560.35"}, "cu126", id="12.6"),
        pytest.param({"gpus": ("10.3",), "cuda": "12.9"}, "cu129", id="newer gpu"),
        pytest.param({"gpus": ("8.0", "9.0")}, "cu130", id="two kinds of gpu"),
        pytest.param({"name": "aarch64", "gpus": ("12.1",)}, "cu130", id="arm64"),
        pytest.param({"name": "aarch64", "cuda": "12.9"}, "cu126", id="no such row for arm64"),
    ],
)
def test_the_newest_that_the_driver_runs_and_that_names_the_gpu(
    changes: dict[str, Any], accel: str
) -> None:
    choice = choose_accel(machine(**changes), MATRIX)
    assert (choice.accel, choice.problems) == (accel, ())


def test_an_older_row_where_the_newest_does_not_name_the_gpu() -> None:
    rows = (row("cu126", "7.5 8.0"), row("cu130", "8.0 9.0"))
    assert choose_accel(machine(gpus=("7.5",)), rows).accel == "cu126"


def test_a_row_that_cannot_work_is_not_chosen() -> None:
    rows = (row("cu126", "9.0"), row("cu130", "9.0", torch="2.8.0"), row("cu128", "9.0 10.3"))
    assert choose_accel(H200, rows).accel == "cu126"


FLOORS = ("CUDA 11 needs 450", "CUDA 12 needs 525", "CUDA 13 needs 580")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"nvidia_smi": None, "gpus": (), "driver": None, "cuda": None},
            ("nvidia-smi is not on PATH", *FLOORS, "--accel"),
            id="no nvidia-smi",
        ),
        pytest.param(
            {"gpus": (), "driver": "470.82"}, ("no GPU's compute capability",), id="no gpu"
        ),
        pytest.param(
            {"cuda": None}, ("no CUDA version of the driver 580.95.05", "libcuda"), id="no cuda"
        ),
        pytest.param({"name": "riscv64"}, ("riscv64", "x86_64, aarch64"), id="no such machine"),
        pytest.param(
            {"cuda": "11.4", "driver": "470.82.01"},
            ("470.82.01 runs CUDA up to 11.4", "cu126, CUDA 12.6", *FLOORS),
            id="driver too old",
        ),
        pytest.param(
            {"cuda": "12.2", "driver": "535.54.03"},
            ("12.2", "cu126", "no PTX", "`--accel=cu126`"),
            id="driver of the same major",
        ),
        pytest.param(
            {"gpus": ("10.3",), "cuda": "12.8", "driver": "570.86"},
            ("12.8", "GPU 10.3 is cu129, CUDA 12.9"),
            id="gpu newer than the driver's rows",
        ),
        pytest.param({"gpus": ("7.5",)}, ("GPU 7.5", "cu126: 8.0 8.6 8.9 9.0)"), id="no row"),
        pytest.param({"gpus": ("8.0", "12.1")}, ("8.0 and 12.1 together",), id="no row for both"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    choice = choose_accel(machine(**changes), MATRIX)
    assert choice.accel is None
    (problem,) = choice.problems
    for word in words:
        assert word in problem


def test_a_driver_of_an_older_major_is_not_said_to_do() -> None:
    (problem,) = choose_accel(machine(cuda="11.4", driver="470.82"), MATRIX).problems
    assert "PTX" not in problem


def test_everything_that_is_missing_is_said_at_once() -> None:
    nothing = Machine("riscv64", "/usr/bin/nvidia-smi", (), None, None)
    assert len(choose_accel(nothing, MATRIX).problems) == 3


def test_the_cpu_is_never_chosen_in_a_gpus_place() -> None:
    (problem,) = choose_accel(H200, (row("cpu", ""), row("cu130", "9.0", arch="arm64"))).problems
    assert "amd64" in problem


@pytest.mark.parametrize(
    ("accel", "cuda_arch", "gpus", "expected"),
    [
        ("cu130", "8.0 9.0", ("9.0",), True),
        ("cu130", "8.0 9.0", ("8.0", "9.0"), True),
        # It would run there, but who chooses by `cuda_arch` does not know.
        ("cu130", "8.0", ("8.6",), False),
        ("cu128", "10.3", ("10.3",), False),
    ],
)
def test_a_row_names_a_gpu(
    accel: str, cuda_arch: str, gpus: tuple[str, ...], expected: bool
) -> None:
    assert covers(row(accel, cuda_arch), gpus) is expected
