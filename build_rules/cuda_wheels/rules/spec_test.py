from __future__ import annotations

from typing import cast

import pytest

from cuda_wheels.rules.spec import WheelSpec, checked, full_version

SPEC = cast(WheelSpec, None)


def test_a_declared_reason_stands_alone() -> None:
    found = checked(SPEC, "  No code\n for it. ", "nothing left", ("a fault",))
    assert (found.skipped, found.problems) == ("No code for it.", ())


def test_a_faulty_target_is_not_skipped_by_its_rule() -> None:
    found = checked(SPEC, None, "nothing left", ("a fault",))
    assert (found.skipped, found.problems) == (None, ("a fault", "nothing left"))
    found = checked(SPEC, None, "nothing left", ())
    assert (found.skipped, found.problems) == ("nothing left", ())


@pytest.mark.parametrize("value", [None, "", " "])
def test_what_says_nothing_is_no_reason(value: str | None) -> None:
    assert checked(SPEC, value, None, ()).skipped is None


@pytest.mark.parametrize(
    ("version", "local", "expected"),
    [
        ("1.0", "cu130.torch2.11.0", "1.0+cu130.torch2.11.0"),
        # A package that adds a local part of its own keeps it.
        ("1.0+git1a2b3c4", "cu130", "1.0+git1a2b3c4.cu130"),
        ("1.0+git1a2b3c4", None, "1.0+git1a2b3c4"),
        ("1.0", None, "1.0"),
    ],
)
def test_the_version_of_the_wheel(version: str, local: str | None, expected: str) -> None:
    assert full_version(version, local) == expected
