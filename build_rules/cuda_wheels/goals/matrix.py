"""`./pants cuda-matrix`: what becomes of every wheel, and why, before anything is built."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum

from pants.base.specs import RawSpecs, RecursiveGlobSpec, Specs
from pants.core.goals.package import PackageFieldSet
from pants.engine.console import Console
from pants.engine.fs import GlobMatchErrorBehavior
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule, rule
from pants.engine.target import AllTargets, FilteredTargets, Targets
from pants.engine.unions import UnionMembership
from pants.option.option_types import BoolOption, EnumOption, StrListOption
from pants.util.strutil import help_text, softwrap

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.goals.selection import NoWheelsSelectedError, selected_wheels
from cuda_wheels.matrix_views import (
    GITHUB_LIMIT,
    MatrixSelectionError,
    MatrixWheel,
    format_table,
    select,
    to_github,
    to_json,
    words,
)
from cuda_wheels.rules.spec import CudaWheelRequest
from cuda_wheels.rules.status import WheelStatus
from cuda_wheels.rules.toolchain import ProbeResult
from cuda_wheels.tables.this_host import Machine, choose_accel, covers

# Where the recipes are: what is shown without an argument.
PACKAGES = "packages"


class MatrixFormat(Enum):
    """How the matrix is printed."""

    TABLE = "table"
    JSON = "json"
    GITHUB = "github"


class GithubEntries(Enum):
    """What one entry of a CI matrix builds."""

    ROW = "row"
    WHEEL = "wheel"


class CudaMatrixSubsystem(GoalSubsystem):
    name = "cuda-matrix"
    help = help_text("""
        Show what becomes of every wheel before anything is built, and why.

        A line of the table is a row of the matrix, a column a package. A wheel is

          * `buildable` (`+`): `package` and `cuda-build` can build it, on a host of its `arch`
          * `skipped` (`s`): its package cannot serve the row
          * `pending` (`p`): its row has no locked build environment yet; the reason has the command
          * `refused` (`x`): something is wrong with its target; the reasons are all of it

        and `.` is a package without a target for the row. Equal reasons stand once, below.

        Without a target all wheels below `packages/` are shown, or all of the repository if there
        are none. It fetches and compiles nothing, and the exit code is 0 whatever becomes of a
        wheel; 1 means that the selection is empty, names what is not there, or that `--this-host`
        finds no row. `docs/matrix.md` describes the formats.
        """)

    format = EnumOption(
        default=MatrixFormat.TABLE,
        help=softwrap("""
            `table` for people; `json` with everything; `github` for the `matrix` of a GitHub
            workflow: an `include` list of what is buildable, the longest first.
            """),
    )
    github_entries = EnumOption(
        default=GithubEntries.ROW,
        help=softwrap("""
            With `--cuda-matrix-format=github`: one entry for each `row`, which builds all of its
            wheels, or for each `wheel`.
            """),
    )
    package = StrListOption(
        help=softwrap("""
            Only these packages, for instance `--package=cumm,spconv`. A name that no wheel of the
            selection has is an error, here and in the other two filters.
            """),
    )
    arch = StrListOption(help=softwrap("Only these architectures: `amd64`, `arm64`."))
    accel = StrListOption(
        help=softwrap("Only these accelerators, for instance `--accel=cu128,cu130`.")
    )
    this_host = BoolOption(
        default=False,
        help=softwrap("""
            Only the rows for this machine: of its architecture, for the newest accelerator that
            its NVIDIA driver runs and whose `cuda_arch` names its GPUs. The GPUs and the driver
            are those that nvidia-smi shows. What is missing to tell is an error: nothing is
            chosen in its place.
            """),
    )

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership


class CudaMatrix(Goal):
    subsystem_cls = CudaMatrixSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


class MatrixTargets(Targets):
    """The targets that the matrix is asked for, wheels and others."""


@rule
async def matrix_targets(specs: Specs) -> MatrixTargets:
    if specs:
        return MatrixTargets(await Get(FilteredTargets, Specs, specs))
    below_packages = RawSpecs(
        recursive_globs=(RecursiveGlobSpec(PACKAGES),),
        unmatched_glob_behavior=GlobMatchErrorBehavior.ignore,
        description_of_origin="`cuda-matrix` without a target",
    )
    targets = await Get(Targets, RawSpecs, below_packages)
    if any(CudaWheelFieldSet.is_applicable(target) for target in targets):
        return MatrixTargets(targets)
    return MatrixTargets(await Get(AllTargets))


def matrix_wheel(field_set: CudaWheelFieldSet, found: WheelStatus) -> MatrixWheel:
    """A wheel's fields and status as the views take them."""
    spec = found.spec
    return MatrixWheel(
        address=str(spec.address),
        name=spec.address.target_name,
        package=spec.distribution,
        version=spec.version,
        row=spec.row,
        environment=field_set.environment.value,
        status=found.status.value,
        reasons=found.reasons,
        timeout=spec.timeout,
        memory_per_job_gb=spec.memory_per_job_gb,
        native=spec.native,
        cubins=spec.applied.cubins,
        ptx=spec.applied.ptx,
        build_requires=tuple(map(str, spec.build_requires)),
    )


