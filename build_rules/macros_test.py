"""The prelude by itself, with stand-ins for the targets that BUILD files know."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.tables.images import image_variants
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


# The rows that are to be there: what a user's host looks for, by architecture and accelerator.
RECOMMENDED = {
    ("amd64", "cu126"): "8.0 8.6 8.9 9.0",
    ("amd64", "cu128"): "8.0 8.6 8.9 9.0 10.0 12.0",
    ("amd64", "cu129"): "8.0 8.6 8.9 9.0 10.0 10.3 12.0",
    ("amd64", "cu130"): "8.0 8.6 8.9 9.0 10.0 10.3 12.0",
    ("amd64", "cpu"): "",
    ("arm64", "cu126"): "8.0 8.6 8.9 9.0",
    ("arm64", "cu128"): "8.0 8.6 8.9 9.0 10.0 12.0",
    ("arm64", "cu129"): "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1",
    ("arm64", "cu130"): "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1",
    ("arm64", "cpu"): "",
}


@pytest.mark.parametrize(("variant", "cuda_arch"), RECOMMENDED.items(), ids=str)
def test_the_matrix_has_the_recommended_rows(variant: tuple[str, str], cuda_arch: str) -> None:
    assert (*variant, "2.9.1", "3.12", cuda_arch) in prelude()["MATRIX"]


@pytest.mark.parametrize("torch", ["2.11.0", "2.13.0"])
@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_newer_torch_takes_the_archs_of_its_accelerator(arch: str, torch: str) -> None:
    row = (arch, "cu130", torch, "3.12", RECOMMENDED[arch, "cu130"])
    assert row in prelude()["MATRIX"]


def expand(**fields: Any) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The `cuda_source`s and, by name, the `cuda_wheel`s that `native_package` declares."""
    sources: list[dict[str, Any]] = []
    wheels: dict[str, dict[str, Any]] = {}

    def wheel(*, name: str, **others: Any) -> None:
        assert name not in wheels
        wheels[name] = others

    symbols = prelude(cuda_source=lambda **others: sources.append(others), cuda_wheel=wheel)
    symbols["native_package"]("thing", "1.0", **{"source": "where from", **fields})
    return sources, wheels


def test_a_package_is_one_source_and_a_wheel_a_row() -> None:
    sources, wheels = expand()
    assert sources == [{"name": "src", "source": "where from"}]
    assert len(wheels) == len(prelude()["MATRIX"])
    for wheel in wheels.values():
        assert (wheel["package"], wheel["version"], wheel["source"]) == ("thing", "1.0", ":src")
        assert wheel["environment"] == f"{wheel['arch']}-{wheel['accel']}"
    assert wheels["amd64-cu130"]["torch"] == "2.9.1"
    assert wheels["amd64-cu130-torch2.11.0"]["torch"] == "2.11.0"


def test_rows_that_differ_in_torch_share_the_wheel_of_a_package_without_torch() -> None:
    _, wheels = expand(links_torch=False)
    rows = {(arch, accel, python) for arch, accel, _, python, _ in prelude()["MATRIX"]}
    assert {(w["arch"], w["accel"], w["python"]) for w in wheels.values()} == rows
    assert len(wheels) == len(rows)
    assert {wheel["torch"] for wheel in wheels.values()} == {None}
    assert "arm64-cu130" in wheels and "arm64-cu130-torch2.11.0" not in wheels


def test_build_requirements_come_from_the_same_row() -> None:
    _, wheels = expand(build_requires=["packages/cumm"])
    for name, wheel in wheels.items():
        assert wheel["build_requires"] == [f"packages/cumm:{name}"]


def test_only_the_accelerators_that_a_package_cannot_serve_are_skipped() -> None:
    _, wheels = expand(skipped={"cpu": "has no CPU code"})
    assert {name: wheel.get("skipped") for name, wheel in wheels.items()} == {
        name: "has no CPU code" if wheel["accel"] == "cpu" else None
        for name, wheel in wheels.items()
    }


