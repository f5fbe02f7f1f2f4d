"""`./pants cuda-build`: builds wheels and keeps going where one fails."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace

from pants.core.goals.package import PackageFieldSet
from pants.core.util_rules.distdir import DistDir
from pants.engine.console import Console
from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    CreateDigest,
    Digest,
    DigestContents,
    FileContent,
    MergeDigests,
    Workspace,
)
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.engine.target import FilteredTargets
from pants.engine.unions import UnionMembership
from pants.util.strutil import help_text

from cuda_wheels.goals.selection import selected_wheels
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import (
    CudaWheelInEnvironmentRequest,
    FallibleCudaWheel,
    WheelFiles,
    compiled_because,
)

LOGS = "logs"


class CudaBuildSubsystem(GoalSubsystem):
    name = "cuda-build"
    help = help_text("""
        Build CUDA wheels and keep going where one fails.

        `package` is all or nothing; this goal writes every wheel that could be built to
        `--distdir`, the log of each compile step to `<distdir>/logs/<address>.log`, a closing
        table, and exits with 1 if any wheel failed. What is finished is cached: the same command
        again builds what is missing.

        A wheel that its package cannot serve (see `cuda_wheel`'s `skipped`) is in the table with
        the reason, and is no failure.

        An argument list without a `cuda_wheel` target is an error.
        """)

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership


class CudaBuild(Goal):
    subsystem_cls = CudaBuildSubsystem
    environment_behavior = Goal.EnvironmentBehavior.USES_ENVIRONMENTS


def table(wheels: tuple[FallibleCudaWheel, ...]) -> str:
    """One line a wheel: its address, what became of it, and its file name or why it was skipped.

    Below it there is one for each reason why it was compiled where a prebuilt is preferred.
    """
    rows = [(wheel.address.spec, state(wheel), wheel.skipped or wheel.name) for wheel in wheels]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = []
    for wheel, (address, became, name) in zip(wheels, rows):
        lines.append(f"{address:<{widths[0]}}  {became:<{widths[1]}}  {name}".rstrip())
        lines += [f"    {compiled_because(reason)}" for reason in wheel.notes]
    return "\n".join(lines)


def state(wheel: FallibleCudaWheel) -> str:
    """What became of a wheel, in a word."""
    if wheel.skipped:
        return "skipped"
    if wheel.failure:
        return f"failed ({wheel.failure.stage})"
    return "prebuilt" if wheel.prebuilt else "built"


def refuse_clashes(wheels: tuple[FallibleCudaWheel, ...]) -> tuple[FallibleCudaWheel, ...]:
    """The same wheels, but failed where several differ and would be written to one file.

    None of those is written: which of them the file then held would be left to chance.
    """
    by_file: defaultdict[str, list[FallibleCudaWheel]] = defaultdict(list)
    for wheel in wheels:
        if not wheel.failure:
            by_file[os.path.join(wheel.output_path, wheel.name)].append(wheel)

    def checked(wheel: FallibleCudaWheel) -> FallibleCudaWheel:
        file = os.path.join(wheel.output_path, wheel.name)
        same = by_file[file] if not wheel.failure else []
        if len({(one.wheel, one.facts) for one in same}) <= 1:
            return wheel
        others = ", ".join(str(one.address) for one in same if one.address != wheel.address)
        message = (
            f"{file} would be written for {others} too, with other content. None was written. "
            "Leave `[cuda-wheels].local_version` on, which names the row in the version, or give "
            "the targets different `output_path`s."
        )
        return replace(wheel, failure=StageFailure("write", message))

    return tuple(checked(wheel) for wheel in wheels)


@goal_rule
async def cuda_build(
    console: Console, workspace: Workspace, dist_dir: DistDir, targets: FilteredTargets
) -> CudaBuild:
    wheels = refuse_clashes(
        await MultiGet(
            Get(FallibleCudaWheel, CudaWheelInEnvironmentRequest(field_set))
            for field_set in selected_wheels("cuda-build", targets)
        )
    )
    built = [wheel for wheel in wheels if not wheel.failure]
    files = await MultiGet(Get(Digest, WheelFiles(wheel)) for wheel in built)
    logged = [wheel for wheel in wheels if wheel.log != EMPTY_DIGEST]
    contents = await MultiGet(Get(DigestContents, Digest, wheel.log) for wheel in logged)
    logs = await Get(
        Digest,
        CreateDigest(
            FileContent(f"{wheel.address.path_safe_spec}.log", content[0].content)
            for wheel, content in zip(logged, contents)
            if content
        ),
    )
    workspace.write_digest(
        await Get(Digest, MergeDigests([*files, await Get(Digest, AddPrefix(logs, LOGS))])),
        path_prefix=str(dist_dir.relpath),
    )
    for wheel in wheels:
        if wheel.error and not wheel.skipped:
            console.print_stderr(f"{console.sigil_failed()} {wheel.error}\n")
    console.print_stdout(table(wheels))
    if all(wheel.skipped for wheel in wheels):
        console.print_stdout("Nothing was built: every wheel of the selection is skipped.")
    failed = any(wheel.failure and not wheel.skipped for wheel in wheels)
    return CudaBuild(exit_code=1 if failed else 0)


def rules():
    return collect_rules()