def for_host(
    machine: Machine, wheels: tuple[MatrixWheel, ...]
) -> tuple[str, tuple[MatrixWheel, ...]]:
    """The accelerator for a machine, and the wheels of its rows.

    Raises MatrixSelectionError with all that is missing to tell one.
    """
    choice = choose_accel(machine, (wheel.row for wheel in wheels))
    if choice.accel is None:
        problems = "\n".join(f"* {problem}" for problem in choice.problems)
        raise MatrixSelectionError(f"`--this-host` finds no row:\n{problems}")
    return choice.accel, tuple(
        wheel
        for wheel in wheels
        if (wheel.row.arch, wheel.row.accel) == (machine.arch, choice.accel)
        and covers(wheel.row, machine.gpus)
    )


def machine_of(found: ProbeResult) -> Machine:
    """What the probe found of the machine that `--this-host` asks about."""
    around = found.surroundings
    return Machine(
        found.host.machine, around.nvidia_smi, around.gpus, around.driver, around.driver_cuda
    )


@goal_rule
async def cuda_matrix(
    console: Console, options: CudaMatrixSubsystem, targets: MatrixTargets
) -> CudaMatrix:
    try:
        field_sets = selected_wheels(options.name, targets)
    except NoWheelsSelectedError as error:
        return _refused(console, str(error))
    found = await MultiGet(
        Get(WheelStatus, CudaWheelRequest(field_set)) for field_set in field_sets
    )
    wheels = tuple(map(matrix_wheel, field_sets, found))
    host = None
    try:
        wheels = select(
            wheels,
            packages=words(options.package),
            archs=words(options.arch),
            accels=words(options.accel),
        )
        if options.this_host:
            machine = machine_of(await Get(ProbeResult))
            accel, wheels = for_host(machine, wheels)
            host = {**asdict(machine), "arch": machine.arch, "accel": accel}
    except MatrixSelectionError as error:
        return _refused(console, str(error))
    if options.format == MatrixFormat.JSON:
        console.print_stdout(json.dumps(to_json(wheels, host), indent=1))
        return CudaMatrix(exit_code=0)
    if options.format == MatrixFormat.GITHUB:
        return _print_github(console, wheels, options.github_entries == GithubEntries.WHEEL)
    if options.this_host:
        console.print_stdout(f"This machine: {machine.description}: {machine.arch}-{accel}\n")
    console.print_stdout(format_table(wheels))
    return CudaMatrix(exit_code=0)


def _print_github(console: Console, wheels: tuple[MatrixWheel, ...], by_wheel: bool) -> CudaMatrix:
    document = to_github(wheels, by_wheel=by_wheel)
    entries = len(document["include"])
    if not entries:
        return _refused(
            console,
            "No wheel of the selection is buildable, and GitHub refuses an empty matrix. The "
            "table (`--cuda-matrix-format=table`) has the reasons.",
        )
    if entries > GITHUB_LIMIT:
        return _refused(
            console,
            f"The matrix has {entries} entries; GitHub takes {GITHUB_LIMIT} at most. Filter it, or "
            "make entries of rows: `--cuda-matrix-github-entries=row`.",
        )
    console.print_stdout(json.dumps(document, separators=(",", ":")))
    return CudaMatrix(exit_code=0)


def _refused(console: Console, message: str) -> CudaMatrix:
    console.print_stderr(f"{console.sigil_failed()} {message}")
    return CudaMatrix(exit_code=1)


def rules():
    return collect_rules()
