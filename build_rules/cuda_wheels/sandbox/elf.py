"""Reads what an ELF file asks of the system it is loaded on.

The third-party reader is imported inside the functions: a program that uses this module starts in
an interpreter without it, and only then changes over to the environment that has it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.glibc import POLICIES, exceeds
from cuda_wheels.wheel_facts import (
    LIBSTDCXX_LINKED_IN,
    LIBSTDCXX_NEEDED,
    LIBSTDCXX_UNLISTED,
    LIBSTDCXX_UNUSED,
    LibraryFacts,
    VersionNeed,
)

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

LIBSTDCXX = "libstdc++.so.6"
# Which symbols ask for a version that the oldest platform has is not kept: nobody needs to know, and
# there are hundreds.
OLDEST_PLATFORM = POLICIES[0]
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)")

# Symbols that only the C++ runtime itself defines; who has one has a copy of it.
_RUNTIME_SYMBOLS = {
    "__gxx_personality_v0",
    "__cxa_begin_catch",
    "_ZNSt8ios_base4InitC1Ev",
    "_ZSt9terminatev",
}
# The type name of the runtime's own type information. It stays where a link hides all symbols.
_RUNTIME_TYPE_NAME = b"N10__cxxabiv117__class_type_infoE\0"
_RUNTIME_PREFIXES = ("_ZSt", "_ZNSt", "_ZNKSt", "__cxa_throw", "__cxa_begin_catch", "__gxx_")

# Absolute paths of source files, as assertions and debug information hold them. That no part of a
# longer name goes before is looked at afterwards: a pattern that begins with a plain letter is
# found fifty times as fast.
_SOURCE_PATH = re.compile(rb"/[\w.+@~=/-]+\.(?:cuh?|cc|cpp|cxx|c|hh?|hpp|hxx|inl|ipp|tcc)(?![\w.])")
_IN_A_NAME = re.compile(rb"[\w.+@~=$/-]")
_DEVICE_CODE = (".nv_fatbin", "__nv_relfatbin")
# Directories that compilers and system headers lie in, the same wherever they are installed.
_SYSTEM_DIRECTORIES = ("/usr/", "/opt/rh/", "/opt/_internal/")
# How many paths of each place are kept: enough to see what it is.
MAX_PATHS_OF_A_PLACE = 3
SH_FLAGS_EXECINSTR = 0x4


def read_library(name: str, path: Path) -> LibraryFacts:
    """The facts of an ELF file, without its device code."""
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return _read(name, path, ELFFile(file))
    # The reader believes the offsets of a header: damaged ones fail in a dozen ways.
    except Exception as error:
        raise ProgramError(
            f"{name} begins like an ELF file but cannot be read: "
            f"{error or type(error).__name__}.\n"
            "It is damaged or cut short; build the wheel again."
        ) from error


def _read(name: str, path: Path, elf: ELFFile) -> LibraryFacts:
    tags = _dynamic_tags(elf)
    needed = tuple(tags["DT_NEEDED"])
    by_version, unlisted = _version_needs(elf, needed)
    return LibraryFacts(
        path=name,
        size=path.stat().st_size,
        machine=str(elf["e_machine"]).removeprefix("EM_").lower(),
        soname=next(iter(tags["DT_SONAME"]), ""),
        needed=needed,
        version_needs=by_version,
        unlisted_needs=unlisted,
        libstdcxx=_libstdcxx(elf, needed),
        rpaths=tuple(_absolute(tags["DT_RPATH"] + tags["DT_RUNPATH"])),
        build_paths=_build_paths(elf),
    )


def _dynamic_tags(elf: ELFFile) -> dict[str, list[str]]:
    from elftools.elf.dynamic import DynamicSegment

    attributes = {
        "DT_NEEDED": "needed",
        "DT_SONAME": "soname",
        "DT_RPATH": "rpath",
        "DT_RUNPATH": "runpath",
    }
    tags: dict[str, list[str]] = {name: [] for name in attributes}
    for segment in elf.iter_segments():
        if isinstance(segment, DynamicSegment):
            for tag in segment.iter_tags():
                if tag.entry.d_tag in attributes:
                    tags[tag.entry.d_tag].append(getattr(tag, attributes[tag.entry.d_tag]))
    return tags


def _absolute(rpaths: list[str]) -> list[str]:
    return [path for rpath in rpaths for path in rpath.split(":") if path.startswith("/")]


def _version_needs(
    elf: ELFFile, needed: tuple[str, ...]
) -> tuple[tuple[VersionNeed, ...], tuple[str, ...]]:
    """The symbol versions of the system's libraries, and libraries that DT_NEEDED lacks."""
    from elftools.elf.gnuversions import GNUVerNeedSection

    names: dict[int, str] = {}
    libraries: set[str] = set()
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for need, versions in section.iter_versions():
                libraries.add(str(need.name))
                names.update((version["vna_other"], version.name) for version in versions)
    symbols = _symbols_by_version(elf, names)
    needs = []
    for name in sorted(set(names.values())):
        match = _VERSION.fullmatch(name)
        if match:
            needs.append(_version_need(match[1], match[2], symbols[name]))
    needs.sort(key=lambda need: (need.family, need.number))
    return tuple(needs), tuple(sorted(libraries - set(needed)))


