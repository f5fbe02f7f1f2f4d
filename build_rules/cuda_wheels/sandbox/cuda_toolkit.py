"""What looks like an installed CUDA toolkit in an environment that holds CUDA's packages."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path

CUDA_TOOLS = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")
TARGET_DIRECTORIES = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}


def make_cuda_home(env: Path) -> Path | None:
    """Make `<env>/cuda` of relative links, if the environment holds CUDA's compiler.

    Build scripts want `lib64` and unversioned names such as `libcudart.so`; pccm's also want the
    layout of conda, `lib` and `targets/<machine>/include`. The packages have neither. Those of CUDA
    13.0.0 also have cicc where their nvcc does not look for it.
    """
    found = sorted(Path(env).glob("lib/python3*/site-packages/nvidia/cu[0-9]*/bin/nvcc"))
    if not found:
        return None
    toolkit = found[-1].parent.parent
    cicc = toolkit / "nvvm/bin/cicc"
    if not cicc.exists():
        cicc.parent.mkdir(parents=True, exist_ok=True)
        _link(cicc, toolkit / "bin/cicc")
    home = Path(env) / "cuda"
    libraries = home / "lib64"
    libraries.mkdir(parents=True)
    for name in ("bin", "include", "nvvm"):
        _link(home / name, toolkit / name)
    for library in sorted((toolkit / "lib").iterdir()):
        _link(libraries / library.name, library)
        unversioned = re.sub(r"\.so\..*", ".so", library.name)
        if unversioned != library.name and not (toolkit / "lib" / unversioned).exists():
            (libraries / unversioned).unlink(missing_ok=True)
            _link(libraries / unversioned, library)
    _link(home / "lib", libraries)
    target = home / "targets" / TARGET_DIRECTORIES.get(platform.machine(), "x86_64-linux")
    target.mkdir(parents=True)
    _link(target / "include", toolkit / "include")
    _link(target / "lib", libraries)
    return home


def cuda_digest(home: Path) -> str:
    """A digest of the compiler programs of a CUDA toolkit: what ccache knows a compiler by."""
    digest = hashlib.sha256()
    for name in CUDA_TOOLS:
        path = Path(home) / name
        if path.exists():
            with open(path, "rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def _link(link: Path, target: Path) -> None:
    if target.exists():
        link.symlink_to(os.path.relpath(target, link.parent))
