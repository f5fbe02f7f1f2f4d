"""Environments realised from hash-locked files, each once, in the append-only cache.

The bootstrap environment (uv and ccache) is made by `venv` and pip; all others by its uv. A name
holds the lock's digest and the interpreter, so that a changed lock is another directory. One is
made under a temporary name and renamed when complete, under a file lock: nobody sees half of one.
Those that a toolchain image has are used where they are.

Index addresses and credentials come from the session's settings: they are in no cache key, and
credentials are hidden in messages. A torch with a local version (`2.9.1+cu126`) is not on the
package index: where a lock pins one, the PyTorch index of that local version is asked as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cuda_wheels.sandbox import cuda_toolkit, session_settings
from cuda_wheels.sandbox.mirrors import mirrored
from cuda_wheels.sandbox.program import ProgramError, is_disk_full

BAKED = Path("/opt/cuda-wheels")
"""Where a toolchain image has environments of its own, named as in the cache."""

COMPLETE = ".complete"
"""Written as the last file of an environment, before it gets its name."""

NO_INDEX = (
    "[python-repos].indexes is empty. Name an index there, or put the file where "
    "[python-repos].find_links leads."
)

_LOCAL_PIN = re.compile(r"^([\w.-]+==[^\s;+]+\+([\w.-]+))", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """Where packages come from, as the user's machine has it. Empty: the tools' own defaults.

    `torch_indexes`: local version of a torch wheel, and the PyTorch index, or its mirror, that has it.
    `no_index`: the list of indexes was given, and is empty: no index is asked, the default and the
    PyTorch index included.
    """

    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    torch_indexes: tuple[tuple[str, str], ...] = ()
    ca_certs: str | None = None
    proxies: tuple[tuple[str, str], ...] = ()
    given: bool = False
    no_index: bool = False

    def uv_flags(self, requirements: str = "") -> list[str]:
        """The index flags of uv for a lock, or for requirements that stand one a line."""
        if self.no_index:
            return ["--no-index", *self._find_links_flags()]
        ordered = [*self.indexes[1:], *self.indexes[:1]]
        # The PyTorch index comes last: it has copies of other packages too, of which those of the
        # package index are meant.
        ordered += self.torch_indexes_for(requirements)
        flags = []
        if ordered and self.indexes:
            flags += ["--default-index", ordered.pop()]
        for index in ordered:
            flags += ["--index", index]
        flags += self._find_links_flags()
        # uv stops at the first index that has a name, where another may have the version. Of one
        # version in two indexes it takes the earlier index's file, whatever the hashes.
        return [*flags, "--index-strategy", "unsafe-best-match"]

    def torch_indexes_for(self, requirements: str) -> list[str]:
        """The PyTorch indexes that have what `requirements` pin to a local version."""
        known = dict(self.torch_indexes)
        local = sorted({local for _, local in _LOCAL_PIN.findall(requirements)})
        return [known[name] for name in local if name in known]

    def torch_note(self, requirements: str) -> str:
        """Where a torch with a local version comes from, as sentences; empty if none is pinned."""
        pins = ", ".join(pin for pin, _ in _LOCAL_PIN.findall(requirements))
        if not pins:
            return ""
        if self.no_index:
            return f"{pins} is on the PyTorch index, which is not asked either: {NO_INDEX}"
        indexes = ", ".join(map(hide_credentials, self.torch_indexes_for(requirements)))
        if not indexes:
            return f"{pins} is not on the package index: name the PyTorch index, in UV_INDEX."
        return (
            f"{pins} is not on the package index but on the PyTorch index, looked for at {indexes}."
            " If that cannot be reached from here, name a mirror of it in "
            "[cuda-wheels].source_mirrors."
        )

    def pip_flags(self) -> list[str]:
        """The index flags of pip."""
        flags = ["--no-index"] if self.no_index else []
        if self.indexes:
            flags += ["--index-url", self.indexes[0]]
            for index in self.indexes[1:]:
                flags += ["--extra-index-url", index]
        return [*flags, *self._find_links_flags()]

    def _find_links_flags(self) -> list[str]:
        return [flag for link in self.find_links for flag in ("--find-links", link)]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The variables for uv and pip: where settings were given, nothing else configures them."""
        env = {**base, **dict(self.proxies)}
        if self.given:
            env = {k: v for k, v in env.items() if not k.startswith(("PIP_", "UV_"))}
            env["PIP_CONFIG_FILE"] = os.devnull
            env["UV_NO_CONFIG"] = "1"
        if self.ca_certs:
            for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"):
                env[name] = self.ca_certs
        env.setdefault("UV_HTTP_TIMEOUT", "300")
        env["UV_PYTHON_DOWNLOADS"] = "never"
        env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        env["PIP_NO_INPUT"] = "1"
        # Without a home (a Pants process has none) both tools look for one in odd places.
        env.setdefault("HOME", tempfile.gettempdir())
        env.setdefault("PATH", os.defpath)
        return env


