"""A `cuda_wheelhouse` target's way: all wheels of a row, proven as a set, in one folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Iterable

from pants.core.goals.package import BuiltPackage, BuiltPackageArtifact, PackageFieldSet
from pants.engine.addresses import Address
from pants.engine.engine_aware import EngineAwareParameter
from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    Digest,
    DigestContents,
    DigestEntries,
    FileEntry,
    GlobMatchErrorBehavior,
    MergeDigests,
    PathGlobs,
    RemovePrefix,
)
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.unions import UnionRule
from pants.util.logging import LogLevel

from cuda_wheels.field_sets import CudaWheelFieldSet, row_of
from cuda_wheels.rules.addresses import NamedTargets, NamedTargetsRequest
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.spec import CheckedSpec, CudaWheelRequest
from cuda_wheels.rules.stage import StageFailure, program_failure
from cuda_wheels.rules.toolchain import Host
from cuda_wheels.rules.wheel import CudaWheelInEnvironmentRequest, FallibleCudaWheel
from cuda_wheels.subsystem import CudaWheelsSubsystem
from cuda_wheels.tables.names import pins_of
from cuda_wheels.tables.rows import Row, row_problems
from cuda_wheels.target_types import (
    AccelField,
    AllowNarrowedField,
    ArchField,
    PythonField,
    WheelhouseCudaArchField,
    WheelhouseOutputPathField,
    WheelhouseRequirementsField,
    WheelhouseTorchField,
    WheelhouseWheelsField,
)
from cuda_wheels.wheel_facts import WheelFacts
from cuda_wheels.wheelhouse_checks import (
    requirements_problems,
    row_mismatches,
    set_problems,
    twins,
)
from cuda_wheels.wheelhouse_manifest import HouseWheel, folder, manifest_document, tags_document

STAGE = "wheelhouse"
OUT = "wheelhouse"


class WheelhouseError(Exception):
    """A wheelhouse could not be made; the message has everything that is wrong with its wheels."""


@dataclass(frozen=True)
class CudaWheelhouseFieldSet(PackageFieldSet):
    """The fields of a `cuda_wheelhouse` target."""

    required_fields = (WheelhouseWheelsField, AllowNarrowedField)

    wheels: WheelhouseWheelsField
    requirements: WheelhouseRequirementsField
    arch: ArchField
    accel: AccelField
    torch: WheelhouseTorchField
    python: PythonField
    cuda_arch: WheelhouseCudaArchField
    allow_narrowed: AllowNarrowedField
    output_path: WheelhouseOutputPathField

    @property
    def row(self) -> Row:
        """The row that the fields name."""
        return Row(
            arch=self.arch.value,
            accel=self.accel.value,
            torch=self.torch.value,
            python=self.python.value,
            cuda_arch=tuple(self.cuda_arch.value or ()),
        )

    @property
    def path(self) -> str:
        """The folder below `--distdir`."""
        return self.output_path.value or folder(self.row)


@dataclass(frozen=True)
class WheelhouseRequest(EngineAwareParameter):
    """One `cuda_wheelhouse` target, to be checked or made."""

    field_set: CudaWheelhouseFieldSet

    def debug_hint(self) -> str:
        """What Pants adds to the name of a rule that runs for this request."""
        return self.field_set.address.spec


@dataclass(frozen=True)
class CheckedWheelhouse:
    """The wheels of a wheelhouse, and everything that is wrong with it before one is built.

    `requirements` is the text of its lock, `requirements_files` the file.
    """

    wheels: tuple[CudaWheelFieldSet, ...]
    requirements: str
    requirements_files: Digest
    problems: tuple[str, ...]


@dataclass(frozen=True)
class FallibleWheelhouse:
    """The files of a wheelhouse, those of its folder at the top; or why there is none.

    With files and `failed` wheels it is incomplete, and its manifest says so.
    """

    address: Address
    path: str
    wheels: tuple[FallibleCudaWheel, ...] = ()
    files: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None

    @property
    def failed(self) -> tuple[FallibleCudaWheel, ...]:
        """The wheels that should be in it and could not be built."""
        return tuple(wheel for wheel in self.wheels if wheel.failure and not wheel.skipped)

    @property
    def error(self) -> str | None:
        """What is wrong with the wheelhouse itself, as users read it."""
        if self.failure is None:
            return None
        return f"{self.address} failed at the stage `{self.failure.stage}`:\n" + "\n".join(
            f"  {line}" for line in self.failure.message.splitlines()
        )


@dataclass(frozen=True)
class FinishedWheels:
    """The wheels of a checked wheelhouse, each built, skipped or failed."""

    field_set: CudaWheelhouseFieldSet
    checked: CheckedWheelhouse
    wheels: tuple[FallibleCudaWheel, ...]


def path_problems(path: str) -> tuple[str, ...]:
    """A sentence if the folder would be all of `--distdir`, or outside of it."""
    if os.path.normpath(path) == path and path not in (".", "") and not path.startswith(("/", ".")):
        return ()
    return (
        f"`output_path` is {path!r}. What is in that folder is replaced: name one of its own, below "
        "`--distdir`.",
    )


def narrowed_problems(
    narrowed: Iterable[tuple[Address, tuple[str, ...], tuple[str, ...]]],
) -> tuple[str, ...]:
    """A sentence for all wheels that are compiled for less than they promise.

    `narrowed` has each with what it promises and what is compiled.
    """
    found = tuple(narrowed)
    if not found:
        return ()
    # Nearly always all of them alike.
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for address, promised, made in found:
        alike.setdefault((made, promised), []).append(str(address))
    named = "; ".join(
        f"{', '.join(addresses)} ({' '.join(made)} of {' '.join(promised)})"
        for (made, promised), addresses in alike.items()
    )
    return (
        f"`[cuda-wheels].gpu_archs` narrows {named}, and a consumer takes a wheelhouse for all that "
        "its row promises. Leave the option out, or say that it is meant: `allow_narrowed=True` in "
        "the target, or `--cuda-wheels-allow-narrowed`.",
    )


@rule(desc="Check a wheelhouse target", level=LogLevel.DEBUG)
async def check_wheelhouse(
    request: WheelhouseRequest, options: CudaWheelsSubsystem
) -> CheckedWheelhouse:
    fields = request.field_set
    row = fields.row
    named = await Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(fields.wheels))
    wheels = tuple(
        CudaWheelFieldSet.create(target)
        for target in dict.fromkeys(named.targets)
        if CudaWheelFieldSet.is_applicable(target)
    )
    others = [one for one in named.targets if not CudaWheelFieldSet.is_applicable(one)]
    specs = await MultiGet(Get(CheckedSpec, CudaWheelRequest(one)) for one in wheels)
    narrowed = [
        (one.spec.address, one.spec.row.cuda_arch, one.spec.gpu_archs)
        for one in specs
        if not one.skipped and one.spec.gpu_archs != one.spec.row.cuda_arch
    ]
    path = fields.requirements.value
    requirements, found = "", EMPTY_DIGEST
    problems: tuple[str, ...] = ()
    if path:
        found = await Get(
            Digest,
            PathGlobs([path], glob_match_error_behavior=GlobMatchErrorBehavior.ignore),
        )
        contents = await Get(DigestContents, Digest, found)
        if [file.path for file in contents] == [path]:
            requirements = contents[0].content.decode(errors="replace")
            problems = requirements_problems(path, requirements)
        else:
            problems = (
                f"`requirements` names {path!r}, which is no file of this repository. Name it by "
                "its path from the top.",
            )
    return CheckedWheelhouse(
        wheels,
        requirements,
        found,
        (
            *row_problems(row),
            *path_problems(fields.path),
            *named.problems,
            *(
                f"`wheels` names {other.address}, a `{other.alias}`. Name a `cuda_wheel`."
                for other in others
            ),
            *(() if named.targets or named.problems else ("`wheels` is empty. Name some.",)),
            *twins({one.address.spec: one.package.value for one in wheels}),
            *(
                problem
                for one in wheels
                for problem in row_mismatches(one.address.spec, row_of(one), row)
            ),
            *(
                ()
                if fields.allow_narrowed.value or options.allow_narrowed
                else narrowed_problems(narrowed)
            ),
            *problems,
        ),
    )


@rule(desc="Make a wheelhouse", level=LogLevel.DEBUG)
async def build_wheelhouse(request: WheelhouseRequest) -> FallibleWheelhouse:
    fields = request.field_set
    checked = await Get(CheckedWheelhouse, WheelhouseRequest, request)
    if checked.problems:
        message = "\n".join(f"* {problem}" for problem in checked.problems)
        return FallibleWheelhouse(
            fields.address, fields.path, failure=StageFailure("check", message)
        )
    wheels = await MultiGet(
        Get(FallibleCudaWheel, CudaWheelInEnvironmentRequest(one)) for one in checked.wheels
    )
    return await Get(FallibleWheelhouse, FinishedWheels(fields, checked, wheels))


def _house_wheel(fields: CudaWheelFieldSet, facts: bytes) -> HouseWheel:
    document = json.loads(facts)
    row = row_of(fields)
    measured = WheelFacts.from_json(document.pop("wheel"))
    return HouseWheel(
        address=fields.address.spec,
        package=fields.package.value,
        version=fields.version.value,
        row=row,
        native=fields.native.value and row.accel != "cpu",
        build_requires=tuple(document.get("build_requires", ())),
        facts=measured,
        document=document,
    )


@rule
async def assemble_wheelhouse(request: FinishedWheels) -> FallibleWheelhouse:
    fields, row = request.field_set, request.field_set.row
    house = FallibleWheelhouse(fields.address, fields.path, request.wheels)
    pairs = tuple(zip(request.checked.wheels, request.wheels))
    built = [(target, wheel) for target, wheel in pairs if not wheel.failure]
    documents = await MultiGet(Get(DigestContents, Digest, wheel.facts) for _, wheel in built)
    entries = await MultiGet(Get(DigestEntries, Digest, wheel.wheel) for _, wheel in built)
    members = [
        _house_wheel(target, content[0].content) for (target, _), content in zip(built, documents)
    ]
    problems = (
        *(() if members else ("None of its wheels was built, so there is nothing to put in it.",)),
        *set_problems(row, members, pins_of(request.checked.requirements)),
        *(
            f"{member.address}: the facts of {member.facts.filename} were taken from other bytes. "
            "Build it again."
            for member, files in zip(members, entries)
            if [_content(file) for file in files]
            != [(member.facts.filename, member.facts.sha256, member.facts.size)]
        ),
    )
    if problems:
        message = "\n".join(f"* {problem}" for problem in problems)
        return _with_failure(house, StageFailure(STAGE, message))
    manifest = manifest_document(
        row,
        members,
        [(target.package.value, wheel.skipped) for target, wheel in pairs if wheel.skipped],
        [
            (target.package.value, wheel.failure.stage, wheel.failure.message)
            for target, wheel in pairs
            if wheel.failure and not wheel.skipped
        ],
    )
    # The host's probe hands this session's indexes to the program, which may have to make its tools.
    await Get(Host)
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "wheelhouse",
            {
                "name": folder(row),
                "manifest": manifest,
                "tags": tags_document(row, members),
                "requirements": fields.requirements.value,
                "requires": {one.facts.filename: list(one.facts.requires_dist) for one in members},
                "out": OUT,
            },
            description=f"Describe {fields.address}",
            locks=("bootstrap_lock", "wheelhouse_lock"),
            input_digest=request.checked.requirements_files,
            output_directories=(OUT,),
        ),
    )
    failure = program_failure(STAGE, result)
    if failure:
        return _with_failure(house, failure)
    written = await Get(Digest, RemovePrefix(result.output_digest, OUT))
    files = await Get(Digest, MergeDigests([written, *(wheel.wheel for _, wheel in built)]))
    return FallibleWheelhouse(house.address, house.path, house.wheels, files)


def _with_failure(house: FallibleWheelhouse, failure: StageFailure) -> FallibleWheelhouse:
    return FallibleWheelhouse(house.address, house.path, house.wheels, failure=failure)


def _content(entry: object) -> tuple[str, str, int] | None:
    if not isinstance(entry, FileEntry):
        return None
    digest = entry.file_digest
    return entry.path, digest.fingerprint, digest.serialized_bytes_length


@rule(desc="Package a wheelhouse", level=LogLevel.DEBUG)
async def package_wheelhouse(field_set: CudaWheelhouseFieldSet) -> BuiltPackage:
    house = await Get(FallibleWheelhouse, WheelhouseRequest(field_set))
    errors = [error for error in (house.error, *(one.error for one in house.failed)) if error]
    if errors:
        if house.failed:
            errors.append(
                f"A wheelhouse is packaged whole or not at all. `./pants cuda-build "
                f"{field_set.address}` writes the wheels that there are."
            )
        raise WheelhouseError("\n\n".join(errors))
    return BuiltPackage(
        await Get(Digest, AddPrefix(house.files, house.path)),
        (
            BuiltPackageArtifact(
                house.path,
                extra_log_lines=tuple(
                    f"without {one.error}" for one in house.wheels if one.skipped
                ),
            ),
        ),
    )


def rules():
    return [*collect_rules(), UnionRule(PackageFieldSet, CudaWheelhouseFieldSet)]
