"""What a toolchain image is made of, by what it is built on and what it compiles for.

`tables.dockerfile` renders it. Wheels carry the platform tag that the image declares, which
auditwheel then judges.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cuda_wheels.tables.accelerators import (
    BASES,
    SUPPORTED_ARCHES,
    find_accelerator,
    image_name,
)
from cuda_wheels.tables.gcc import gcc_toolset
from cuda_wheels.tables.rows import Row, place_problems
from cuda_wheels.tables.system_headers import SYSTEM_HEADERS

PYTHON = "3.12"

# Of CPython, where a system has no package of it: what uv fetches, whose hash uv itself knows.
UV_PYTHON = "3.12.12"

CUDA_HOME = "/usr/local/cuda"
"""Where NVIDIA's images have their toolkit."""

DNF = "dnf"
APT = "apt"

FROM_PACKAGES = "packages"
FROM_UV = "uv"
FROM_BASE = "base"


@dataclass(frozen=True)
class System:
    """A Linux that images are built on.

    `platform_policy` is the manylinux policy of its wheels; None: they are for this Linux alone.
    `newest_gcc` is the newest major that it has a package of, None where any gcc-toolset is one.
    `python` says where CPython 3.12 with its headers comes from.
    """

    name: str
    manager: str
    platform_policy: str | None
    newest_gcc: int | None
    python: str

    @property
    def python_packages(self) -> tuple[str, ...]:
        """The packages that bring CPython 3.12, its headers and `venv`."""
        if self.python == FROM_PACKAGES:
            headers = "devel" if self.manager == DNF else "dev"
            venv = () if self.manager == DNF else (f"python{PYTHON}-venv",)
            return (f"python{PYTHON}", f"python{PYTHON}-{headers}", *venv)
        # uv comes as a wheel, which this Python unpacks.
        return ("python3",) if self.python == FROM_UV else ()


# Rocky Linux 8 stands for manylinux_2_28; wheels of Ubuntu have no manylinux tag. Sources: package
# lists of RHEL 8.10's AppStream, Ubuntu 22.04, 24.04 and Debian 11. The policy of Debian 11 is that of
# its glibc, 2.31. It has no CPython 3.12: its base image must.
SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System("manylinux_2_28", DNF, "manylinux_2_28", None, FROM_PACKAGES),
        System("ubuntu24.04", APT, None, 14, FROM_PACKAGES),
        System("ubuntu22.04", APT, None, 12, FROM_UV),
        System("debian11", APT, "manylinux_2_31", 10, FROM_BASE),
    )
}
DEFAULT_SYSTEM = "manylinux_2_28"

# What every build needs beside the compilers, by package manager. Source:
# Pointcept's build_wheels.sh.
_TOOLS: dict[str, tuple[str, ...]] = {
    DNF: ("ca-certificates", "cmake", "git", "make", "pkgconf-pkg-config", "util-linux", "which"),
    APT: ("ca-certificates", "cmake", "git", "make", "pkg-config", "util-linux"),
}

# Packages that a `toolchain_image` may name beside them -> theirs in each package manager.
LIBRARIES: dict[str, dict[str, str]] = {
    "openblas": {DNF: "openblas-devel", APT: "libopenblas-dev"},
}

# What dnf needs before it finds the others: EPEL has sparsehash, PowerTools what EPEL relies on.
DNF_REPOSITORIES = ("dnf-plugins-core", "epel-release")

