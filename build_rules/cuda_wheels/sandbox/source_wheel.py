"""Packs directories of a source tree as a wheel of Python files; equal input gives equal bytes.

What goes in is said by directory and not by package: files that no import leads to, and folders
without an `__init__.py`, belong to it too. Nothing of the source runs.

Request: `cache`, `bootstrap_lock`, `tools_lock`, `name`, `version`, `source`, `contents` (a
directory of the source, and its place in the wheel), `metadata` (further lines of METADATA), `out`.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import environment, program
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.epoch import SOURCE_DATE_EPOCH

COMPILED = (".so", ".pyd", ".dylib", ".dll", ".a", ".o", ".pyc")
LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")


def main(request: dict[str, Any]) -> None:
    """Write the wheel into the `out` directory."""
    program.require(
        request, "cache", "bootstrap_lock", "tools_lock", "name", "version", "source", "contents"
    )
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["tools_lock"])
    )
    source = Path(request["source"])
    name = request["name"].replace("-", "_")
    stem = f"{name}-{request['version']}"
    members = members_of(source, request["contents"])
    headers = {
        "Metadata-Version": "2.4",
        "Name": request["name"],
        "Version": request["version"],
        **request.get("metadata", {}),
    }
    for file in LICENSES:
        if (source / file).is_file():
            members[f"{stem}.dist-info/licenses/{file}"] = (source / file).read_bytes()
            headers["License-File"] = file
    members[f"{stem}.dist-info/METADATA"] = _headers(headers)
    members[f"{stem}.dist-info/WHEEL"] = _headers(
        {
            "Wheel-Version": "1.0",
            "Generator": "cuda-wheels",
            "Root-Is-Purelib": "true",
            "Tag": "py3-none-any",
        }
    )
    out = Path(request["out"])
    out.mkdir(parents=True, exist_ok=True)
    write(out / f"{stem}-py3-none-any.whl", members)


def members_of(source: Path, contents: Mapping[str, str]) -> dict[str, bytes]:
    """The files of the wheel by their names there; a ProgramError says all that is wrong."""
    problems: list[str] = []
    found: dict[str, tuple[Path, str]] = {}
    for directory, place in sorted(contents.items()):
        if not (source / directory).is_dir():
            there = ", ".join(sorted(path.name for path in source.iterdir())) or "nothing"
            problems.append(f"there is no directory {directory}; at the top there are: {there}")
            continue
        files = list(_files(source / directory))
        if not files:
            problems.append(f"the directory {directory} is empty")
        for path in files:
            below = path.relative_to(source / directory).as_posix()
            origin, name = f"{directory}/{below}", f"{place}/{below}"
            if name in found:
                problems.append(f"{origin} and {found[name][1]} would both be {name}")
            elif path.is_symlink():
                problems.append(f"{origin} is a link, which a wheel cannot hold")
            elif path.suffix in COMPILED:
                problems.append(f"{origin} is compiled, which a wheel for every machine cannot be")
            found[name] = (path, origin)
    if problems:
        raise ProgramError(
            "The source is not laid out as `contents` declares:\n"
            + "\n".join(f"  {problem}" for problem in problems)
            + "\nCorrect `contents`, or pin a commit of that layout."
        )
    return {name: path.read_bytes() for name, (path, _) in found.items()}


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path


def _headers(lines: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\n" for name, value in lines.items()).encode()


def write(wheel: Path, members: Mapping[str, bytes]) -> None:
    """Write a wheel with its RECORD; the file appears complete or not at all."""
    from wheel.wheelfile import WheelFile, get_zipinfo_datetime

    # By this the library dates RECORD, too.
    os.environ["SOURCE_DATE_EPOCH"] = str(SOURCE_DATE_EPOCH)
    # The library reads name and version from the name of the file.
    scratch = wheel.parent / ".writing"
    scratch.mkdir(exist_ok=True)
    with WheelFile(scratch / wheel.name, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members, key=lambda name: (".dist-info/" in name, name)):
            member = zipfile.ZipInfo(name, get_zipinfo_datetime())
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, members[name], zipfile.ZIP_DEFLATED)
    os.replace(scratch / wheel.name, wheel)
    scratch.rmdir()


if __name__ == "__main__":
    program.run(main)
