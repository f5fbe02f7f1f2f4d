"""Reads a wheel as an archive, without believing anything that it says of itself.

Nothing is unpacked outside the folder that was asked for: a member that would be is refused, by
its name, before the first byte is written. Large members are streamed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import errno
import hashlib
import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cuda_wheels.sandbox.program import ProgramError

ELF_MAGIC = b"\x7fELF"
CHUNK = 1 << 20
# Weaker ones do not protect a file; installers refuse them as well.
RECORD_HASHES = ("sha256", "sha384", "sha512")
# The files of a .dist-info directory that RECORD cannot list with a hash: itself and signatures.
UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
# What the readers of the standard library raise for damaged archives, beside an OSError without a
# number (bzip2) or for a position that no file has.
DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,
)


@dataclass(frozen=True)
class ElfMember:
    """An ELF file of a wheel: its name there, and where a copy of it lies."""

    name: str
    path: Path
    size: int


@dataclass(frozen=True)
class Contents:
    """What an inspection needs of a wheel, after one pass over all its bytes."""

    members: tuple[str, ...]
    elf_files: tuple[ElfMember, ...]
    metadata: bytes
    wheel: bytes
    record_problems: tuple[str, ...]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel as a zip archive whose members all stay inside a folder."""
    require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_unsafe(path, archive.infolist())
            yield archive
    except DAMAGES as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno in (None, errno.EINVAL):
            raise _damaged(path, error) from error
        if error.filename == str(path):
            raise ProgramError(f"{path} cannot be read: {error.strerror}.") from error
        raise


def require_file(path: Path) -> None:
    """Refuse what is no file before anything is said of its name."""
    if path.is_dir():
        raise ProgramError(f"{path} is a directory. Name the wheels in it.")
    if not path.is_file():
        raise ProgramError(f"There is no file {path}.")


def _damaged(path: Path, error: Exception) -> ProgramError:
    return ProgramError(
        f"{path.name} is a damaged zip archive: {str(error) or type(error).__name__}.\n"
        "Build or download it again."
    )


def scan(path: Path, scratch: Path) -> Contents:
    """Read every member once: check it against RECORD, and copy ELF files into `scratch`."""
    with opened(path) as archive:
        info = dist_info(path, archive.namelist())
        hashed = _Record(archive, f"{info}/RECORD")
        elf_files: list[ElfMember] = []
        for member in files_of(archive):
            copy = scratch / f"{len(elf_files)}.so"
            if _read_member(archive, member, copy, hashed):
                elf_files.append(ElfMember(member.filename, copy, member.file_size))
        return Contents(
            members=tuple(sorted(member.filename for member in files_of(archive))),
            elf_files=tuple(sorted(elf_files, key=lambda elf: elf.name)),
            metadata=_read_text(path, archive, f"{info}/METADATA"),
            wheel=_read_text(path, archive, f"{info}/WHEEL"),
            record_problems=hashed.problems(),
        )


def files_of(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members that are files."""
    return [member for member in archive.infolist() if not member.is_dir()]


def is_elf(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Whether a member is an ELF file, by its first bytes."""
    with archive.open(member) as file:
        return file.read(len(ELF_MAGIC)) == ELF_MAGIC


def dist_info(path: Path, names: Iterable[str]) -> str:
    """The name of the one .dist-info directory of a wheel."""
    found = {name.split("/")[0] for name in names if "/" in name}
    found = {name for name in found if name.endswith(".dist-info")}
    if len(found) != 1:
        what = ", ".join(sorted(found)) or "none"
        raise ProgramError(
            f"{path.name} is no wheel: it must hold one .dist-info directory; found: {what}."
        )
    return found.pop()


def _refuse_unsafe(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    bad = []
    for member in members:
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts:
            bad.append(f"{member.filename} (leads outside)")
        elif stat.S_ISLNK(member.external_attr >> 16):
            bad.append(f"{member.filename} (a symbolic link)")
        elif member.flag_bits & 0x1:
            bad.append(f"{member.filename} (encrypted)")
    if bad:
        shown = "".join(f"\n  {name}" for name in bad[:10])
        raise ProgramError(
            f"{path.name} is refused: a wheel holds plain files below its own folder, but this one "
            f"has:{shown}\nNothing was unpacked. Do not install it; check where it comes from."
        )


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, copy: Path, record: _Record
) -> bool:
    """Hash one member; an ELF file is copied on the way. True if it is one."""
    with archive.open(member) as source, contextlib.ExitStack() as stack:
        chunk = source.read(CHUNK)
        is_elf = chunk.startswith(ELF_MAGIC)
        target = stack.enter_context(copy.open("wb")) if is_elf else None
        digest = record.hasher(member.filename)
        while chunk:
            digest.update(chunk)
            if target is not None:
                target.write(chunk)
            chunk = source.read(CHUNK)
    record.check(member, digest.digest())
    return is_elf


def _read_text(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise ProgramError(f"{path.name} is no wheel: it has no {name}.") from None


class _Record:
    """RECORD's list of files, and what is wrong with it."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._name = name
        self._folder = name.rsplit("/", 1)[0]
        self._problems: list[str] = []
        self._seen: set[str] = set()
        self._rows: dict[str, tuple[str, bytes, str]] = {}
        try:
            text = archive.read(name).decode("utf-8")
        except KeyError:
            self._problems.append(f"{name} is missing")
            return
        except UnicodeDecodeError:
            self._problems.append(f"{name} is not UTF-8")
            return
        try:
            for row in csv.reader(io.StringIO(text, newline="")):
                self._add(row)
        except csv.Error as error:
            self._problems.append(f"{name} cannot be read to its end ({error})")

    def _add(self, row: list[str]) -> None:
        if not row:
            return
        if len(row) != 3:
            self._problems.append(f"{row[0]} has {len(row)} columns, not 3")
            return
        name, hashed, size = row
        if name in self._rows:
            self._problems.append(f"{name} is listed twice")
        algorithm, _, value = hashed.partition("=")
        try:
            digest = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        except (binascii.Error, ValueError):
            digest = b""
        self._rows[name] = (algorithm, digest, size)

    def hasher(self, member: str) -> hashlib._Hash:
        """A hash object of the kind that RECORD uses for this member."""
        algorithm = self._rows.get(member, ("sha256", b"", ""))[0]
        return hashlib.new(algorithm if algorithm in RECORD_HASHES else "sha256")

    def check(self, member: zipfile.ZipInfo, digest: bytes) -> None:
        """Compare a member with its row."""
        name = member.filename
        if name in self._seen:
            self._problems.append(f"{name} is in the archive twice")
        self._seen.add(name)
        if name in {f"{self._folder}/{unhashed}" for unhashed in UNHASHED}:
            return
        if name not in self._rows:
            self._problems.append(f"{name} is not listed")
            return
        algorithm, expected, size = self._rows[name]
        if algorithm not in RECORD_HASHES:
            self._problems.append(f"{name} has {algorithm or 'no'} hash, not sha256")
        elif expected != digest:
            self._problems.append(f"{name} has another {algorithm} than listed")
        if size and size != str(member.file_size):
            self._problems.append(f"{name} has {member.file_size} bytes, {size} are listed")

    def problems(self) -> tuple[str, ...]:
        """All that was found, after every member was checked."""
        missing = sorted(set(self._rows) - self._seen)
        return (*self._problems, *(f"{name} is listed but not there" for name in missing))
