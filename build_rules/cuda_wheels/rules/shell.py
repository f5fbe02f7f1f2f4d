"""A shell that stands in for a wheel's compile step: the process that opens it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pants.core.util_rules.environments import EnvironmentTarget, LocalEnvironmentTarget
from pants.engine.env_vars import EnvironmentVars, EnvironmentVarsRequest
from pants.engine.process import Process
from pants.engine.rules import Get, collect_rules, rule
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.compile import CompileInputs, CompileRequest
from cuda_wheels.rules.programs import PROGRAM_ENV, ProgramProcess
from cuda_wheels.rules.spec import CudaWheelRequest
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import CheckedBuild, FallibleCheckedBuild, FallibleCompileRequest

# How programs know what the user's terminal can do.
TERMINAL_VARIABLES = ("TERM", "COLORTERM")


@dataclass(frozen=True)
class ShellRequest:
    """One `cuda_wheel` target whose build is to be looked at, and the shell's own arguments."""

    field_set: CudaWheelFieldSet
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class FallibleShell:
    """The process that opens the shell, or why the build does not come as far as its compile step.

    It has the input files of the compile step's process.
    """

    process: Process | None = None
    failure: StageFailure | None = None


def unsupported_environment(place: EnvironmentTarget) -> str | None:
    """Why no shell can be opened in this environment; None if it can."""
    if place.val is None or isinstance(place.val, LocalEnvironmentTarget):
        return None
    return (
        f"The target's environment `{place.name}` is a `{place.val.alias}`. A shell is opened in "
        "local environments alone so far: what Pants runs interactively, it runs on this machine. "
        f"Have `[environments-preview.names]` map `{place.name}` to a `local_environment`, as "
        "pants.toml does where `PANTS_CONFIG_FILES` names no other file."
    )


@rule(desc="Prepare a shell", level=LogLevel.DEBUG)
async def prepare_shell(request: ShellRequest, place: EnvironmentTarget) -> FallibleShell:
    problem = unsupported_environment(place)
    if problem:
        return FallibleShell(failure=StageFailure("check", f"* {problem}"))
    checked = await Get(FallibleCheckedBuild, CudaWheelRequest(request.field_set))
    if checked.build is None:
        return FallibleShell(failure=checked.failure)
    prepared = await Get(FallibleCompileRequest, CheckedBuild, checked.build)
    if prepared.request is None:
        return FallibleShell(failure=prepared.failure)
    inputs = await Get(CompileInputs, CompileRequest, prepared.request)
    terminal = await Get(EnvironmentVars, EnvironmentVarsRequest(TERMINAL_VARIABLES))
    process = await Get(
        Process,
        ProgramProcess,
        ProgramProcess.create(
            "shell",
            {**json.loads(inputs.request), "shell_arguments": request.arguments},
            description=f"Open a shell for {request.field_set.address}",
            locks=("bootstrap_lock",),
            input_digest=inputs.files,
            env=tuple({**terminal, **PROGRAM_ENV}.items()),
        ),
    )
    return FallibleShell(process)


def rules():
    return collect_rules()
