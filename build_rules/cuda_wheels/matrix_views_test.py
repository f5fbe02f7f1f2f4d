from __future__ import annotations

import json
from typing import Any

import pytest

from cuda_wheels.matrix_views import (
    MatrixSelectionError,
    MatrixWheel,
    format_table,
    grouped_reasons,
    matrix_rows,
    select,
    to_github,
    to_json,
    words,
)
from cuda_wheels.tables.rows import Row

HOUR = 60 * 60


def wheel(
    package: str,
    status: str = "buildable",
    *reasons: str,
    arch: str = "amd64",
    accel: str = "cu130",
    torch: str | None = "2.9.1",
    name: str | None = None,
    **changes: Any,
) -> MatrixWheel:
    name = name or f"{arch}-{accel}"
    values: dict[str, Any] = {
        "address": f"packages/{package}:{name}",
        "name": name,
        "package": package,
        "version": "1.0",
        "row": Row(arch, accel, torch, "3.12", ("9.0",)),
        "environment": f"{arch}-{accel}",
        "status": status,
        "reasons": reasons,
        "timeout": 6 * HOUR,
        "memory_per_job_gb": 3.0,
        "native": True,
        "cubins": ("sm_90",),
        "ptx": (),
        "build_requires": (),
    }
    return MatrixWheel(**{**values, **changes})


SKIP = "It has no code for this."
WHEELS = (
    wheel("scatter"),
    wheel("flash", "skipped", SKIP),
    wheel("scatter", "pending", "`cuda-lock packages/scatter:arm64-cu130`", arch="arm64"),
    wheel("flash", "pending", "`cuda-lock packages/flash:arm64-cu130`", arch="arm64"),
    wheel("cluster", "refused", "one", "two", arch="arm64"),
)


def test_the_table_shows_what_is_built_absent_and_skipped_and_why() -> None:
    assert format_table(WHEELS).splitlines() == [
        "             cluster",
        "             |  flash",
        "             |  |  scatter",
        "amd64-cu130  .  s  +",
        "arm64-cu130  x  p  p",
        "",
        "+ 1 buildable   s 1 skipped   p 2 pending   x 1 refused   . 1 without a target",
        "",
        "skipped:",
        f"* {SKIP}",
        "    flash: amd64-cu130",
        "",
        "pending:",
        "* `cuda-lock packages/scatter:arm64-cu130`",
        "    flash, scatter: arm64-cu130",
        "",
        "refused:",
        "* one",
        "    cluster: arm64-cu130",
        "* two",
        "    cluster: arm64-cu130",
    ]


def test_what_a_machine_must_have_stands_below_the_table_too() -> None:
    text = format_table((wheel("scatter", "buildable", "needs CUDA 12.6"),))
    assert "\nbuildable:\n* needs CUDA 12.6\n    scatter: amd64-cu130" in text


def test_equal_reasons_stand_once() -> None:
    groups = grouped_reasons(
        [
            wheel("a", "skipped", SKIP),
            wheel("b", "skipped", SKIP, arch="arm64"),
            # An address that goes on is another one.
            wheel("a", "pending", "see packages/a:amd64-cu130-torch2.11.0", arch="arm64"),
        ]
    )
    assert [len(members) for members in groups.values()] == [2, 1]
    assert list(groups) == [SKIP, "see packages/a:amd64-cu130-torch2.11.0"]


def test_rows_are_in_the_order_of_the_tables() -> None:
    rows = matrix_rows(
        [
            wheel("a", accel="cpu"),
            wheel("a", torch="2.11.0", name="eleven"),
            wheel("a", arch="arm64", accel="cu126"),
            wheel("a"),
            wheel("a", accel="cu999"),
            wheel("a", accel="cu126"),
        ]
    )
    assert [line.name for line in rows] == [
        "amd64-cu126",
        "amd64-cu130",
        "eleven",
        "amd64-cpu",
        "amd64-cu999",
        "arm64-cu126",
    ]


def test_a_wheel_without_torch_serves_the_rows_of_every_torch() -> None:
    cumm = wheel("cumm", torch=None)
    old, new = wheel("scatter"), wheel("scatter", torch="2.11.0", name="amd64-cu130-torch2.11.0")
    rows = matrix_rows([cumm, old, new, wheel("cumm", torch=None, accel="cu126")])
    assert [(line.name, [one.package for one in line.wheels]) for line in rows] == [
        ("amd64-cu126", ["cumm"]),
        ("amd64-cu130", ["cumm", "scatter"]),
        ("amd64-cu130-torch2.11.0", ["cumm", "scatter"]),
    ]
    assert "+ 3 buildable" in format_table([cumm, old, new])


def test_a_row_whose_targets_have_different_names_is_named_by_its_variant() -> None:
    (line,) = matrix_rows([wheel("a", name="one"), wheel("b", name="other")])
    assert line.name == "amd64-cu130-torch2.9.1-cp312"


def test_two_targets_for_the_same_are_both_seen() -> None:
    text = format_table([wheel("a", name="one"), wheel("a", "skipped", SKIP, name="other")])
    assert "cp312  +s" in text


