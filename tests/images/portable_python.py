"""A copy of a CPython that starts on an older C library than the one it was built on.

Its loader, its C library and all else that it links to come with it. A program finds these by the
RPATH of the interpreter, and the interpreter names all parts of the C library itself, so that no
extension module brings in a second, older part of it. Programs that it starts use their own system's.
This is test material: real toolchain images have a Python of their distribution.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_LDD = re.compile(r"^\s*(\S+)(?: => (\S+))? \(0x", re.MULTILINE)
# What an extension module may want of the C library, besides what the interpreter links to.
_C_LIBRARY = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")
# Opened by the C library itself where a host name is looked up.
_NAME_SERVICE = ("libnss_files.so.2", "libnss_dns.so.2")
# Neither builds nor the build tools need these; most of a CPython's size.
_LEFT_OUT = ("__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "site-packages")
_LEFT_OUT_FILES = ("*.a", "_tkinter*.so", "_curses*.so", "nis*.so", "_test*.so", "xx*.so")


def copy_python(python: Path, root: Path, place: Path, patchelf: str = "patchelf") -> Path:
    """Copy the CPython of the interpreter `python` to `place` in the file system that `root` holds.

    Returns the path of the new interpreter in there. Raises RuntimeError with what a tool said.
    """
    target = root / place.relative_to("/")
    facts = _run(
        str(python),
        "-c",
        "import sys, sysconfig as s; print(sys.base_prefix, '%d.%d' % sys.version_info[:2], "
        "s.get_path('stdlib'), s.get_path('include'), sep='\\n')",
    ).splitlines()
    prefix, version, stdlib, include = Path(facts[0]), facts[1], Path(facts[2]), Path(facts[3])
    name = f"python{version}"
    ignored = shutil.ignore_patterns(*_LEFT_OUT, *_LEFT_OUT_FILES)
    shutil.copytree(stdlib, target / "lib" / name, ignore=ignored, symlinks=True)
    (target / "lib" / name / "site-packages").mkdir()
    shutil.copytree(include, target / "include" / name)
    interpreter = target / "bin" / name
    interpreter.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(prefix / "bin" / name), interpreter)
    _bundle(interpreter, target / "lib" / "bundled", place / "lib" / "bundled", patchelf)
    return place / "bin" / name


def _bundle(interpreter: Path, libraries: Path, place: Path, patchelf: str) -> None:
    libraries.mkdir()
    found = _linked(interpreter)
    for module in interpreter.parent.parent.glob("lib/python3.*/lib-dynload/*.so"):
        found.update(_linked(module))
        # A RUNPATH of its own would hide the interpreter's RPATH from what it links to.
        _run(patchelf, "--remove-rpath", str(module))
    beside = Path(found["libc.so.6"]).parent
    for name in (*_C_LIBRARY, *_NAME_SERVICE):
        if (beside / name).exists():
            found[name] = str(beside / name)
    for name, path in found.items():
        copy = libraries / os.path.basename(name)
        shutil.copy(path, copy)
        if not copy.name.startswith(("libc.", "ld-")):
            _run(patchelf, "--remove-rpath", str(copy))
    loader = next(path for path in libraries.iterdir() if path.name.startswith("ld-"))
    change = [patchelf, "--set-interpreter", str(place / loader.name)]
    # Not relative to the interpreter, which takes a /proc that a chroot lacks.
    change += ["--force-rpath", "--set-rpath", str(place)]
    for name in _C_LIBRARY:
        if (libraries / name).exists():
            change += ["--add-needed", name]
    _run(*change, str(interpreter))


def _linked(binary: Path) -> dict[str, str]:
    """Name -> path of all that the loader would load for a program or library."""
    listed = _run("ldd", str(binary))
    return {name: path or name for name, path in _LDD.findall(listed) if path or "/" in name}


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode and "statically linked" not in done.stdout + done.stderr:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return done.stdout
