from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pants.engine.addresses import Address
from pants.engine.environment import EnvironmentName
from pants.engine.process import InteractiveProcess, InteractiveProcessResult, Process
from pants.testutil.option_util import create_goal_subsystem, create_options_bootstrapper
from pants.testutil.rule_runner import MockEffect, MockGet, mock_console, run_rule_with_mocks

from cuda_wheels.goals.shell import CudaShell, CudaShellSubsystem, cuda_shell
from cuda_wheels.rules.shell import FallibleShell, ShellRequest
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel_environment import WheelEnvironment, WheelEnvironmentRequest
from cuda_wheels.sources import FilesSource
from cuda_wheels.target_types import CudaSourceTarget, CudaWheelTarget

WHEEL = CudaWheelTarget(
    {
        "package": "thing",
        "version": "1",
        "source": ":src",
        "arch": "amd64",
        "accel": "cu130",
        "environment": "amd64-cu130",
    },
    Address("packages/thing", target_name="amd64-cu130"),
)
SOURCE = CudaSourceTarget(
    {"source": FilesSource(".")}, Address("packages/thing", target_name="src")
)
USABLE = WheelEnvironment("amd64-cu130")


@pytest.fixture(autouse=True)
def build_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of a goal are read from a build root, which a test's sandbox is none of."""
    (tmp_path / "BUILDROOT").touch()
    monkeypatch.chdir(tmp_path)


def _run(
    shell: FallibleShell, place: WheelEnvironment = USABLE
) -> tuple[CudaShell, list[tuple[Any, ...]], str]:
    """The goal's result, what was opened, and what it said."""
    seen: list[tuple[Any, ...]] = []

    def prepare(request: ShellRequest, environment: EnvironmentName) -> FallibleShell:
        seen.append((request.field_set.address, request.arguments, environment.val))
        return shell

    def interact(
        process: InteractiveProcess, environment: EnvironmentName
    ) -> InteractiveProcessResult:
        seen.append((process, environment.val))
        return InteractiveProcessResult(42)

    with mock_console(create_options_bootstrapper()) as (console, output):
        result = run_rule_with_mocks(
            cuda_shell,
            rule_args=[
                console,
                (SOURCE, WHEEL),
                create_goal_subsystem(CudaShellSubsystem, args=["-c", "ls"]),
            ],
            mock_gets=[
                MockGet(
                    output_type=WheelEnvironment,
                    input_types=(WheelEnvironmentRequest,),
                    mock=lambda _: place,
                ),
                MockGet(
                    output_type=FallibleShell,
                    input_types=(ShellRequest, EnvironmentName),
                    mock=prepare,
                ),
                MockEffect(
                    output_type=InteractiveProcessResult,
                    input_types=(InteractiveProcess, EnvironmentName),
                    mock=interact,
                ),
            ],
        )
        return result, seen, output.get_stderr()


@pytest.fixture
def process() -> Process:
    return Process(
        ["python3.12", "-m", "program"],
        description="Open a shell",
        env={"TERM": "xterm"},
        append_only_caches={"cuda_wheels": ".cuda_wheels"},
    )


def test_the_exit_code_is_that_of_the_shell(process: Process) -> None:
    result, (asked, opened), _ = _run(FallibleShell(process))
    assert result.exit_code == 42
    assert asked == (WHEEL.address, ("-c", "ls"), "amd64-cu130")
    assert opened == (InteractiveProcess.from_process(process), "amd64-cu130")
    interactive, _ = opened
    assert interactive.process.append_only_caches == process.append_only_caches
    # Its sandbox holds the inputs; the checkout does not.
    assert not interactive.run_in_workspace


def test_an_earlier_stage_that_failed_is_reported_and_nothing_is_opened() -> None:
    failure = StageFailure("patch", "Patch 0001-why.patch does not apply.")
    result, seen, stderr = _run(FallibleShell(failure=failure))
    assert result.exit_code == 1
    assert len(seen) == 1
    assert "packages/thing:amd64-cu130 failed at the stage `patch`" in stderr
    assert "0001-why.patch" in stderr and "No shell was opened" in stderr


def test_an_environment_that_cannot_be_used_is_no_traceback(process: Process) -> None:
    result, seen, stderr = _run(FallibleShell(process), WheelEnvironment(problems=("It is not.",)))
    assert result.exit_code == 1
    assert seen == []
    assert "* It is not." in stderr and "No shell was opened" in stderr
