"""The recipes and the matrix of this repository, as users ask for them: nothing is fetched or built."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.checkout import Checkout

MACROS = "build_rules/macros.py"
MATRIX = runpy.run_path(MACROS)["MATRIX"]
NATIVE = (
    "Swin3D cumm flash-attn pointgroup_ops pointops pointops2 pointrope pointseg spconv "
    "torch-cluster torch-scatter torch-sparse"
).split()
# CUDA has no such release for arm64, no Python is 3.8, and this GPU is newer than that nvcc.
IMPOSSIBLE = '("arm64", "cu118", "2.9.1", "3.8", "12.0")'
IMPOSSIBLE_ROW = "arm64-cu118-cp38"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    with Checkout(tmp_path / "checkout") as checkout:
        yield checkout


def _asked(checkout: Checkout, *arguments: str) -> str:
    run = checkout.pants(*arguments)
    assert run.returncode == 0, "\n" + run.output
    assert not [name for name in run.processes if name.startswith(("Fetch", "Compile"))]
    return run.stdout


def _matrix(checkout: Checkout) -> dict[str, Any]:
    return json.loads(_asked(checkout, "cuda-matrix", "--format=json"))


def test_every_cell_is_buildable_skipped_or_pending_with_its_reason(checkout: Checkout) -> None:
    found = _matrix(checkout)
    assert len(found["rows"]) == len(MATRIX)
    for row in found["rows"]:
        assert sorted(row["wheels"], key=str.lower) == sorted(NATIVE, key=str.lower)
        assert [len(addresses) for addresses in row["wheels"].values()] == [1] * len(NATIVE)
    for wheel in found["wheels"]:
        assert wheel["status"] in ("buildable", "skipped", "pending"), wheel
        assert wheel["reasons"] or wheel["status"] == "buildable"
    listed = _asked(checkout, "--filter-target-type=cuda_wheel", "list", "packages::").split()
    assert sorted(listed) == sorted(wheel["address"] for wheel in found["wheels"])

    (spconv,) = json.loads(_asked(checkout, "peek", "packages/spconv:arm64-cu130"))
    assert (spconv["package"], spconv["version"]) == ("spconv", "2.3.8")
    assert (spconv["arch"], spconv["accel"], spconv["torch"]) == ("arm64", "cu130", None)
    assert spconv["cuda_arch"] == "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1".split()
    assert spconv["build_requires"] == ["packages/cumm:arm64-cu130"]


def test_an_impossible_row_and_a_wrong_line_break_no_other_goal(checkout: Checkout) -> None:
    macros = checkout.root / MACROS
    text = macros.read_text()
    macros.write_text(text.replace("MATRIX = (\n", f"MATRIX = (\n    {IMPOSSIBLE},\n", 1))
    by_address = {wheel["address"]: wheel for wheel in _matrix(checkout)["wheels"]}
    refused = by_address[f"packages/cumm:{IMPOSSIBLE_ROW}"]
    assert refused["status"] == "refused" and len(refused["reasons"]) >= 3
    assert [one["status"] for one in by_address.values()].count("refused") == len(NATIVE)
    assert f"packages/spconv:{IMPOSSIBLE_ROW}" in _asked(checkout, "list", "packages::").split()

    macros.write_text(text.replace("MATRIX = (\n", 'MATRIX = (\n    ("arm64", "cu130"),\n', 1))
    wheels = _matrix(checkout)["wheels"]
    assert len(wheels) == len(by_address) - len(NATIVE)
    for wheel in wheels:
        # The line may have been meant for any of them.
        if wheel["status"] != "skipped":
            assert wheel["status"] == "refused"
            assert "Line 1 of `MATRIX`" in "\n".join(wheel["reasons"])
    assert "packages/spconv:arm64-cu130" in _asked(checkout, "list", "packages::").split()
