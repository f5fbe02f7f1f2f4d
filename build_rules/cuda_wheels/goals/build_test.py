from __future__ import annotations

from typing import Any

import pytest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.addresses import Address
from pants.engine.fs import Digest
from pants.testutil.rule_runner import RuleRunner

from cuda_wheels import register
from cuda_wheels.goals.build import (
    CudaBuild,
    refuse_clashes,
    refuse_shared_folders,
    table,
)
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import FallibleCudaWheel
from cuda_wheels.rules.wheelhouse import FallibleWheelhouse


def test_the_closing_table_has_a_line_a_wheel() -> None:
    good = FallibleCudaWheel(Address("packages/a", target_name="amd64-cu130"), name="a-1.whl")
    bad = FallibleCudaWheel(
        Address("packages/longer", target_name="x"), failure=StageFailure("compile", "why")
    )
    assert table((good, bad)).splitlines() == [
        "packages/a:amd64-cu130  built             a-1.whl",
        "packages/longer:x       failed (compile)",
    ]


def test_a_skipped_wheel_is_in_the_table_with_its_reason() -> None:
    wheel = FallibleCudaWheel(Address("packages/a"), failure=StageFailure("skip", "No such code."))
    assert table((wheel,)) == "packages/a:a  skipped  No such code."


BUILD_FILE = """
cuda_source(name="src", source=files_source("."), sources=["setup.py"])
cuda_wheel(name="no", source=":src", skipped="It has no code for this.", **fields)
cuda_wheel(name="faulty", source=":src", **{**fields, "accel": "cu113"})
"""
FIELDS = """
fields = dict(
    package="thing", version="1", arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["9.0"],
)
"""


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[*core_rules(), *environments.rules(), *register.rules()],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )
    runner.write_files({"thing/BUILD": FIELDS + BUILD_FILE, "thing/setup.py": ""})
    return runner


@pytest.mark.parametrize(
    ("targets", "exit_code", "words"),
    [
        (["thing:no"], 0, ["thing:no  skipped  It has no code", "every wheel of the selection"]),
        (
            ["thing:no", "thing:faulty"],
            1,
            ["thing:no      skipped", "thing:faulty  failed (check)"],
        ),
    ],
)
def test_what_is_skipped_is_no_failure(
    rule_runner: RuleRunner, targets: list[str], exit_code: int, words: list[str]
) -> None:
    result = rule_runner.run_goal_rule(
        CudaBuild, args=targets, env_inherit={"PATH", "HOME", "PYENV_ROOT"}
    )
    assert result.exit_code == exit_code
    for word in words:
        assert word in result.stdout
    assert "no code" not in result.stderr


def test_a_prebuilt_and_the_reasons_against_one_are_in_the_table() -> None:
    taken = FallibleCudaWheel(Address("packages/a"), name="a-1.whl", prebuilt=True)
    refused = FallibleCudaWheel(Address("packages/b"), name="b-1.whl", notes=("x.", "y."))
    assert table((taken, refused)).splitlines() == [
        "packages/a:a  prebuilt  a-1.whl",
        "packages/b:b  built     b-1.whl",
        "    The prebuilt does not stand in: x.",
        "    The prebuilt does not stand in: y.",
    ]


def built(target: str, content: str, output_path: str = "") -> FallibleCudaWheel:
    return FallibleCudaWheel(
        Address("packages/a", target_name=target),
        name="a-1.whl",
        wheel=Digest(content * 64, 1),
        output_path=output_path,
    )


def test_different_wheels_of_one_file_name_are_refused() -> None:
    one, other, third = refuse_clashes(
        (built("x", "0"), built("y", "1"), built("z", "2", output_path="z"))
    )
    assert one.error and "packages/a:y" in one.error and "local_version" in one.error
    assert other.error and "packages/a:x" in other.error and "output_path" in other.error
    assert third.error is None


def test_rows_may_share_a_wheel() -> None:
    wheels = (built("x", "0"), built("y", "0"))
    assert refuse_clashes(wheels) == wheels


def house(target: str, *wheels: FallibleCudaWheel, **fields: Any) -> FallibleWheelhouse:
    values: dict[str, Any] = {"path": "linux-amd64/cu130/torch2.11.0-cp312", **fields}
    return FallibleWheelhouse(Address("packages", target_name=target), wheels=wheels, **values)


def test_wheelhouses_are_at_the_end_of_the_table() -> None:
    good = built("x", "0")
    bad = FallibleCudaWheel(Address("packages/b"), failure=StageFailure("compile", "why"))
    left_out = FallibleCudaWheel(Address("packages/c"), failure=StageFailure("skip", "No."))
    houses = (
        house("whole", good, left_out),
        house("part", good, bad),
        house("none", failure=StageFailure("check", "why")),
    )
    assert table((good,), houses).splitlines() == [
        "packages/a:x    built                  a-1.whl",
        "packages:whole  built                  linux-amd64/cu130/torch2.11.0-cp312",
        "packages:part   incomplete (1 failed)  linux-amd64/cu130/torch2.11.0-cp312",
        "packages:none   failed (check)",
    ]


def test_two_wheelhouses_of_one_folder_are_refused() -> None:
    one, other, third = refuse_shared_folders((house("a"), house("b"), house("c", path="c")))
    assert one.error and "packages:b" in one.error and "output_path" in one.error
    assert other.error and "packages:a" in other.error
    assert third.error is None


def test_a_wheelhouse_with_faults_fails_the_goal(rule_runner: RuleRunner) -> None:
    row = 'arch="amd64", accel="cu130", torch="2.11.0", cuda_arch=["8.0"]'
    rule_runner.write_files({"house/BUILD": f"cuda_wheelhouse(wheels=['thing:no'], {row})"})
    result = rule_runner.run_goal_rule(
        CudaBuild, args=["house"], env_inherit={"PATH", "HOME", "PYENV_ROOT"}
    )
    assert result.exit_code == 1
    assert "house:house  failed (check)" in result.stdout
    assert "promises the GPUs 9.0" in result.stderr
