from __future__ import annotations

import pytest
from pants.engine.addresses import Address

from cuda_wheels.prebuilt_checks import (
    NOT_NAMED,
    as_reason,
    as_reasons,
    group_of,
    group_reasons,
    named_torch,
    requirement_reasons,
    tag_reasons,
    torch_reasons,
)
from cuda_wheels.sources import PrebuiltWheel
from cuda_wheels.tables.rows import Row
from cuda_wheels.wheel_facts import WheelFacts


def row(torch: str | None = "2.9.1", accel: str = "cu130", arch: str = "amd64") -> Row:
    return Row(arch, accel, torch, "3.12", ("9.0",))


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("2.1.2+pt29cu130", ("2.9", "cu130")),
        ("2.1.2+pt210cu128", ("2.10", "cu128")),
        ("2.0.9+pt113cpu", ("1.13", "cpu")),
        ("2.1.2+cu130.torch2.11.0", ("2.11.0", "cu130")),
        ("2.1.2+cu130.torch2.11.0.sm90", ("2.11.0", "cu130")),
        ("0.8.2", None),
        ("0.8.2+cu130", None),
        ("2.8.3+cu12torch2.8", None),
        ("1.0+pt29", None),
    ],
)
def test_the_torch_that_a_version_names(version: str, named: tuple[str, str] | None) -> None:
    assert named_torch(version) == named


@pytest.mark.parametrize(
    ("version", "torch", "accel"),
    [
        ("2.1.2+pt29cu130", "2.9.1", "cu130"),
        ("2.1.2+pt29cu130", "2.9.0", "cu130"),
        ("2.1.2+pt29cu130", "2.9.1", "cu131"),  # whose torch is that of cu130
        ("2.1.2+pt210cu128", "2.10.0", "cu128"),
        ("2.1.2+cu130.torch2.11.0.sm90", "2.11.0", "cu130"),
        ("2.1.2", None, "cu130"),
    ],
)
def test_a_prebuilt_for_the_rows_torch(version: str, torch: str | None, accel: str) -> None:
    assert torch_reasons(PrebuiltWheel("x", version), row(torch, accel)) == ()


@pytest.mark.parametrize(
    ("version", "torch", "accel", "words"),
    [
        ("2.1.2+pt29cu130", "2.10.0", "cu130", ("torch 2.10.0 of cu130", "torch 2.9 of cu130")),
        ("2.1.2+pt29cu128", "2.9.1", "cu130", ("torch 2.9.1 of cu130", "torch 2.9 of cu128")),
        ("2.1.2+pt21cu130", "2.10.0", "cu130", ("torch 2.1 of",)),
        ("2.1.2+pt29cu13", "2.9.1", "cu130", ("of cu13 in",)),
        ("2.1.2+cu130.torch2.9.0", "2.9.1", "cu130", ("torch 2.9.0 of cu130",)),
        ("2.1.2", "2.9.1", "cu130", ("does not say which torch",)),
    ],
)
def test_a_prebuilt_for_another_torch(
    version: str, torch: str, accel: str, words: tuple[str, ...]
) -> None:
    (reason,) = torch_reasons(PrebuiltWheel("x", version), row(torch, accel))
    for word in words:
        assert word in reason


@pytest.mark.parametrize(
    ("tags", "arch", "good"),
    [
        ("linux_x86_64", "amd64", True),
        ("manylinux_2_24_x86_64.manylinux_2_28_x86_64", "amd64", True),
        ("manylinux_2_28_aarch64", "arm64", True),
        ("any", "amd64", True),  # the inspection finds what is wrong with that
        ("manylinux_2_28_aarch64", "amd64", False),
        ("linux_x86_64", "arm64", False),
        ("win_amd64", "amd64", False),
        ("manylinux_2_28_x86_64.manylinux_2_28_aarch64", "amd64", False),
    ],
)
def test_the_machine_of_the_tag(tags: str, arch: str, good: bool) -> None:
    name = f"x-1.0-cp312-cp312-{tags}.whl"
    reasons = tag_reasons(name, row(arch=arch))
    assert (reasons == ()) is good
    assert all(name in reason and arch in reason for reason in reasons)