def test_rows_without_cuda_have_variables_of_their_own() -> None:
    _, wheels = expand(env={"FORCE_CUDA": "1"}, cpu_env={"FORCE_ONLY_CPU": "1"})
    assert wheels["amd64-cpu"]["env"] == {"FORCE_ONLY_CPU": "1"}
    assert wheels["amd64-cu130"]["env"] == {"FORCE_CUDA": "1"}


ROWS = (
    ("amd64", "cu130", "2.9.1", "3.12", "9.0"),
    ("amd64", "cu130", "2.11.0", "3.12", "9.0"),
    ("amd64", "cpu", "2.9.1", "3.12", ""),
)


def problems_with(matrix: Any, **fields: Any) -> tuple[list[str], list[str]]:
    """What the source is told is wrong, and the names of the wheels that there are anyway."""
    sources: list[dict[str, Any]] = []
    names: list[str] = []
    symbols = prelude(
        cuda_source=lambda **others: sources.append(others),
        cuda_wheel=lambda *, name, **others: names.append(name),
        cuda_wheelhouse=lambda **others: None,
    )
    # The functions of the prelude look it up when they are called.
    symbols["native_package"].__globals__["MATRIX"] = matrix
    symbols["native_package"]("thing", "1.0", **{"source": "where from", **fields})
    symbols["wheelhouses"](["packages/thing"])
    return sources[0].get("problems", []), names


def test_keys_that_match_no_row_are_reported_together_and_break_nothing() -> None:
    problems, names = problems_with(
        ROWS,
        skipped={"cpu": "none", "gpu": "a typing error"},
        prebuilt={("amd64", "cu12"): "wheel", "amd64-cu130": "wheel", "amd64-cu131": "wheel"},
    )
    assert problems == [
        "`skipped` of `native_package` names 'gpu', which is of no row. What matches: "
        '"cu130", "cpu".',
        *(
            f"`prebuilt` of `native_package` names {key}, which is of no row. What matches: "
            "('amd64', 'cu130'), ('amd64', 'cpu'), "
            '"amd64-cu130", "amd64-cu130-torch2.11.0", "amd64-cpu".'
            for key in ("('amd64', 'cu12')", "'amd64-cu131'")
        ),
    ]
    assert names == ["amd64-cu130", "amd64-cu130-torch2.11.0", "amd64-cpu"]


def test_values_of_another_kind_are_reported_together_and_break_nothing() -> None:
    problems, names = problems_with(
        ROWS, skipped=["cpu"], prebuilt="amd64-cu130", build_requires="packages/cumm"
    )
    assert [problem.split(". Write it like ")[0] for problem in problems] == [
        "`skipped` of `native_package` is ['cpu']",
        "`prebuilt` of `native_package` is 'amd64-cu130'",
        "`build_requires` of `native_package` is 'packages/cumm'",
    ]
    assert len(names) == len(ROWS)


def test_a_row_that_a_package_without_torch_shares_has_one_name_to_match() -> None:
    (problem,), _ = problems_with(
        ROWS, links_torch=False, prebuilt={"amd64-cu130-torch2.11.0": "wheel"}
    )
    assert "'amd64-cu130-torch2.11.0', which is of no row" in problem
    assert '"amd64-cu130", "amd64-cpu".' in problem


def test_lines_that_are_no_rows_are_reported_together_and_break_nothing() -> None:
    problems, names = problems_with(
        (
            *ROWS,
            ("arm64", "cu130", "2.9.1", "3.12"),
            "arm64",
            ("arm64", "cu130", "2.9.1", 3.12, ["9.0"]),
            ("amd64", "cpu", "2.9.1", "3.12", "9.0"),
        )
    )
    short, text, types, double = problems
    assert short == (
        "Line 4 of `MATRIX`, ('arm64', 'cu130', '2.9.1', '3.12'), has 4 fields. A line has 5: arch, "
        "accel, torch, python, cuda_arch."
    )
    assert "Line 5 of `MATRIX`, 'arm64', has no fields." in text
    assert "as python, cuda_arch. Put it in quotes." in types
    assert "Line 7" in double and "the name of line 3, amd64-cpu." in double
    assert len(names) == len(ROWS)