# --------------------------------------------------------------------------------------------
# Selection
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ()),
        (["amd64"], ("amd64",)),
        (["amd64,arm64", "amd64"], ("amd64", "arm64")),
        (["a b, c"], ("a", "b", "c")),
        ([","], ()),
    ],
)
def test_an_option_may_hold_several_names(values: list[str], expected: tuple[str, ...]) -> None:
    assert words(values) == expected


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({}, 5),
        ({"packages": ["flash"]}, 2),
        ({"packages": ["Flash"]}, 2),
        ({"packages": ["flash", "scatter"], "archs": ["amd64"]}, 2),
        ({"accels": ["cu130"]}, 5),
    ],
)
def test_filters(filters: dict[str, list[str]], left: int) -> None:
    assert len(select(WHEELS, **filters)) == left


def test_a_package_may_be_written_as_it_is_imported() -> None:
    wheels = (wheel("torch-scatter"), wheel("pointgroup_ops"))
    assert select(wheels, packages=["torch_scatter", "pointgroup-ops"]) == wheels


@pytest.mark.parametrize(
    ("filters", "parts"),
    [
        ({"packages": ["flsh"]}, ("`--package` names 'flsh'", "Did you mean 'flash'?")),
        ({"archs": ["x86_64"]}, ("`--arch` names 'x86_64'", "amd64, arm64")),
        ({"accels": ["cu13"]}, ("`--accel` names 'cu13'", "Did you mean 'cu130'?")),
        ({"accels": ["cu118"]}, ("no wheel of the selection has", "There are: cu130.")),
        (
            {"archs": ["arm46"], "accels": ["cu31"], "packages": ["scater"]},
            ("'arm64'?", "'cu130'?", "'scatter'?"),
        ),
        (
            {"packages": ["cluster"], "archs": ["amd64"]},
            ("No wheel is left", "--package=cluster --arch=amd64"),
        ),
    ],
)
def test_a_filter_that_names_nothing(filters: dict[str, list[str]], parts: tuple[str, ...]) -> None:
    with pytest.raises(MatrixSelectionError) as raised:
        select(WHEELS, **filters)
    for part in parts:
        assert part in str(raised.value)


# --------------------------------------------------------------------------------------------
# JSON and GitHub
# --------------------------------------------------------------------------------------------


def test_json_has_every_wheel_and_the_addresses_of_every_cell() -> None:
    document = json.loads(json.dumps(to_json(WHEELS)))
    assert list(document) == ["host", "rows", "wheels"]
    assert document["host"] is None
    assert [row["name"] for row in document["rows"]] == ["amd64-cu130", "arm64-cu130"]
    assert document["rows"][0]["wheels"] == {
        "cluster": [],
        "flash": ["packages/flash:amd64-cu130"],
        "scatter": ["packages/scatter:amd64-cu130"],
    }
    by_address = {one["address"]: one for one in document["wheels"]}
    assert len(by_address) == 5
    refused = by_address["packages/cluster:arm64-cu130"]
    assert (refused["status"], refused["reasons"]) == ("refused", ["one", "two"])
    assert refused["lock"] == "3rdparty/torch/arm64-cu130-torch2.9.1-cp312.txt"


CI = (
    wheel("scatter"),
    wheel("flash", timeout=12 * HOUR),
    wheel("cumm", timeout=HOUR, torch=None),
    wheel("scatter", arch="arm64"),
    wheel("flash", "skipped", SKIP, arch="arm64"),
    wheel("scatter", "pending", "no lock", accel="cu129"),
)


def test_a_ci_entry_a_row_has_what_is_buildable_and_the_longest_first() -> None:
    first, second = to_github(CI)["include"]
    assert first == {
        "name": "amd64-cu130",
        "arch": "amd64",
        "accel": "cu130",
        "torch": "2.9.1",
        "python": "3.12",
        "environment": "amd64-cu130",
        "targets": [
            "packages/flash:amd64-cu130",
            "packages/scatter:amd64-cu130",
            "packages/cumm:amd64-cu130",
        ],
        "runner": "ubuntu-24.04",
        "timeout": 19 * 60,
    }
    assert (second["name"], second["runner"]) == ("arm64-cu130", "ubuntu-24.04-arm")
    assert second["targets"] == ["packages/scatter:arm64-cu130"]


def test_a_ci_entry_a_wheel() -> None:
    entries = to_github(CI, by_wheel=True)["include"]
    assert [(entry["name"], entry["timeout"]) for entry in entries] == [
        ("flash-amd64-cu130", 720),
        ("scatter-amd64-cu130", 360),
        ("scatter-arm64-cu130", 360),
        ("cumm-amd64-cu130", 60),
    ]
    assert all(len(entry["targets"]) == 1 for entry in entries)
    assert entries[3]["torch"] is None


def test_a_timeout_is_rounded_up_to_minutes() -> None:
    (entry,) = to_github([wheel("a", timeout=61)])["include"]
    assert entry["timeout"] == 2


def test_nothing_buildable_is_an_empty_list() -> None:
    assert to_github(CI[4:]) == {"include": []}
