"""`./pants cuda-shell TARGET`: a shell where a wheel would be compiled."""

from __future__ import annotations

from pants.core.goals.package import PackageFieldSet
from pants.engine.console import Console
from pants.engine.environment import EnvironmentName
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.process import InteractiveProcess, InteractiveProcessResult
from pants.engine.rules import Effect, Get, collect_rules, goal_rule
from pants.engine.target import FilteredTargets
from pants.engine.unions import UnionMembership
from pants.option.option_types import ArgsListOption
from pants.util.strutil import help_text

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.goals.selection import selected_wheel
from cuda_wheels.rules.shell import FallibleShell, ShellRequest
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import FallibleCudaWheel, check_failure
from cuda_wheels.rules.wheel_environment import WheelEnvironment, WheelEnvironmentRequest


class CudaShellSubsystem(GoalSubsystem):
    name = "cuda-shell"
    help = help_text("""
        Open a shell where a wheel would be compiled, to look at a failing build.

        `./pants cuda-shell packages/torch-scatter:amd64-cu130-torch2.11.0` goes through all stages
        before the compile step, `build_requires` among them, and opens a shell in its place: in
        the patched tree at its fixed path, with the build environment, compilers and variables of
        the build, without network or GPUs. `build-wheel` runs there what the compile step would
        run. What is changed is lost when the shell ends.

        Arguments behind `--` are the shell's: `./pants cuda-shell ADDRESS -- -c "nvcc --version"`.
        Commands may also come from stdin. The exit code is that of the shell.

        Exactly one `cuda_wheel` target is wanted, and its environment must be a local one. If a
        stage before the compile step fails, for instance a patch, no shell is opened.
        """)

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership

    args = ArgsListOption(example='-c "nvcc --version"', tool_name="the shell", passthrough=True)


class CudaShell(Goal):
    subsystem_cls = CudaShellSubsystem
    environment_behavior = Goal.EnvironmentBehavior.USES_ENVIRONMENTS


def _refused(
    console: Console, field_set: CudaWheelFieldSet, failure: StageFailure | None
) -> CudaShell:
    error = FallibleCudaWheel(field_set.address, failure=failure).error
    console.print_stderr(f"{console.sigil_failed()} {error}\nNo shell was opened.")
    return CudaShell(exit_code=1)


@goal_rule
async def cuda_shell(
    console: Console, targets: FilteredTargets, options: CudaShellSubsystem
) -> CudaShell:
    field_set = selected_wheel("cuda-shell", targets)
    place = await Get(WheelEnvironment, WheelEnvironmentRequest(field_set))
    if place.problems:
        return _refused(console, field_set, check_failure(place.problems))
    environment = EnvironmentName(place.name)
    shell = await Get(
        FallibleShell,
        {ShellRequest(field_set, options.args): ShellRequest, environment: EnvironmentName},
    )
    if shell.process is None:
        return _refused(console, field_set, shell.failure)
    process = InteractiveProcess.from_process(shell.process)
    result = await Effect(
        InteractiveProcessResult,
        {process: InteractiveProcess, environment: EnvironmentName},
    )
    return CudaShell(exit_code=result.exit_code)


def rules():
    return collect_rules()