def test_a_package_without_torch_cannot_serve_two_lists_of_gpus_with_one_wheel() -> None:
    rows = (*ROWS[:1], ("amd64", "cu130", "2.11.0", "3.12", "8.0 9.0"))
    assert problems_with(rows)[0] == []
    (problem,), names = problems_with(rows, links_torch=False)
    assert "The rows named amd64-cu130 differ in `cuda_arch`, '9.0' and '8.0 9.0'" in problem
    assert names == ["amd64-cu130"]


def test_files_of_the_repository_are_named_by_the_package() -> None:
    sources, _ = expand(source="files", sources=["setup.py"])
    assert sources == [{"name": "src", "source": "files", "sources": ["setup.py"]}]


def test_a_prebuilt_is_named_for_a_row_or_for_every_torch_of_an_accelerator() -> None:
    _, wheels = expand(prebuilt={("amd64", "cu130"): "any torch", "amd64-cu130": "one row"})
    assert wheels["amd64-cu130"]["prebuilt"] == "one row"
    assert wheels["amd64-cu130-torch2.11.0"]["prebuilt"] == "any torch"
    assert "prebuilt" not in wheels["arm64-cu130"]


def houses(**fields: Any) -> dict[str, dict[str, Any]]:
    """By name, the `cuda_wheelhouse`s that `wheelhouses` declares."""
    found: dict[str, dict[str, Any]] = {}

    def house(*, name: str, **others: Any) -> None:
        assert name not in found
        found[name] = others

    prelude(cuda_wheelhouse=house)["wheelhouses"](**fields)
    return found


def test_a_wheelhouse_a_row_names_wheels_that_there_are() -> None:
    found = houses(packages=["a/thing"], without_torch=["a/free"], requirements="lock.txt")
    assert len(found) == len(prelude()["MATRIX"])
    _, linked = expand()
    _, free = expand(links_torch=False)
    for name, house in found.items():
        assert house["wheels"][0] == f"a/thing:{name}" and name in linked
        package, _, row = house["wheels"][1].partition(":")
        assert package == "a/free" and row in free
        for wheel in (linked[name], free[row]):
            for field in ("arch", "accel", "python", "cuda_arch"):
                assert wheel[field] == house[field]
        assert linked[name]["torch"] == house["torch"]
        assert house["requirements"] == "lock.txt"


def test_every_variant_has_a_toolchain_image() -> None:
    images: dict[str, dict[str, Any]] = {}

    def image(*, name: str, **fields: Any) -> None:
        assert name not in images
        images[name] = fields

    indexes: dict[str, dict[str, Any]] = {}
    symbols = prelude(
        toolchain_image=image,
        toolchain_image_index=lambda *, name, **fields: indexes.update({name: fields}),
        toolchain_image_variants=image_variants,
    )
    symbols["toolchain_images"](baked_locks={"amd64-cu130": ["lock.txt"]}, libraries=["openblas"])
    assert {(one["arch"], one["accel"]) for one in images.values()} == set(image_variants())
    assert {row[:2] for row in symbols["MATRIX"]} <= set(image_variants())
    assert images["amd64-cu130"] == {
        "arch": "amd64",
        "accel": "cu130",
        "libraries": ["openblas"],
        "baked_locks": ["lock.txt"],
    }
    assert images["arm64-cpu"]["baked_locks"] is None
    # One name for both architectures, where both exist.
    assert indexes["cu130"]["images"] == [":amd64-cu130", ":arm64-cu130"]
    both = {accel for arch, accel in image_variants() if arch == "arm64"}
    assert set(indexes) == both and "cu118" not in both