def test_a_finding_is_a_line_without_the_advice_for_a_compiled_wheel() -> None:
    message = "a.so: found this. Usual cause: that. Do so.\nb.so: found more."
    assert as_reasons(message) == ("a.so: found this.", "b.so: found more.")


def test_a_refused_repair_is_one_line() -> None:
    message = "x.whl cannot be repaired to y.\n  a.so needs GLIBC_2.34\nWays out: compile."
    assert as_reason(message) == "x.whl cannot be repaired to y; a.so needs GLIBC_2.34."


def facts(name: str, version: str, *requires: str) -> WheelFacts:
    file = f"{name.replace('-', '_')}-{version}-cp312-cp312-linux_x86_64.whl"
    return WheelFacts(file, name, version, "cp312", "cp312", (), "", 1, requires_dist=requires)


# What upstream's own wheels say.
SPCONV_CU126 = facts("spconv-cu126", "2.3.8", "pccm>=0.4.16", "cumm-cu126<0.8.0,>=0.7.11")


def test_prebuilts_that_are_taken_together_must_go_together() -> None:
    (reason,) = requirement_reasons(SPCONV_CU126, [facts("cumm-cu126", "0.8.2")])
    assert "spconv-cu126 2.3.8 requires cumm-cu126<0.8.0,>=0.7.11" in reason
    assert "found 0.8.2 in cumm_cu126-0.8.2" in reason


@pytest.mark.parametrize(
    "others", [[facts("cumm_cu126", "0.7.11")], [facts("cumm-cu128", "0.8.2")], [SPCONV_CU126], []]
)
def test_prebuilts_that_go_together(others: list[WheelFacts]) -> None:
    assert requirement_reasons(SPCONV_CU126, others) == ()


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        ("cumm-cu126", True),
        ("CUMM_cu126 (>=0.8) ; python_version > '3'", True),
        ("cumm-cu126[x]==0.8.2", True),
        ("cumm-cu126 (<0.8)", False),
        ("cumm-cu126 =>0.8", False),
        ("cumm-cu126[x]!=0.8.2; extra == 'x'", False),
    ],
)
def test_how_a_requirement_is_written(requirement: str, met: bool) -> None:
    reasons = requirement_reasons(facts("x", "1.0", requirement), [facts("cumm-cu126", "0.8.2")])
    assert (reasons == ()) is met


PCCM, CUMM, SPCONV, OTHER = (Address(f"packages/{name}") for name in ("a", "cumm", "spconv", "x"))
REQUIRES = {CUMM: (PCCM,), SPCONV: (CUMM,)}


@pytest.mark.parametrize("wheel", [PCCM, CUMM, SPCONV])
def test_wheels_that_are_built_with_one_another_are_a_group(wheel: Address) -> None:
    assert group_of(wheel, REQUIRES) == (PCCM, CUMM, SPCONV)


def test_a_wheel_of_its_own() -> None:
    assert group_of(OTHER, REQUIRES) == (OTHER,)


def test_a_circle_is_a_group_too() -> None:
    assert group_of(CUMM, {CUMM: (SPCONV,), SPCONV: (CUMM,)}) == (CUMM, SPCONV)


def test_a_whole_group_of_prebuilts_stands_in() -> None:
    for wheel in (CUMM, SPCONV):
        assert group_reasons(wheel, {CUMM: (), SPCONV: ()}) == ()


@pytest.mark.parametrize(
    ("compiled", "other"),
    [
        pytest.param(SPCONV, CUMM, id="what a compiled wheel requires"),
        pytest.param(CUMM, SPCONV, id="what requires a compiled wheel"),
    ],
)
def test_none_of_a_group_stands_in_where_one_is_compiled(compiled: Address, other: Address) -> None:
    reasons = {compiled: (NOT_NAMED,), other: ()}
    (reason,) = group_reasons(other, reasons)
    assert str(compiled) in reason and NOT_NAMED in reason and "one compiler" in reason
    assert group_reasons(compiled, reasons) == (NOT_NAMED,)


def test_the_own_reasons_come_first() -> None:
    reasons = {CUMM: ("one.", "two."), SPCONV: ("three.",)}
    own, more, others = group_reasons(CUMM, reasons)
    assert (own, more) == ("one.", "two.") and "three." in others
