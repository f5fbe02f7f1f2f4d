"""Tells what the machine has, and hands the session's settings over to the cache.

Runs at the start of every session, so it uses the standard library alone and hashes a compiler only
when its file has changed. What is absent is `null`, and the caller decides whether that
matters; the one error is a cache that cannot be written.

Request: `cache`, `settings` (or null), `cuda_home` (or null), `compilers` (`gcc` and `gxx`: a name
or a path each), `headers` (the name of each, and the files and directories that it is made of).
A toolchain image says in a file of its own which compilers, CUDA toolkit and certificates it has:
these are taken where that file is. The facts go to stdout as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cuda_wheels.sandbox import files, program, session_settings

HASHES_FILE = "file-hashes.json"
COMMAND_TIMEOUT_S = 5
SETTINGS_KEPT_S = 30 * 24 * 3600

# What a toolchain image says of itself, and where it has environments; `tables/dockerfile.py` says how
# they get there.
IMAGE_FILE = Path("/etc/cuda-wheels/image.json")
BAKED = Path("/opt/cuda-wheels")

# What turns source into objects besides the driver itself. A driver of the same bytes may call
# another compiler (a distribution's update touches cc1plus and `as`, not always g++).
GXX_PARTS = ("cc1plus", "as", "ld")
GCC_PARTS = ("cc1", "as", "ld")
NVCC_PARTS = (
    "bin/nvcc",
    "bin/cudafe++",
    "bin/ptxas",
    "bin/fatbinary",
    "bin/nvlink",
    "nvvm/bin/cicc",
)

# Where every gcc looks, after its own directories: the first that has a header counts.
INCLUDE_DIRS = (Path("/usr/local/include"), Path("/usr/include"))

Facts = dict[str, Any]


def _output(*argv: str) -> str | None:
    """The stripped stdout of a command, or None if it cannot run, fails or hangs."""
    done = _run(*argv)
    return done.stdout.strip() if done is not None and done.returncode == 0 else None


def _run(*argv: str) -> subprocess.CompletedProcess[str] | None:
    """A command and what it printed, or None if it cannot run or hangs."""
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None


def image_facts(path: Path = IMAGE_FILE) -> Facts | None:
    """What a toolchain image says of itself; None on a machine that is none.

    Raises ProgramError if the file is there and cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise program.ProgramError(
            f"The description of this toolchain image, {path}, cannot be read: {error}. Build the "
            "image again with `./pants package`."
        ) from error
    return dict(found)


def settings_here(settings: Mapping[str, Any], image: Mapping[str, Any] | None) -> Facts:
    """The session's settings, less the files of the user's machine that are not where this runs.

    Certificates that are not there are those of the image, or the system's own.
    """
    here = dict(settings)
    for name in ("indexes", "find_links"):
        here[name] = [place for place in settings.get(name) or () if _is_here(place)]
    certificates = settings.get("ca_certs")
    if certificates and not os.path.isfile(certificates):
        here["ca_certs"] = (image or {}).get("ca_certs")
    return here


def _is_here(place: str) -> bool:
    parts = urlsplit(place)
    if parts.scheme == "file":
        return os.path.exists(url2pathname(parts.path))
    return bool(parts.scheme) or os.path.exists(place)


def save_settings(cache: Path, settings: Mapping[str, Any]) -> bool:
    """Store the settings for later programs; True if the file was (re)written.

    The mode is 0600 because an index address may hold a user's password. The file's time says when
    a session last used it. Raises OSError where the cache cannot be written.
    """
    path = session_settings.path(cache)
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    try:
        if path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o777 == 0o600:
            os.utime(path)
            return False
    except (OSError, UnicodeDecodeError):
        pass
    files.write_atomically(path, text, mode=0o600)
    return True


def forget_settings(cache: Path) -> None:
    """Remove the settings, passwords in them included, that no session has used for a month.

    Sessions of an earlier release have theirs in `settings.json` in the cache.
    """
    path = session_settings.path(cache)
    own = cache / session_settings.OWN_FILE
    if path == own:
        return
    for other in (own, *path.parent.iterdir()):
        with contextlib.suppress(OSError):
            if other != path and time.time() - other.stat().st_mtime > SETTINGS_KEPT_S:
                other.unlink()


