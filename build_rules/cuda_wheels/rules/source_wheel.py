"""A `source_wheel` target's way from a pinned tree to a wheel of its Python files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping

from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact, PackageFieldSet
from pants.engine.addresses import Address, Addresses, UnparsedAddressInputs
from pants.engine.fs import EMPTY_DIGEST, AddPrefix, Digest, RemovePrefix, Snapshot
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, collect_rules, rule
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.source import PackageSource, PackageSourceRequest, Patch, PatchedTreeRequest
from cuda_wheels.rules.spec import full_version
from cuda_wheels.rules.stage import StageFailure, Tree, program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.sources import GitSource, Source, name_problem, version_problem
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.target_checks import mirror_problems, output_path_problems
from cuda_wheels.target_types import (
    ContentsField,
    MetadataField,
    PackageField,
    SourceWheelSourceField,
    SourceWheelVersionField,
    WheelOutputPathField,
)

OUT = "dist"
TREE = "tree"


class SourceWheelError(Exception):
    """A wheel could not be packed; the message says at which stage, and everything that is wrong."""


@dataclass(frozen=True)
class SourceWheelFieldSet(PackageFieldSet):
    """The fields of a `source_wheel` target."""

    required_fields = (SourceWheelSourceField, ContentsField)

    package: PackageField
    version: SourceWheelVersionField
    source: SourceWheelSourceField
    contents: ContentsField
    metadata_lines: MetadataField
    output_path: WheelOutputPathField


@dataclass(frozen=True)
class SourceWheel:
    """The wheel at the top of `wheel`, or why there is none."""

    address: Address
    name: str = ""
    wheel: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None


def commit_version(version: str, origin: Source) -> str:
    """`version` with a local part that names the commit, where the source is one."""
    return full_version(version, f"g{origin.commit[:7]}" if isinstance(origin, GitSource) else None)


def problems_of(field_set: SourceWheelFieldSet, patches: tuple[Patch, ...] = ()) -> tuple[str, ...]:
    """Everything wrong with the fields of a target, one sentence a fault."""
    contents: Mapping[str, str] = field_set.contents.value or {}
    metadata: Mapping[str, str] = field_set.metadata_lines.value or {}
    problems = [
        *output_path_problems(field_set.output_path),
        name_problem("`package`", field_set.package.value),
        version_problem("`version`", field_set.version.value),
        None if contents else "`contents` is empty. Name the directories that go into the wheel.",
        *(
            f"`contents` names {path!r}, which is no directory below the top of the tree or of the "
            "wheel."
            for pair in sorted(contents.items())
            for path in pair
            if not path or os.path.isabs(path) or os.path.normpath(path) != path or path[0] == "."
        ),
        *(
            f"`metadata` has {name!r}: {value!r}. A line of METADATA is one line, and its name has "
            "no colon."
            for name, value in sorted(metadata.items())
            if not name.strip() or ":" in name or "\n" in name + value
        ),
        *(
            f"{patch.name} is limited to rows ({patch.header.ranges}), but this wheel is for all of "
            "them. Take the line out."
            for patch in patches
            if patch.header.cuda or patch.header.torch
        ),
    ]
    return tuple(problem for problem in problems if problem)


@rule(desc="Pack a wheel of source files", level=LogLevel.DEBUG)
async def build_source_wheel(
    field_set: SourceWheelFieldSet, options: CudaWheelsSubsystem
) -> SourceWheel:
    address = field_set.address
    # Looking at the host hands this session's mirrors and indexes over to what fetches.
    await Get(Host)
    source_address, *_ = await Get(
        Addresses, UnparsedAddressInputs, field_set.source.to_unparsed_address_inputs()
    )
    source = await Get(PackageSource, PackageSourceRequest(source_address))
    problems = (
        *problems_of(field_set, source.patches),
        *mirror_problems(options.source_mirrors),
        *source.problems,
    )
    if problems:
        message = "\n".join(f"* {problem}" for problem in problems)
        return SourceWheel(address, failure=StageFailure("check", message))
    tree = await Get(Tree, PatchedTreeRequest(source, source.patches))
    if tree.failure:
        return SourceWheel(address, failure=tree.failure)
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "source_wheel",
            {
                "name": field_set.package.value,
                "version": commit_version(field_set.version.value, source.origin),
                "source": TREE,
                "contents": dict(field_set.contents.value or {}),
                "metadata": dict(field_set.metadata_lines.value or {}),
                "out": OUT,
            },
            description=f"Pack {address}",
            input_digest=await Get(Digest, AddPrefix(tree.digest, TREE)),
            output_directories=(OUT,),
        ),
    )
    failure = program_failure("pack", result)
    if failure:
        return SourceWheel(address, failure=failure)
    wheel = await Get(Snapshot, Digest, await Get(Digest, RemovePrefix(result.output_digest, OUT)))
    (name,) = wheel.files
    return SourceWheel(address, name, wheel.digest)


@rule(desc="Package a wheel of source files", level=LogLevel.DEBUG)
async def package_source_wheel(field_set: SourceWheelFieldSet) -> BuiltPackage:
    built = await Get(SourceWheel, SourceWheelFieldSet, field_set)
    if built.failure:
        raise SourceWheelError(
            f"{built.address} failed at the stage `{built.failure.stage}`:\n"
            + "\n".join(f"  {line}" for line in built.failure.message.splitlines())
        )
    folder = field_set.output_path.value or ""
    return BuiltPackage(
        await Get(Digest, AddPrefix(built.wheel, folder)),
        (BuiltPackageArtifact(os.path.join(folder, built.name)),),
    )


def rules():
    return [*collect_rules(), UnionRule(PackageFieldSet, SourceWheelFieldSet)]
