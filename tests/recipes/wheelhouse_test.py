"""That wheelhouses have all native packages, and that no loosened requirement goes unsaid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.tables.patches import parse_header

PACKAGES = Path("packages")
RECIPES = sorted(
    path.parent.name for path in PACKAGES.glob("*/BUILD") if "native_package(" in path.read_text()
)
PATCHES = sorted(PACKAGES.glob("*/patches/*.patch"))


def declared() -> dict[str, Any]:
    """The arguments of the only call in packages/BUILD."""
    calls: list[dict[str, Any]] = []
    code = (PACKAGES / "BUILD").read_text()
    exec(code, {"wheelhouses": lambda **fields: calls.append(fields)})
    (call,) = calls
    return call


def test_wheelhouses_have_all_native_packages() -> None:
    call = declared()
    assert sorted([*call["packages"], *call["without_torch"]]) == [
        f"packages/{name}" for name in RECIPES
    ]
    without_torch = [
        f"packages/{name}"
        for name in RECIPES
        if "links_torch=False" in (PACKAGES / name / "BUILD").read_text()
    ]
    assert sorted(call["without_torch"]) == without_torch


def test_their_lock_is_that_of_the_pure_packages() -> None:
    assert Path(declared()["requirements"]).is_file()


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: f"{path.parts[1]}-{path.name}")
def test_a_patch_that_changes_a_requirement_says_which(path: Path) -> None:
    text = path.read_text()
    changed = re.search(r"^-(Requires-Dist:|.*install_requires)", text, re.MULTILINE)
    assert bool(parse_header(path.name, text).relaxes) == bool(changed)
