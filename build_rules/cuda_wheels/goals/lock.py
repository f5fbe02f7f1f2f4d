"""`./pants cuda-lock`: (re)writes the hash-locked build environments of rows."""

from __future__ import annotations

from pants.core.goals.package import PackageFieldSet
from pants.engine.console import Console
from pants.engine.fs import CreateDigest, Digest, DigestContents, FileContent, Workspace
from pants.engine.goal import Goal, GoalSubsystem
from pants.engine.process import FallibleProcessResult, ProcessCacheScope
from pants.engine.rules import Get, MultiGet, collect_rules, goal_rule
from pants.engine.target import FilteredTargets
from pants.engine.unions import UnionMembership
from pants.util.strutil import help_text

from cuda_wheels.field_sets import row_of
from cuda_wheels.goals.selection import selected_wheels
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.stage import program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.rows import Row, row_problems
from cuda_wheels.tables.torch import build_requirements
from cuda_wheels.target_checks import mirror_problems

OUT = "lock.txt"


class CudaLockSubsystem(GoalSubsystem):
    name = "cuda-lock"
    help = help_text("""
        (Re)write the hash-locked build environment of the row of each given `cuda_wheel`.

        `./pants cuda-lock packages/torch-scatter:amd64-cu130-torch2.11.0` writes
        `3rdparty/torch/amd64-cu130-torch2.11.0-cp312.txt`: torch, the CUDA compiler that matches
        it, and the build tools, resolved by uv against `[python-repos].indexes` for the row's
        platform, on any machine. The file holds hashes and no addresses. Look at the change
        before you commit it.

        A torch that is not on the package index, such as `2.9.1+cu126`, is looked for on the
        PyTorch index; `[cuda-wheels].source_mirrors` can name a mirror of that. Of everything else
        the package index's file is locked.
        """)

    @classmethod
    def activated(cls, union_membership: UnionMembership) -> bool:
        return PackageFieldSet in union_membership


class CudaLock(Goal):
    subsystem_cls = CudaLockSubsystem
    environment_behavior = Goal.EnvironmentBehavior.LOCAL_ONLY


def lock_process(row: Row) -> ProgramProcess:
    """The run of the lock program for a row that has no problems."""
    return ProgramProcess.create(
        "lock",
        {
            "requirements": list(build_requirements(row.arch, row.accel, row.torch)),
            "python": row.python,
            "arch": row.arch,
            "out": OUT,
        },
        description=f"Lock the build environment {row.variant}",
        locks=("bootstrap_lock",),
        output_files=(OUT,),
        # An index changes: a lock is made anew each time it is asked for.
        cache_scope=ProcessCacheScope.PER_SESSION,
    )


@goal_rule
async def cuda_lock(
    console: Console,
    workspace: Workspace,
    targets: FilteredTargets,
    options: CudaWheelsSubsystem,
) -> CudaLock:
    rows = [row_of(field_set) for field_set in selected_wheels("cuda-lock", targets)]
    wrong_mirrors = mirror_problems(options.source_mirrors)
    if wrong_mirrors:
        for problem in wrong_mirrors:
            console.print_stderr(f"{console.sigil_failed()} {problem}")
        return CudaLock(exit_code=1)
    # The host's probe also hands this session's index settings to the programs.
    await Get(Host)
    by_path = {row.lock_path: row for row in rows}
    problems = {path: row_problems(row) for path, row in by_path.items()}
    good = [path for path in sorted(by_path) if not problems[path]]
    results = await MultiGet(
        Get(FallibleProcessResult, ProgramProcess, lock_process(by_path[path])) for path in good
    )
    failed = {path: "\n".join(found) for path, found in problems.items() if found}
    written = []
    for path, result in zip(good, results):
        failure = program_failure("lock", result)
        if failure:
            failed[path] = failure.message
            continue
        (content,) = await Get(DigestContents, Digest, result.output_digest)
        written.append(FileContent(path, content.content))
    workspace.write_digest(await Get(Digest, CreateDigest(written)))
    for file in written:
        console.print_stdout(f"Wrote {file.path}")
    for path, message in sorted(failed.items()):
        console.print_stderr(f"{console.sigil_failed()} {path} was not written:\n{message}")
    return CudaLock(exit_code=1 if failed else 0)


def rules():
    return collect_rules()