_BASE = re.compile(r"([\w./:-]+@)?sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """A toolchain image as it is declared.

    `base` is what it is built on, with its digest: `nvidia/cuda:13.0.3-devel-rockylinux8@sha256:...`
    or the id of an image of this machine, `sha256:...`; None where none is pinned. `own_base`: it
    is the target's, not the published one of the accelerator. `baked_locks` are the paths of the
    locks whose build environments are in the image.
    """

    arch: str
    accel: str
    system: str = DEFAULT_SYSTEM
    base: str | None = None
    own_base: bool = False
    cuda_home: str | None = None
    libraries: tuple[str, ...] = ()
    baked_locks: tuple[str, ...] = ()

    @property
    def gcc(self) -> int:
        """The major version of its gcc: that of the gcc-toolset, or the newest that there is."""
        newest = SYSTEMS[self.system].newest_gcc
        wanted = gcc_toolset(self.accel)
        return wanted if newest is None else min(wanted, newest)

    @property
    def packages(self) -> tuple[str, ...]:
        """All packages that are installed, sorted; not those that they require."""
        system = SYSTEMS[self.system]
        if system.manager == DNF:
            parts = ("gcc", "gcc-c++", "binutils")
            compilers = tuple(f"gcc-toolset-{self.gcc}-{part}" for part in parts)
            headers = tuple(header.dnf for header in SYSTEM_HEADERS.values())
        else:
            compilers = tuple(f"{name}-{self.gcc}" for name in ("gcc", "g++"))
            headers = tuple(header.apt for header in SYSTEM_HEADERS.values())
        libraries = tuple(LIBRARIES[name][system.manager] for name in self.libraries)
        found = (*_TOOLS[system.manager], *compilers, *headers, *libraries, *system.python_packages)
        return tuple(sorted(set(found)))

    @property
    def compilers(self) -> tuple[str, str]:
        """The paths of its gcc and g++."""
        if SYSTEMS[self.system].manager == DNF:
            programs = f"/opt/rh/gcc-toolset-{self.gcc}/root/usr/bin"
            return f"{programs}/gcc", f"{programs}/g++"
        return f"/usr/bin/gcc-{self.gcc}", f"/usr/bin/g++-{self.gcc}"

    @property
    def toolkit(self) -> str | None:
        """The directory of its CUDA toolkit; None where the compiler comes with the lock."""
        found = find_accelerator(self.accel)
        if self.own_base or found is None or found.kind != "cuda":
            return self.cuda_home
        return self.cuda_home or CUDA_HOME

    def description(self, name: str) -> dict[str, str | None]:
        """What the image says of itself, in the file that `sandbox/probe.py` reads.

        `name` is the image's, with the tag that stands for all it is made of.
        """
        gcc, gxx = self.compilers
        return {
            "name": name,
            "base": self.base,
            "arch": self.arch,
            "accel": self.accel,
            "platform_policy": SYSTEMS[self.system].platform_policy,
            "cuda_home": self.toolkit,
            "gcc": gcc,
            "gxx": gxx,
            "ca_certs": ca_bundle(self.system),
        }


def ca_bundle(system: str) -> str:
    """The file with all certificates that a system trusts, those of the site among them."""
    if SYSTEMS[system].manager == DNF:
        return "/etc/pki/tls/certs/ca-bundle.crt"
    return "/etc/ssl/certs/ca-certificates.crt"


def default_system(accel: str) -> str:
    """What images of an accelerator are built on: AMD publishes ROCm for Ubuntu alone."""
    found = find_accelerator(accel)
    return "ubuntu24.04" if found and found.kind == "rocm" else DEFAULT_SYSTEM


def image_variants() -> tuple[tuple[str, str], ...]:
    """Architecture and accelerator of every image that can be built."""
    return tuple((arch, accel) for arch, accels in SUPPORTED_ARCHES.items() for accel in accels)


def image_problems(image: Image) -> tuple[str, ...]:
    """Every reason why an image cannot be built, each with what to do; () if it can."""
    if image.system not in SYSTEMS:
        close = difflib.get_close_matches(image.system, SYSTEMS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(SYSTEMS)
        return (f"`os` is {image.system!r}, which is unknown.{hint} Known: {known}.",)
    return (
        *_place_problems(image),
        *_base_problems(image),
        *_library_problems(image),
    )


def _place_problems(image: Image) -> tuple[str, ...]:
    # Whether an accelerator is published for a system is no question for a base of one's own.
    system = image.system if image.system in BASES else default_system(image.accel)
    return place_problems(Row(image.arch, image.accel, None, PYTHON), system)


def _base_problems(image: Image) -> tuple[str, ...]:
    if image.base is None:
        published = image_name(image.accel, image.system)
        if image.own_base or published is None:
            if image.system in BASES:
                return ()
            return (
                f"Nobody publishes an image of {image.accel} on {image.system}. Name one of your own "
                f"that has CPython {PYTHON} in `base_image`, with its digest.",
            )
        return (
            f"The base image {published} is not pinned: `BASE_PINS` of images/pins.py has no digest "
            f"of it. `./pants cuda-pin-images --bases images:{image.arch}-{image.accel}` asks its "
            "registry for one and writes it there.",
        )
    if _BASE.fullmatch(image.base):
        return ()
    return (
        f"The base image {image.base!r} has no digest, so it may be another one tomorrow. Write "
        "`NAME@sha256:...` (`docker images --digests` prints it), or the id of an image that is "
        "only on this machine, `sha256:...` (`docker images --no-trunc`).",
    )


def _library_problems(image: Image) -> tuple[str, ...]:
    return tuple(
        f"`libraries` names {name!r}, of which it is not known what installs it. Known: "
        f"{', '.join(LIBRARIES)}. Add a row to `LIBRARIES` in `tables/images.py`."
        for name in image.libraries
        if name not in LIBRARIES
    )


def image_tag(files: Mapping[str, bytes]) -> str:
    """The tag of an image: 16 hexadecimal digits that stand for all files that it is made of.

    `files` maps paths of the build context to their content. Wheels need not be among them: the
    locks have their hashes.
    """
    known = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