class FileHashes:
    """sha256 of files, remembered by path, size and modification time."""

    def __init__(self, cache: Path) -> None:
        self._path = cache / HASHES_FILE
        self._fresh: dict[str, str] = {}
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, str] = known if isinstance(known, dict) else {}

    def sha256(self, path: Path) -> str:
        """The file's sha256, read again only if the file has changed."""
        stat = path.stat()
        key = f"{path}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in self._known:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._known[key] = self._fresh[key] = digest
        return self._known[key]

    def combined(self, paths: Iterable[Path]) -> str:
        """One sha256 over several files, in the order given."""
        digests = "".join(self.sha256(path) for path in paths)
        return hashlib.sha256(digests.encode()).hexdigest()

    def save(self) -> None:
        """Remember what was hashed. A read-only cache only costs the next session time."""
        if not self._fresh:
            return
        with contextlib.suppress(OSError):
            files.write_atomically(self._path, json.dumps(self._known, indent=0))


def _part(driver: str, name: str) -> Path | None:
    """The file that a compiler driver would run for `name`."""
    found = _output(driver, f"-print-prog-name={name}") or name
    path = found if os.path.isabs(found) else shutil.which(found)
    return Path(os.path.realpath(path)) if path else None


def compiler_facts(command: str, parts: Sequence[str], hashes: FileHashes) -> Facts | None:
    """Path, full version and fingerprint of a gcc driver and of the programs that it runs."""
    path = shutil.which(command)
    version = path and _output(path, "-dumpfullversion", "-dumpversion")
    if not path or not version:
        return None
    # The real compilers, not a wrapper script: two machines with the same gcc have one key.
    programs = [Path(os.path.realpath(path)), *(_part(path, name) for name in parts)]
    try:
        digest = hashes.combined(part for part in programs if part and part.is_file())
    except OSError:
        return None
    return {"path": path, "version": version, "sha256": digest}


def cxx_facts(command: str, hashes: FileHashes) -> Facts | None:
    """The facts of a C++ compiler, and as `links_cxx` whether it links the library of C++."""
    found = compiler_facts(command, GXX_PARTS, hashes)
    # Told by what it would run. gcc compiles C++ as g++ does, and links libraries without it.
    return found and {**found, "links_cxx": _links_cxx(found["path"])}


def _links_cxx(driver: str) -> bool:
    done = _run(driver, "-###", "-shared", "-x", "c++", os.devnull, "-o", os.devnull)
    # What tells nothing of linking is judged by its work.
    return done is None or "-lstdc++" in done.stderr or "collect2" not in done.stderr


def git_facts() -> Facts | None:
    """Where git is and its version."""
    path = shutil.which("git")
    found = re.search(r"(\d+(?:\.\d+)+)", (path and _output(path, "--version")) or "")
    return {"path": path, "version": found.group(1)} if found else None


def cuda_facts(cuda_home: str | None, hashes: FileHashes) -> Facts | None:
    """Version and fingerprint of the toolkit in `cuda_home`."""
    if not cuda_home:
        return None
    home = Path(cuda_home)
    release = re.search(r"\bV(\d+\.\d+\.\d+)", _output(str(home / "bin/nvcc"), "--version") or "")
    if not release:
        return None
    programs = [Path(os.path.realpath(home / part)) for part in NVCC_PARTS]
    try:
        digest = hashes.combined(part for part in programs if part.is_file())
    except OSError:
        return None
    return {"path": cuda_home, "nvcc_version": release.group(1), "sha256": digest}


def header_facts(headers: Mapping[str, Sequence[str]], hashes: FileHashes) -> dict[str, str]:
    """The headers that are in an include directory, each with a sha256 over all of its content."""
    found = {}
    for name, content in headers.items():
        place = next((path for path in INCLUDE_DIRS if (path / name).is_file()), None)
        if place is None:
            continue
        names = [str(path.relative_to(place)) for part in content for path in _files(place / part)]
        with contextlib.suppress(OSError):
            digests = [f"{path} {hashes.sha256(place / path)}" for path in sorted(names)]
            found[name] = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return found


