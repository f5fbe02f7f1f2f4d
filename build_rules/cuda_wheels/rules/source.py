"""A pinned source, fetched and verified, and the patched tree that one row is built from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Mapping

from pants.engine.addresses import Address
from pants.engine.fs import (
    EMPTY_DIGEST,
    AddPrefix,
    Digest,
    DigestContents,
    DigestSubset,
    MergeDigests,
    PathGlobs,
    RemovePrefix,
)
from pants.engine.process import FallibleProcessResult
from pants.engine.rules import Get, MultiGet, collect_rules, rule
from pants.engine.target import (
    AllTargets,
    HydratedSources,
    HydrateSourcesRequest,
    WrappedTarget,
    WrappedTargetRequest,
)
from pants.util.logging import LogLevel

from cuda_wheels.rules.addresses import NamedTargets, NamedTargetsRequest
from cuda_wheels.rules.programs import ProgramProcess
from cuda_wheels.rules.stage import Tree, program_failure
from cuda_wheels.sources import ArchiveSource, FilesSource, GitSource, Source, WheelSource
from cuda_wheels.tables.accelerators import cuda_version
from cuda_wheels.tables.patches import PatchHeader, parse_header, selects
from cuda_wheels.target_types import (
    AccelField,
    DeclarationProblemsField,
    SourceFilesField,
    SourceOriginField,
    TorchField,
    WheelSourceField,
)

TREE = "source"
PATCHED = "patched"


@dataclass(frozen=True)
class Patch:
    """One file of `patches/`, with what its header says."""

    path: str
    header: PatchHeader

    @property
    def name(self) -> str:
        """The file's name, by which patches are ordered and reported."""
        return os.path.basename(self.path)


@dataclass(frozen=True)
class PackageSource:
    """A `cuda_source` target: where its tree comes from and the files of ours that belong to it.

    `problems` is every fault of the target; with any, the rest is not to be used.
    """

    address: Address
    origin: Source
    files: Digest = EMPTY_DIGEST
    patches: tuple[Patch, ...] = ()
    overlay: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackageSourceRequest:
    """The address that a `source` field names, whatever target that is."""

    address: Address


def _relative(address: Address, path: str) -> str:
    return os.path.relpath(path, address.spec_path or ".")


def literal_glob(path: str) -> str:
    """A glob that matches the one file `path`, whose name may hold the letters of a pattern."""
    return re.sub(r"[*?\[\]]", r"[\g<0>]", path)


def missing_files(address: Address, globs: tuple[str, ...], files: tuple[str, ...]) -> list[str]:
    """A sentence for each file that `sources` names without a wildcard and that is not there."""
    present = {_relative(address, path) for path in files}
    return [
        f"{address}: `sources` names {glob!r}, which does not exist. Add the file or take the "
        "name out."
        for glob in globs
        if not set(glob) & set("*?[!") and glob not in present
    ]


def read_patches(contents: Mapping[str, bytes]) -> tuple[tuple[Patch, ...], tuple[str, ...]]:
    """The patches in the order of their names, and what is wrong with their headers."""
    patches, problems = [], []
    for path, content in sorted(contents.items()):
        try:
            patches.append(
                Patch(
                    path,
                    parse_header(os.path.basename(path), content.decode("utf-8-sig", "replace")),
                )
            )
        except ValueError as error:
            problems.append(str(error))
    return tuple(patches), tuple(problems)


@rule(desc="Read a CUDA source target", level=LogLevel.DEBUG)
async def read_package_source(request: PackageSourceRequest) -> PackageSource:
    wrapped = await Get(
        WrappedTarget, WrappedTargetRequest(request.address, description_of_origin="`source`")
    )
    target, address = wrapped.target, request.address
    if not target.has_field(SourceOriginField):
        problem = f"{address} is a `{target.alias}`; `source` needs the address of a `cuda_source`."
        return PackageSource(address, FilesSource("."), problems=(problem,))
    origin = target[SourceOriginField].value
    sources = target[SourceFilesField]
    hydrated = await Get(HydratedSources, HydrateSourcesRequest(sources))
    files = hydrated.snapshot.files
    patch_paths = [path for path in files if _relative(address, path).startswith("patches/")]
    contents = await Get(
        DigestContents,
        DigestSubset(hydrated.snapshot.digest, PathGlobs(map(literal_glob, patch_paths))),
    )
    patches, header_problems = read_patches({file.path: file.content for file in contents})
    return PackageSource(
        address,
        origin,
        hydrated.snapshot.digest,
        patches,
        tuple(path for path in files if _relative(address, path).startswith("overlay/")),
        (
            *(f"{address}: {text}" for text in target[DeclarationProblemsField].value or ()),
            *origin.problems(),
            *missing_files(address, sources.value or (), files),
            *header_problems,
            *root_problems(address, origin, files),
        ),
    )


