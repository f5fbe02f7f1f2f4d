"""The prelude by itself, with stand-ins for the targets that BUILD files know."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.tables.rows import Row, row_problems

PRELUDE = str(Path(__file__).with_name("macros.py"))


def prelude(**symbols: Any) -> dict[str, Any]:
    return runpy.run_path(PRELUDE, init_globals=symbols)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (("amd64", "cu130", "2.9.1", "3.12"), "amd64-cu130"),
        (("amd64", "cu130", "2.11.0", "3.12"), "amd64-cu130-torch2.11.0"),
        (("amd64", "cu130", "2.9.1", "3.11"), "amd64-cu130-cp311"),
        (("arm64", "cu130", "2.11.0", "3.11"), "arm64-cu130-torch2.11.0-cp311"),
    ],
)
def test_a_target_is_named_by_what_is_not_the_default(row: tuple[str, ...], name: str) -> None:
    assert prelude()["row_name"](*row) == name


@pytest.mark.parametrize("row", prelude()["MATRIX"], ids=lambda row: "-".join(row[:3]))
def test_every_row_of_the_matrix_can_be_built(row: tuple[str, ...]) -> None:
    arch, accel, torch, python, cuda_arch = row
    assert row_problems(Row(arch, accel, torch, python, tuple(cuda_arch.split()))) == ()


def test_a_package_is_one_source_and_a_wheel_a_row() -> None:
    sources: list[dict[str, Any]] = []
    wheels: list[dict[str, Any]] = []
    symbols = prelude(
        cuda_source=lambda **fields: sources.append(fields),
        cuda_wheel=lambda **fields: wheels.append(fields),
    )
    symbols["native_package"]("thing", "1.0", source="where from", links_torch=False)
    assert sources == [{"name": "src", "source": "where from"}]
    assert len({wheel["name"] for wheel in wheels}) == len(wheels) == len(symbols["MATRIX"])
    for wheel in wheels:
        assert (wheel["package"], wheel["version"], wheel["source"]) == ("thing", "1.0", ":src")
        assert wheel["environment"] == f"{wheel['arch']}-{wheel['accel']}"
        assert wheel["links_torch"] is False


def test_files_of_the_repository_are_named_by_the_package() -> None:
    sources: list[dict[str, Any]] = []
    symbols = prelude(
        cuda_source=lambda **fields: sources.append(fields), cuda_wheel=lambda **fields: None
    )
    symbols["native_package"]("thing", "1.0", source="files", sources=["setup.py"])
    assert sources == [{"name": "src", "source": "files", "sources": ["setup.py"]}]