def load_settings(cache: Path) -> Settings:
    """The settings of the session; where there are none the tools' defaults hold."""
    data = session_settings.read(cache)
    if data is None:
        return Settings()
    return Settings(
        indexes=tuple(data.get("indexes") or ()),
        find_links=tuple(data.get("find_links") or ()),
        torch_indexes=_torch_indexes(data),
        ca_certs=data.get("ca_certs") or None,
        proxies=tuple(sorted((data.get("proxies") or {}).items())),
        given=True,
        no_index=data.get("indexes") == [],
    )


def _torch_indexes(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    # The goals refuse a mirror that is no text; here it must not end a program that needs none.
    leads = {k: v for k, v in (data.get("source_mirrors") or {}).items() if isinstance(v, str)}
    indexes = (data.get("torch_indexes") or {}).items()
    return tuple(sorted((local, mirrored(address, leads)) for local, address in indexes))


def hide_credentials(text: str) -> str:
    """The text with the user part of every address replaced."""
    return _USER.sub(r"\1***@", text)


@contextlib.contextmanager
def locked(cache: Path, name: str) -> Iterator[None]:
    """Hold the file lock `name` of the cache, waiting for it."""
    directory = Path(cache) / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / f"{name}.lock", "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def lock_digest(lock: Path) -> str:
    """The first 16 hexadecimal digits of the lock's sha256."""
    try:
        return hashlib.sha256(Path(lock).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ProgramError(f"The lock {lock} cannot be read: {error.strerror}.") from error


def interpreter_tag() -> str:
    """Which interpreter an environment is linked to: its version and a digest of its path."""
    where = f"{os.path.realpath(sys.base_prefix)} {sys.version} {platform.machine()}"
    digest = hashlib.sha256(where.encode()).hexdigest()[:8]
    return f"cp{sys.version_info[0]}{sys.version_info[1]}-{digest}"


def environment_path(cache: Path, lock: Path, kind: str) -> Path:
    """Where the environment of this lock is, or would be: in the image, otherwise in the cache."""
    name = f"{lock_digest(lock)}-{interpreter_tag()}"
    baked = BAKED / kind / name
    return baked if is_complete(baked) else Path(cache).absolute() / kind / name


def is_complete(path: Path) -> bool:
    """Whether the environment is whole and its interpreter still there."""
    return (path / COMPLETE).is_file() and (path / "bin/python").exists()


def ensure_bootstrap(cache: Path, lock: Path) -> Path:
    """The environment that holds uv and ccache; call its programs by `bin/uv`, `bin/ccache`."""
    settings = load_settings(cache)

    def make(path: Path) -> None:
        env = settings.environment(os.environ)
        venv = _run([_base_python(), "-m", "venv", str(path)], env)
        if venv.returncode:
            raise ProgramError(
                f"`{_base_python()} -m venv` failed:\n{_tail(venv.stdout)}\n"
                "Install the interpreter's venv module (Debian and Ubuntu: the package "
                f"python{sys.version_info[0]}.{sys.version_info[1]}-venv)."
            )
        command = [str(path / "bin/python"), "-m", "pip", "install", "--no-deps", "--quiet"]
        command += ["--only-binary=:all:", "--require-hashes", "--no-compile", "--no-cache-dir"]
        command += [*settings.pip_flags(), "-r", str(Path(lock).absolute())]
        run_installer("pip", command, lock, path, settings, env)

    return _ensure(cache, environment_path(cache, lock, "tools"), make)


def ensure_environment(cache: Path, lock: Path, *, bootstrap: Path, kind: str) -> Path:
    """The environment of a lock, made by uv where it is missing.

    `kind` is `envs` (build environments) or `tools`. An environment that holds nvcc gets
    `<env>/cuda`, which looks like an installed CUDA toolkit.
    """
    settings = load_settings(cache)

    def make(path: Path) -> None:
        env = settings.environment(os.environ)
        env["UV_CACHE_DIR"] = str(Path(cache).absolute() / "uv")
        uv = str(Path(bootstrap) / "bin/uv")
        venv = _run([uv, "venv", "--relocatable", "--python", _base_python(), str(path)], env)
        if venv.returncode:
            raise ProgramError(f"`uv venv` failed for {path}:\n{_tail(venv.stdout)}")
        command = [uv, "pip", "sync", "--require-hashes", "--python", str(path / "bin/python")]
        command += ["--only-binary", ":all:"]
        requirements = Path(lock).read_text(encoding="utf-8")
        command += [*settings.uv_flags(requirements), str(Path(lock).absolute())]
        run_installer("uv", command, lock, path, settings, env, requirements)
        cuda_toolkit.make_cuda_home(path)

    return _ensure(cache, environment_path(cache, lock, kind), make)


def reexec_in_tools(cache: Path, bootstrap_lock: Path, tools_lock: Path) -> None:
    """Run this program again in the environment of the tools lock; returns if it is that one."""
    path = environment_path(cache, tools_lock, "tools")
    if Path(sys.prefix).resolve() == path.resolve():
        return
    if not is_complete(path):
        bootstrap = ensure_bootstrap(cache, bootstrap_lock)
        path = ensure_environment(cache, tools_lock, bootstrap=bootstrap, kind="tools")
    spec = sys.modules["__main__"].__spec__
    if spec is None:
        raise ProgramError("Run this program as a module: python3.12 -m cuda_wheels.sandbox....")
    python = str(path / "bin/python")
    sys.stdout.flush()
    env = {**os.environ, **dict(load_settings(cache).proxies)}
    os.execve(python, [python, "-m", spec.name, *sys.argv[1:]], env)


def _base_python() -> str:
    # Inside an environment sys.executable is that environment's; a nested one would break with it.
    return os.path.realpath(sys.executable)


def _ensure(cache: Path, path: Path, make: Callable[[Path], None]) -> Path:
    if is_complete(path):
        return path
    with locked(cache, path.name), disk_full_explained(path):
        if is_complete(path):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        temporary.chmod(0o755)
        try:
            make(temporary)
            (temporary / COMPLETE).touch()
            if path.exists():
                os.rename(path, f"{temporary}.broken")
            os.rename(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(f"{temporary}.broken", ignore_errors=True)
    return path


@contextlib.contextmanager
def disk_full_explained(where: Path) -> Iterator[None]:
    """Turn a full disk into an error that says so, and how much space there is."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise ProgramError(disk_full_message(where.absolute())) from error
        raise


def disk_full_message(path: Path) -> str:
    """What to say where no space is left for `path`."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(existing).free / 1e9
    return (
        f"Disk full: no space left to write {path} ({free:.1f} GB free on its file system).\n"
        "A build environment with torch and CUDA takes about 6 GB. Free some space, or move Pants' "
        "named caches ([GLOBAL].named_caches_dir) to a larger disk."
    )


def _run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(hide_credentials(text).strip().splitlines()[-lines:])


_USER = re.compile(r"(\w://)[^/\s@]+@")
# How uv and pip name an address that failed, and pip's client a host.
_FETCHED = re.compile(r"[Ff]etch(?:ing)?:? +`?(https?://[^\s`]+)")
_HOST = re.compile(r"host='([^']+)', port=(\d+)")

# What the tools print, and what it means. The first row that matches decides.
_FAULTS = (
    (r"No space left on device|Disk quota exceeded|os error 28\b", "disk"),
    (r"[Hh]ash mismatch|DO NOT MATCH THE HASHES|hashes are required|HASHES ARE REQUIRED", "hash"),
    (r"\b(401|403)\b|Unauthorized|Forbidden", "refused"),
    (
        r"error sending request|dns error|[Cc]onnection (refused|reset|error|broken)|timed? ?out"
        r"|NewConnectionError|name resolution|[Nn]etwork is unreachable|Failed to fetch"
        r"|Network connectivity|certificate|Could not connect",
        "network",
    ),
    (r"No solution found|No matching distribution|not found in the package registry", "missing"),
)


def run_installer(
    tool: str,
    command: list[str],
    lock: Path,
    path: Path,
    settings: Settings,
    env: dict[str, str],
    requirements: str = "",
) -> None:
    """Run `pip` or `uv`, which is to bring to `path` what a lock pins.

    Raises the ProgramError of `install_error` where it fails.
    """
    done = _run(command, env)
    if done.returncode:
        raise install_error(tool, lock, path, settings, done.stdout, requirements)


def install_error(
    tool: str, lock: Path, path: Path, settings: Settings, output: str, requirements: str = ""
) -> ProgramError:
    """What to say where `pip` or `uv` did not install a lock, from what it printed.

    `requirements` is the lock's content: it says which indexes were asked.
    """
    fault = next((kind for pattern, kind in _FAULTS if re.search(pattern, output)), "other")
    if fault == "disk":
        return ProgramError(disk_full_message(path))
    told = fault in ("hash", "network", "refused")
    asked = _Asked.by(tool, settings, requirements, output if told else "")
    text = {
        "hash": f"A package of {lock} does not have the hash that the lock declares. "
        f"{asked.do('serves', 'serve')} another file, or the lock is out of date: write it again "
        "with `./pants cuda-lock`, after you have found out why the file changed.",
        "network": f"{asked.do('is', 'are')} out of reach, and {lock} needs packages that are not "
        f"in the cache yet. Check the network, the proxy and {asked.options}.",
        "refused": f"{asked.do('refused', 'refused')} to serve a package of {lock}. Check the user "
        f"and password in {asked.options}, or in the keyring that they come from.",
        "missing": f"{asked.do('does', 'do')} not have every package of {lock}. Check "
        f"{asked.options}, or write the lock again with `./pants cuda-lock`.",
        "other": f"{tool} could not install {lock}.",
    }[fault]
    if settings.no_index and fault == "missing":
        text = (
            f"The places of [python-repos].find_links do not have every package of {lock}, and no "
            f"index is asked: {NO_INDEX}"
        )
    note = settings.torch_note(requirements)
    if note and fault in ("network", "refused", "missing") and asked.torch:
        text = f"{text}\n{note}"
    return ProgramError(f"{text}\nThe last lines of {tool}:\n{_tail(output)}")


@dataclass(frozen=True)
class _Asked:
    """Where packages were looked for, or those of these places that the tool blames.

    `package` are `[python-repos]`' or the tool's default, `torch` is for a torch with a local
    version; `elsewhere` is an address that the tool blames and that is none of them: an index may
    have its files on another host.
    """

    package: tuple[str, ...]
    torch: tuple[str, ...]
    elsewhere: str = ""

    @classmethod
    def by(cls, tool: str, settings: Settings, requirements: str, output: str) -> _Asked:
        """The places that `output` blames; all that were asked where it blames none of them."""
        package = (*settings.indexes, *settings.find_links)
        torch = tuple(settings.torch_indexes_for(requirements))
        blamed = _blamed((*package, *torch), output)
        other = _FETCHED.search(hide_credentials(output))
        if blamed:
            package = tuple(place for place in package if place in blamed)
            torch = tuple(place for place in torch if place in blamed)
        elif other and not settings.indexes and not settings.no_index:
            # It blames an address that was not configured: the default index is the only one.
            package, torch = (*package, f"{tool}'s default"), ()
        elif not settings.indexes:
            package = (*package, "none" if settings.no_index else f"{tool}'s default")
        elsewhere = other[1] if other and settings.indexes and not blamed else ""
        return cls(package, torch, elsewhere)

    def do(self, one: str, both: str) -> str:
        """The places, and a verb for them: the beginning of a sentence."""
        groups = (("the package index", self.package), ("the PyTorch index", self.torch))
        names = [
            f"{name} ({', '.join(map(hide_credentials, places))})"
            for name, places in groups
            if places
        ]
        text, verb = " and ".join(names), one if len(names) == 1 else both
        if self.elsewhere:
            return f"{self.elsewhere}, to which an index leads ({text}), {one}"
        return f"{text[0].upper()}{text[1:]} {verb}"

    @property
    def options(self) -> str:
        """The options that name the places."""
        package = ("[python-repos].indexes",) if self.package else ()
        torch = ("[cuda-wheels].source_mirrors",) if self.torch else ()
        return " and ".join((*package, *torch))


def _blamed(places: tuple[str, ...], output: str) -> set[str]:
    """The places that a tool names: by an address in them, or by their host as pip does."""
    bare = {place: _USER.sub(r"\1", place).rstrip("/") for place in places}
    found = set()
    for address in re.findall(r"https?://[^\s'\"`<>)]+", _USER.sub(r"\1", output)):
        inside = [place for place in places if f"{address}/".startswith(f"{bare[place]}/")]
        found.update(sorted(inside, key=lambda place: len(bare[place]))[-1:])
    if found:
        return found
    hosts = {f"{host}:{port}" for host, port in _HOST.findall(output)}
    return {place for place in places if _host_and_port(place) in hosts}


def _host_and_port(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme)}"
