"""Measures a wheel, from its bytes alone, and prints its facts as JSON.

Request: `cache`, `bootstrap_lock`, `tools_lock`, `wheel` (a path, absolute or not). The wheel may
be for another machine than this one. What its file name claims decides nothing but the facts that
are about the file name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import device_code, elf, environment, program, wheel_archive
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.libraries import EXCLUDED_LIBRARIES
from cuda_wheels.wheel_facts import LibraryFacts, WheelFacts


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What auditwheel says of a wheel; `problem` says why it says nothing."""

    policy: str = ""
    symbol_policy: str = ""
    unprovided: tuple[str, ...] = ()
    problem: str = ""


def main(request: dict[str, Any]) -> None:
    """Print the facts of the requested wheel."""
    program.require(request, "cache", "bootstrap_lock", "tools_lock", "wheel")
    environment.reexec_in_tools(
        Path(request["cache"]), Path(request["bootstrap_lock"]), Path(request["tools_lock"])
    )
    with environment.disk_full_explained(Path(tempfile.gettempdir())):
        facts = measure(Path(request["wheel"]), device_code.find_cuobjdump())
    print(json.dumps(facts.to_json(), indent=2, sort_keys=True, ensure_ascii=False))


def measure(wheel: Path, cuobjdump: Path) -> WheelFacts:
    """The facts of a wheel."""
    wheel_archive.require_file(wheel)
    python_tag, abi_tag, platform_tags = file_name_tags(wheel.name)
    with tempfile.TemporaryDirectory(prefix="inspect-wheel-") as scratch:
        contents = wheel_archive.scan(wheel, Path(scratch))
        libraries = tuple(
            dataclasses.replace(
                elf.read_library(member.name, member.path),
                images=device_code.device_images(member.name, member.path, cuobjdump),
            )
            for member in contents.elf_files
        )
    metadata = read_metadata(wheel.name, contents.metadata)
    tags, root_is_purelib = read_wheel_file(contents.wheel)
    verdict = platform_verdict(wheel, libraries)
    return WheelFacts(
        filename=wheel.name,
        name=metadata["name"],
        version=metadata["version"],
        python_tag=python_tag,
        abi_tag=abi_tag,
        platform_tags=platform_tags,
        sha256=_sha256(wheel),
        size=wheel.stat().st_size,
        wheel_tags=tags,
        root_is_purelib=root_is_purelib,
        record_problems=contents.record_problems,
        requires_dist=tuple(metadata.get("requires_dist", ())),
        policy=verdict.policy,
        symbol_policy=verdict.symbol_policy,
        policy_problem=verdict.problem,
        unprovided=verdict.unprovided,
        grafted=tuple(name for name in contents.members if _is_grafted(name)),
        bytecode=tuple(name for name in contents.members if name.endswith((".pyc", ".pyo"))),
        libraries=libraries,
    )


def file_name_tags(name: str) -> tuple[str, str, tuple[str, ...]]:
    """The Python, ABI and platform tags of a wheel's file name."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise ProgramError(
            f"{name} is not the file name of a wheel: {error}.\n"
            "It is NAME-VERSION-PYTHON-ABI-PLATFORM.whl; give the file its own name back."
        ) from error
    python_tag, abi_tag, platforms = name.removesuffix(".whl").rsplit("-", 3)[1:]
    return python_tag, abi_tag, tuple(sorted(platforms.split(".")))


def read_metadata(wheel: str, data: bytes) -> dict[str, Any]:
    """The fields of METADATA."""
    from packaging.metadata import parse_email

    fields, _ = parse_email(data)
    missing = [name for name in ("name", "version") if not fields.get(name)]
    if missing:
        raise ProgramError(f"{wheel} has no {' and no '.join(missing)} in its METADATA.")
    return dict(fields)


def read_wheel_file(data: bytes) -> tuple[tuple[str, ...], bool]:
    """The tags of a WHEEL file, and whether it says that the wheel is pure."""
    import email.parser

    message = email.parser.BytesParser().parsebytes(data)
    tags = tuple(sorted(message.get_all("Tag") or ()))
    return tags, str(message["Root-Is-Purelib"]).strip().lower() == "true"


def platform_verdict(wheel: Path, libraries: Sequence[LibraryFacts]) -> Verdict:
    """The oldest platform that auditwheel finds for the wheel, whatever its name says."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.wheel_abi import analyze_wheel_abi

    if not libraries:
        return Verdict(problem="it has no library")
    machine = Counter(library.machine for library in libraries).most_common(1)[0][0]
    logging.disable(logging.WARNING)
    try:
        abi = analyze_wheel_abi(
            Libc.GLIBC,
            Architecture(machine),
            wheel.absolute(),
            frozenset(EXCLUDED_LIBRARIES),
            disable_isa_ext_check=False,
            allow_graft=False,
            # This host's libraries say nothing about the wheel.
            args_ldpaths="",
        )
    # auditwheel has an exception for every oddity of a wheel; all of them mean "no platform". A full
    # disk is no fact about the wheel.
    except Exception as error:
        if program.is_disk_full(error):
            raise
        return Verdict(problem=" ".join(str(error).split()) or type(error).__name__)
    finally:
        logging.disable(logging.NOTSET)
    outside = abi.external_refs[abi.policies.highest.name].libs
    return Verdict(abi.overall_policy.name, abi.sym_policy.name, tuple(sorted(outside)))


def _is_grafted(name: str) -> bool:
    return name.split("/")[0].endswith(".libs")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    program.run(main)