def _version_need(family: str, version: str, symbols: set[str]) -> VersionNeed:
    if exceeds(f"{family}_{version}", OLDEST_PLATFORM):
        return VersionNeed(family, version, tuple(sorted(symbols)))
    return VersionNeed(family, version)


def _symbols_by_version(elf: ELFFile, names: dict[int, str]) -> defaultdict[str, set[str]]:
    from elftools.elf.gnuversions import GNUVerSymSection
    from elftools.elf.sections import SymbolTableSection

    symbols: defaultdict[str, set[str]] = defaultdict(set)
    versions = elf.get_section_by_name(".gnu.version")
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(versions, GNUVerSymSection) or not isinstance(table, SymbolTableSection):
        return symbols
    for index, symbol in enumerate(table.iter_symbols()):
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name:
            number = versions.get_symbol(index)["ndx"]
            if number in names:
                symbols[names[number]].add(symbol.name)
    return symbols


def _libstdcxx(elf: ELFFile, needed: tuple[str, ...]) -> str:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".dynsym")
    symbols = list(table.iter_symbols()) if isinstance(table, SymbolTableSection) else []
    undefined = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"}
    defined = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"}
    if defined & _RUNTIME_SYMBOLS or _holds_runtime_types(elf):
        return LIBSTDCXX_LINKED_IN
    if LIBSTDCXX in needed:
        return LIBSTDCXX_NEEDED
    if any(name.startswith(_RUNTIME_PREFIXES) for name in undefined):
        return LIBSTDCXX_UNLISTED
    return LIBSTDCXX_UNUSED


def _holds_runtime_types(elf: ELFFile) -> bool:
    return any(
        section.name.startswith(".rodata")
        and section["sh_type"] != "SHT_NOBITS"
        and _RUNTIME_TYPE_NAME in section.data()
        for section in elf.iter_sections()
    )


def _build_paths(elf: ELFFile) -> tuple[str, ...]:
    """Source files outside the system's directories that the file names."""
    found: set[str] = set()
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_PROGBITS" or section.name in _DEVICE_CODE:
            continue
        if not section["sh_flags"] & SH_FLAGS_EXECINSTR:
            found.update(source_paths(section.data()))
    return _some_of_each_place(path for path in found if not path.startswith(_SYSTEM_DIRECTORIES))


def _some_of_each_place(paths: Iterable[str]) -> tuple[str, ...]:
    """The first few paths below each pair of top directories: no place hides another."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        place = places["/".join(path.split("/")[:3])]
        if len(place) < MAX_PATHS_OF_A_PLACE:
            place.append(path)
    return tuple(path for place in places.values() for path in place)


def source_paths(data: bytes) -> set[str]:
    """The absolute paths of source files in `data`."""
    return {
        match[0].decode(errors="replace")
        for match in _SOURCE_PATH.finditer(data)
        if not _IN_A_NAME.fullmatch(data, match.start() - 1, match.start())
    }