def root_problems(address: Address, origin: Source, files: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence if no file of the target lies below the root of its `files_source`."""
    # Without a root that is text `origin.problems` says all there is to say.
    if not isinstance(origin, FilesSource) or origin.problems():
        return ()
    root = _root(address, origin)
    if any(path.startswith(f"{root}/") for path in files):
        return ()
    return (
        f"{address}: no file of `sources` lies below {origin.root!r}, the root of "
        f'`files_source`. Add "{origin.root}/**/*" to `sources`.',
    )


def _root(address: Address, origin: FilesSource) -> str:
    return os.path.normpath(os.path.join(address.spec_path, origin.root))


# --------------------------------------------------------------------------------------------
# Which wheels a patch is for
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectedPatchesRequest:
    """The patches of `source` for a wheel of `accel` and `torch`."""

    source: PackageSource
    accel: str
    torch: str | None


@dataclass(frozen=True)
class SelectedPatches:
    """The patches of one row in their order, and those of the source that no wheel selects."""

    patches: tuple[Patch, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class WheelsOfSource:
    """(accel, torch) of every `cuda_wheel` that is built from one source."""

    rows: tuple[tuple[str, str | None], ...]


@rule(desc="Find the wheels of a CUDA source", level=LogLevel.DEBUG)
async def wheels_of_source(request: PackageSourceRequest, targets: AllTargets) -> WheelsOfSource:
    wheels = [target for target in targets if target.has_field(WheelSourceField)]
    sources = await MultiGet(
        Get(NamedTargets, NamedTargetsRequest, NamedTargetsRequest.of(wheel[WheelSourceField]))
        for wheel in wheels
    )
    return WheelsOfSource(
        tuple(
            (wheel[AccelField].value, wheel[TorchField].value)
            for wheel, found in zip(wheels, sources)
            if any(target.address == request.address for target in found.targets)
        )
    )


@rule
async def select_patches(request: SelectedPatchesRequest) -> SelectedPatches:
    source = request.source
    if not source.patches:
        return SelectedPatches((), ())
    wheels = await Get(WheelsOfSource, PackageSourceRequest(source.address))
    return SelectedPatches(
        tuple(
            patch
            for patch in source.patches
            if _selects(patch.header, request.accel, request.torch)
        ),
        tuple(
            f"{source.address}: no wheel of this source selects {patch.path} "
            f"({patch.header.ranges}). Remove the patch or correct its header; the wheels are for "
            f"{', '.join(sorted({_row_text(row) for row in wheels.rows}))}."
            for patch in source.patches
            if not any(_selects(patch.header, *row) for row in wheels.rows)
        ),
    )


def _selects(header: PatchHeader, accel: str, torch: str | None) -> bool:
    return selects(header, cuda_version(accel), torch)


def _row_text(row: tuple[str, str | None]) -> str:
    accel, torch = row
    return f"{accel} torch {torch}" if torch else accel


# --------------------------------------------------------------------------------------------
# The trees
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FetchRequest:
    """The tree of a source, without patches."""

    source: PackageSource


def fetch_document(origin: Source) -> dict[str, str]:
    """The JSON file of the program that fetches a source which is not in this repository.

    It says what is fetched and not from where: the program reads the mirrors of an address, like
    the addresses of indexes, from the session's settings.
    """
    assert not isinstance(origin, FilesSource)
    if isinstance(origin, GitSource):
        return {
            "url": origin.url,
            "commit": origin.commit,
            "subdirectory": origin.subdirectory,
            "out": TREE,
        }
    if isinstance(origin, ArchiveSource):
        return {"kind": "archive", "url": origin.url, "sha256": origin.sha256, "out": TREE}
    return {
        "kind": "wheel" if isinstance(origin, WheelSource) else "sdist",
        "name": origin.name,
        "version": origin.version,
        "sha256": origin.sha256,
        "out": TREE,
    }


def _fetch_program(origin: Source) -> ProgramProcess:
    document = fetch_document(origin)
    description = f"Fetch {origin.title}"
    if isinstance(origin, GitSource):
        return ProgramProcess.create(
            "git", document, description=description, locks=(), output_directories=(TREE,)
        )
    return ProgramProcess.create(
        "fetch", document, description=description, output_directories=(TREE,)
    )


@rule(desc="Fetch a source", level=LogLevel.DEBUG)
async def fetch_source(request: FetchRequest) -> Tree:
    source = request.source
    if isinstance(source.origin, FilesSource):
        root = _root(source.address, source.origin)
        files = await Get(
            Digest, DigestSubset(source.files, PathGlobs([f"{literal_glob(root)}/**"]))
        )
        return Tree(await Get(Digest, RemovePrefix(files, root)))
    result = await Get(FallibleProcessResult, ProgramProcess, _fetch_program(source.origin))
    failure = program_failure("fetch", result)
    if failure:
        return Tree(failure=failure)
    return Tree(await Get(Digest, RemovePrefix(result.output_digest, TREE)))


@dataclass(frozen=True)
class PatchedTreeRequest:
    """The tree that one row is built from: the source, the overlay and the selected patches."""

    source: PackageSource
    patches: tuple[Patch, ...]


@rule(desc="Patch a source", level=LogLevel.DEBUG)
async def patch_source(request: PatchedTreeRequest) -> Tree:
    source = request.source
    fetched = await Get(Tree, FetchRequest(source))
    if fetched.failure or not (request.patches or source.overlay):
        return fetched
    tree, files = await MultiGet(
        Get(Digest, AddPrefix(fetched.digest, TREE)),
        Get(
            Digest,
            DigestSubset(
                source.files,
                PathGlobs(
                    [
                        *(literal_glob(patch.path) for patch in request.patches),
                        *map(literal_glob, source.overlay),
                    ]
                ),
            ),
        ),
    )
    result = await Get(
        FallibleProcessResult,
        ProgramProcess,
        ProgramProcess.create(
            "patch",
            {
                "source": TREE,
                "patches": [{"name": p.name, "path": p.path} for p in request.patches],
                "overlay": (
                    os.path.join(source.address.spec_path, "overlay") if source.overlay else None
                ),
                "out": PATCHED,
            },
            description=f"Patch {source.address}",
            locks=(),
            input_digest=await Get(Digest, MergeDigests([tree, files])),
            output_directories=(PATCHED,),
        ),
    )
    failure = program_failure("patch", result)
    if failure:
        return Tree(failure=failure)
    return Tree(await Get(Digest, RemovePrefix(result.output_digest, PATCHED)))


def rules():
    return collect_rules()