def _files(path: Path) -> Iterable[Path]:
    return (entry for entry in (path, *path.rglob("*")) if entry.is_file())


def gpu_facts() -> Facts:
    """What nvidia-smi tells: the compute capabilities of the GPUs, each once, lowest first; the
    driver's version; and the newest CUDA that it runs, which stands in the banner alone.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return {"gpus": [], "nvidia_smi": None, "driver": None, "driver_cuda": None}
    calls = (("--query-gpu=compute_cap,driver_version", "--format=csv,noheader"), ())
    # Each call may have to wait for the driver: at the same time.
    with ThreadPoolExecutor(len(calls)) as pool:
        listing, banner = pool.map(lambda arguments: _output(path, *arguments) or "", calls)
    gpus = re.findall(r"^\s*(\d+\.\d+)\s*,\s*(\d[\d.]*)", listing, flags=re.MULTILINE)
    cuda = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", banner)
    driver = re.search(r"Driver Version\s*:\s*(\d[\d.]*)", banner)
    return {
        "gpus": sorted(
            {gpu for gpu, _ in gpus}, key=lambda value: tuple(map(int, value.split(".")))
        ),
        "nvidia_smi": path,
        "driver": gpus[0][1] if gpus else driver and driver.group(1),
        "driver_cuda": cuda and cuda.group(1),
    }


def python_facts() -> Facts:
    """The interpreter that builds wheels: its version, its headers, and whether venv works."""
    header = Path(sysconfig.get_path("include") or "/nonexistent") / "Python.h"
    venv_ok = all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))
    return {
        "version": platform.python_version(),
        "include_ok": header.is_file(),
        "venv_ok": venv_ok,
    }


def glibc_version() -> str | None:
    """The C library's version, or None where it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return None
    return version if name == "glibc" else None


def environments(cache: Path) -> list[str]:
    """The names of the build environments that are there; each begins with its lock's digest.

    A toolchain image may have some of its own.
    """
    found: set[str] = set()
    for place in (cache, BAKED):
        with contextlib.suppress(OSError):
            found.update(name for name in os.listdir(place / "envs") if not name.startswith("."))
    return sorted(found)


def free_disk_gb(directory: Path) -> float:
    """Free space for this user where the cache lies, in 10^9 bytes."""
    for place in (directory, *directory.absolute().parents):
        try:
            return round(shutil.disk_usage(place).free / 1e9, 1)
        except OSError:
            continue
    return 0.0


def facts(request: Mapping[str, Any]) -> Facts:
    """Everything that a preflight wants to know, in one go."""
    cache = Path(request.get("cache") or ".cuda_wheels")
    hashes = FileHashes(cache)
    image = request.get("image")
    compilers = image or request.get("compilers") or {}
    cuda_home = image["cuda_home"] if image else request.get("cuda_home")
    found = {
        "image": image,
        "machine": platform.machine(),
        "python": python_facts(),
        "glibc": glibc_version(),
        "gcc": compiler_facts(compilers.get("gcc") or "gcc", GCC_PARTS, hashes),
        "gxx": cxx_facts(compilers.get("gxx") or "g++", hashes),
        "git": git_facts(),
        "disk_free_gb": free_disk_gb(cache),
        "environments": environments(cache),
        "cuda_home": cuda_facts(cuda_home, hashes),
        **gpu_facts(),
        "headers": header_facts(request.get("headers") or {}, hashes),
    }
    hashes.save()
    return found


def main(request: dict) -> None:
    """Save the settings and print the facts."""
    image = image_facts()
    if request.get("settings") is not None:
        settings = settings_here(request["settings"], image)
        try:
            save_settings(Path(request["cache"]), settings)
            forget_settings(Path(request["cache"]))
        except OSError as error:
            raise program.ProgramError(
                f"The cache directory cannot be written: {error}.\n"
                "Give it room and write access, or point [GLOBAL].named_caches_dir elsewhere."
            ) from error
    json.dump(facts({**request, "image": image}), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    program.run(main)
