"""Wheels with real libraries that tests make for themselves, sound ones and broken ones."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cuda_wheels.sandbox import device_code, inspect_wheel
from cuda_wheels.wheel_facts import WheelFacts

# Sources of libraries: one that needs nothing, one that needs libm, and one that needs a symbol
# which glibc has in its libc since 2.34.
ONE = "int one(void) { return 1; }"
MATH = "#include <math.h>\ndouble f(double x) { return cos(x); }"
ONCE = """
#include <pthread.h>
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void nothing(void) {}
int go(void) { return pthread_once(&once, nothing); }
"""

TAG = "cp312-cp312-linux_x86_64"
# Offset of `e_machine` in an ELF header, and its value for aarch64.
_E_MACHINE = 18
_AARCH64 = (183).to_bytes(2, "little")


def library(
    path: Path,
    source: str,
    *flags: str,
    language: str = "c",
    linker: str = "",
    soname: str | None = None,
) -> Path:
    """Compile and link `source` into the shared object `path` with the host's compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    driver = linker or ("g++" if language == "c++" else "gcc")
    argv = [driver, "-shared", "-fPIC", "-O1", "-o", str(path)]
    if soname:
        argv.append(f"-Wl,-soname,{soname}")
    # Through stdin: the path of a temporary directory would end up in the file.
    subprocess.run(
        [*argv, "-x", language, "-", "-x", "none", *flags],
        input=source,
        text=True,
        check=True,
    )
    return path


def as_aarch64(path: Path) -> Path:
    """Make the header of an ELF file say that it is for aarch64."""
    data = bytearray(path.read_bytes())
    data[_E_MACHINE : _E_MACHINE + 2] = _AARCH64
    path.write_bytes(data)
    return path


def without_needed(path: Path, name: str) -> Path:
    """Drop a DT_NEEDED entry and leave its version need, as a faulty patchelf did."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        (index,) = [
            number
            for number, tag in enumerate(dynamic.iter_tags())
            if getattr(tag, "needed", None) == name
        ]
        offset = dynamic["sh_offset"] + index * dynamic["sh_entsize"]
    data = bytearray(path.read_bytes())
    # DT_DEBUG: an entry that means nothing in a library.
    data[offset : offset + 8] = (21).to_bytes(8, "little")
    path.write_bytes(data)
    return path


def pack(
    folder: Path,
    files: Mapping[str, bytes | Path],
    *,
    name: str = "demo",
    version: str = "1.2",
    tag: str = TAG,
    purelib: bool = False,
    metadata: str = "",
    wheel_tag: str | None = None,
    record: Mapping[str, str] | None = None,
) -> Path:
    """A wheel with these files. `record` replaces rows of RECORD, an empty text drops one."""
    info = f"{name}-{version}.dist-info"
    python, abi, platforms = (wheel_tag or tag).split("-")
    tags = "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    members = {
        path: content.read_bytes() if isinstance(content, Path) else content
        for path, content in files.items()
    }
    members[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
        "\nVersion: of what?\n"
    ).encode()
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {str(purelib).lower()}\n{tags}"
    ).encode()
    rows = {path: record_row(path, data) for path, data in members.items()}
    rows[f"{info}/RECORD"] = f"{info}/RECORD,,"
    rows.update(record or {})
    members[f"{info}/RECORD"] = "".join(f"{row}\n" for row in rows.values() if row).encode()
    folder.mkdir(parents=True, exist_ok=True)
    return zipped(folder / f"{name}-{version}-{tag}.whl", list(members.items()))


def measure(wheel: Path) -> WheelFacts:
    """The facts of a wheel, by the real tools."""
    return inspect_wheel.measure(wheel, device_code.find_cuobjdump())


def refusal_of(program: str, folder: Path) -> str:
    """What a program says on stderr, run as Pants runs it, to a request that lacks nearly all."""
    request = folder / "request.json"
    request.write_text('{"cache": "c"}')
    done = subprocess.run(
        [sys.executable, "-m", f"cuda_wheels.sandbox.{program}", str(request)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def record_row(path: str, data: bytes) -> str:
    """The row of RECORD for a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


def zipped(path: Path, members: Sequence[tuple[str, bytes]], *, mode: int = 0o100755) -> Path:
    """A zip archive with these members, in this order."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, data)
    return path


def members_of(path: Path) -> dict[str, bytes]:
    """Every member of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
