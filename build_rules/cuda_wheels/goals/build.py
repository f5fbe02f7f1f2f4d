"""`./pants cuda-build`: builds wheels and keeps going where one fails."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace

from pants.core.goals.package import PackageFieldSet
from pants.core.util_rules.distdir import DistDir
from pants.core.util_rules.environments import EnvironmentNameRequest
from pants.engine.console import Console
from pants.engine.environment import EnvironmentName
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

from cuda_wheels.goals.selection import selected_wheelhouses, selected_wheels
from cuda_wheels.rules.stage import StageFailure
from cuda_wheels.rules.wheel import (
    CudaWheelInEnvironmentRequest,
    FallibleCudaWheel,
    WheelFiles,
    compiled_because,
)
from cuda_wheels.rules.wheelhouse import FallibleWheelhouse, WheelhouseRequest

LOGS = "logs"


class CudaBuildSubsystem(GoalSubsystem):
    name = "cuda-build"
    help = help_text("""
        Build CUDA wheels and wheelhouses, and keep going where a wheel fails.

        `package` is all or nothing; this goal writes every wheel that could be built to
        `--distdir`, the log of each compile step to `<distdir>/logs/<address>.log`, a closing
        table, and exits with 1 if any wheel failed. What is finished is cached: the same command
        again builds what is missing.

        A wheel that its package cannot serve (see `cuda_wheel`'s `skipped`) is in the table with
        the reason, and is no failure.

        A `cuda_wheelhouse` among the targets is written with those of its wheels that could be
        built, in its own folder; its manifest names the others as failed, and the goal exits
        with 1.

        An argument list without a `cuda_wheel` or `cuda_wheelhouse` target is an error.
        """)

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership


class CudaBuild(Goal):
    subsystem_cls = CudaBuildSubsystem
    environment_behavior = Goal.EnvironmentBehavior.USES_ENVIRONMENTS


def table(
    wheels: tuple[FallibleCudaWheel, ...], houses: tuple[FallibleWheelhouse, ...] = ()
) -> str:
    """One line a wheel: its address, what became of it, and its file name or why it was skipped.

    Below it there is one for each reason why it was compiled where a prebuilt is preferred. At the
    end there is a line for each wheelhouse, with its folder.
    """
    rows = [(wheel.address.spec, state(wheel), wheel.skipped or wheel.name) for wheel in wheels]
    rows += [
        (house.address.spec, house_state(house), "" if house.failure else house.path)
        for house in houses
    ]
    notes = [*(wheel.notes for wheel in wheels), *(() for _ in houses)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = []
    for reasons, (address, became, name) in zip(notes, rows):
        lines.append(f"{address:<{widths[0]}}  {became:<{widths[1]}}  {name}".rstrip())
        lines += [f"    {compiled_because(reason)}" for reason in reasons]
    return "\n".join(lines)


def house_state(house: FallibleWheelhouse) -> str:
    """What became of a wheelhouse, in a word or two."""
    if house.failure:
        return f"failed ({house.failure.stage})"
    return f"incomplete ({len(house.failed)} failed)" if house.failed else "built"


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


def refuse_shared_folders(
    houses: tuple[FallibleWheelhouse, ...],
) -> tuple[FallibleWheelhouse, ...]:
    """The same wheelhouses, but failed where several would be written to one folder."""
    by_path: defaultdict[str, list[FallibleWheelhouse]] = defaultdict(list)
    for house in houses:
        if not house.failure:
            by_path[house.path].append(house)

    def checked(house: FallibleWheelhouse) -> FallibleWheelhouse:
        others = [one for one in by_path[house.path] if one.address != house.address]
        if house.failure or not others:
            return house
        message = (
            f"{house.path} would be written for {', '.join(str(one.address) for one in others)} "
            "too. None was written. Give the targets different `output_path`s."
        )
        return replace(house, failure=StageFailure("write", message))

    return tuple(checked(house) for house in houses)


@goal_rule
async def cuda_build(
    console: Console, workspace: Workspace, dist_dir: DistDir, targets: FilteredTargets
) -> CudaBuild:
    house_targets = selected_wheelhouses(targets)
    wheels = refuse_clashes(
        await MultiGet(
            Get(FallibleCudaWheel, CudaWheelInEnvironmentRequest(field_set))
            for field_set in selected_wheels("cuda-build", targets, or_wheelhouses=house_targets)
        )
    )
    names = await MultiGet(
        Get(EnvironmentName, EnvironmentNameRequest, EnvironmentNameRequest.from_field_set(one))
        for one in house_targets
    )
    houses = refuse_shared_folders(
        await MultiGet(
            Get(
                FallibleWheelhouse,
                {WheelhouseRequest(one): WheelhouseRequest, name: EnvironmentName},
            )
            for one, name in zip(house_targets, names)
        )
    )
    complete = [house for house in houses if not house.failure]
    built = [wheel for wheel in wheels if not wheel.failure]
    files = await MultiGet(
        [
            *(Get(Digest, WheelFiles(wheel)) for wheel in built),
            *(Get(Digest, AddPrefix(house.files, house.path)) for house in complete),
        ]
    )
    # A wheel that was asked for by itself counts as such: it may have failed for its file name.
    every = tuple(
        {
            wheel.address: wheel
            for wheel in (*(one for house in houses for one in house.wheels), *wheels)
        }.values()
    )
    logged = [wheel for wheel in every if wheel.log != EMPTY_DIGEST]
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
        # A wheelhouse is replaced: a wheel of an earlier one would be in no manifest.
        clear_paths=[house.path for house in complete],
    )
    for wheel in every:
        if wheel.error and not wheel.skipped:
            console.print_stderr(f"{console.sigil_failed()} {wheel.error}\n")
    for house in houses:
        if house.error:
            console.print_stderr(f"{console.sigil_failed()} {house.error}\n")
    console.print_stdout(table(every, houses))
    if every and all(wheel.skipped for wheel in every):
        console.print_stdout("Nothing was built: every wheel of the selection is skipped.")
    failed = any(wheel.failure and not wheel.skipped for wheel in every) or any(
        house.failure for house in houses
    )
    return CudaBuild(exit_code=1 if failed else 0)


def rules():
    return collect_rules()
