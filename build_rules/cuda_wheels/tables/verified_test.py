from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuda_wheels.tables.verified import (
    VERIFIED_RUNS,
    NativeWheel,
    VerifiedRun,
    verification,
)

PAGE = Path("docs/verification.md")
A, B = NativeWheel("a", "1", "row"), NativeWheel("b", "1", "row")
RUNS = (VerifiedRun(A, "9.0"), VerifiedRun(A, "8.0"), VerifiedRun(B, "9.0"))


@pytest.mark.parametrize(
    ("wheels", "statuses"),
    [
        ((A,), {"8.0": "runs", "9.0": "runs", "12.0": "built"}),
        ((A, B), {"8.0": "built", "9.0": "runs", "12.0": "built"}),
        ((A, NativeWheel("b", "2", "row")), {"8.0": "built", "9.0": "built", "12.0": "built"}),
        ((NativeWheel("a", "1", "other"),), {"8.0": "built", "9.0": "built", "12.0": "built"}),
        ((), {"8.0": "built", "9.0": "built", "12.0": "built"}),
    ],
)
def test_a_set_runs_where_each_of_its_wheels_ran(
    wheels: tuple[NativeWheel, ...], statuses: dict[str, str]
) -> None:
    assert verification(["8.0", "9.0", "12.0"], wheels, RUNS) == statuses


@pytest.mark.parametrize("run", VERIFIED_RUNS, ids=lambda run: run.wheel.package)
def test_what_is_said_to_run_is_a_row_of_the_page(run: VerifiedRun) -> None:
    page = PAGE.read_text()
    version = re.escape(run.wheel.version)
    rows = re.findall(rf"^\| {run.wheel.package} \| {version}(?:\+\S+)? \|.*$", page, re.MULTILINE)
    assert rows and all(row.rstrip(" |").endswith("runs") for row in rows)
    assert f"capability {run.gpu_arch}" in page
