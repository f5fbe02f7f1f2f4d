"""Unpacks a source archive into a tree that is the same on every machine.

Names and links that lead outside the tree are refused, not repaired: an archive that has them is
not what its recipe means.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from cuda_wheels.sandbox import program

# What the readers of the standard library raise for damaged archives, beside an OSError without a
# number (bzip2, gzip) or for a position that no file has.
DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)


def unpack(archive: Path, out: Path, *, whole: bool = False) -> None:
    """Unpack a zip or tar archive into `out`, without its single top directory if it has one.

    `whole` keeps that directory. Files get mode 644, or 755 if they are executable. `out` appears complete or not at all.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        _extract(archive, tree)
        normalise_modes(tree)
        top = _without_top(tree, archive)
        os.replace(tree if whole else top, out)


def normalise_modes(tree: Path) -> None:
    """Set 755 for directories and executables, 644 for other files; links stay as they are."""
    os.chmod(tree, 0o755)
    for root, directories, files in os.walk(tree):
        for name in directories:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755)
        for name in files:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                executable = os.stat(path).st_mode & 0o111
                os.chmod(path, 0o755 if executable else 0o644)


def _extract(archive: Path, tree: Path) -> None:
    try:
        # By content, not by name: a forge's download address has often no suffix.
        if tarfile.is_tarfile(archive):
            _extract_tar(archive, tree)
        elif zipfile.is_zipfile(archive):
            _extract_zip(archive, tree)
        else:
            raise program.ProgramError(
                f"{archive.name} is neither a zip nor a tar archive (gzip, bzip2 and xz are read).\n"
                "Perhaps a web page was saved in its place: look into the file that was pinned."
            )
    except tarfile.FilterError as error:
        raise _unsafe(archive, [str(error)]) from error
    except DAMAGES as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if program.is_disk_full(error):
            raise
        if error.errno in (None, errno.EINVAL):
            raise _damaged(archive, error) from error
        # The cause is in the names: one is too long, or both a file and a directory.
        name = os.path.relpath(error.filename, tree) if error.filename else "a member"
        raise program.ProgramError(
            f"{archive.name} cannot be unpacked: {name[:200]}: {error.strerror}.\n"
            "Its names do not fit into a file system here. Check where the archive comes from."
        ) from error


def _damaged(archive: Path, error: Exception) -> program.ProgramError:
    return program.ProgramError(
        f"{archive.name} is damaged: {str(error) or type(error).__name__}.\n"
        "Its sha256 is the declared one, so the pin is of a damaged file: pin a good one."
    )


def _extract_tar(archive: Path, tree: Path) -> None:
    with tarfile.open(archive) as tar:
        _refuse_outside(archive, (member.name for member in tar))
        tar.extractall(tree, filter="data")


def _extract_zip(archive: Path, tree: Path) -> None:
    with zipfile.ZipFile(archive) as package:
        members = package.infolist()
        _refuse_outside(archive, (member.filename for member in members))
        links = [m.filename for m in members if stat.S_ISLNK(m.external_attr >> 16)]
        if links:
            raise program.ProgramError(
                f"{archive.name} holds symbolic links, which zip archives carry as plain text: "
                f"{', '.join(links[:5])}.\nUse the tar archive of the same source."
            )
        for member in members:
            path = tree / member.filename
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with package.open(member) as packed, path.open("wb") as file:
                shutil.copyfileobj(packed, file)
            os.chmod(path, 0o755 if (member.external_attr >> 16) & 0o111 else 0o644)


def _refuse_outside(archive: Path, names: Iterable[str]) -> None:
    bad = []
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            bad.append(name)
    if bad:
        raise _unsafe(archive, bad)


def _unsafe(archive: Path, what: list[str]) -> program.ProgramError:
    shown = "".join(f"\n  {item}" for item in what[:10])
    return program.ProgramError(
        f"{archive.name} is refused: it has members that lead outside its own folder:{shown}\n"
        "Nothing was unpacked. Check where the archive comes from."
    )


def _without_top(tree: Path, archive: Path) -> Path:
    entries = list(tree.iterdir())
    if not entries:
        raise program.ProgramError(f"{archive.name} is empty.")
    only = entries[0]
    return only if len(entries) == 1 and only.is_dir() and not only.is_symlink() else tree
