"""What a toolchain image is built from: the context that the rules sent, and what they cannot know.

The rules send the Dockerfile, `image.json`, the program that makes environments and its locks. Here
the certificates of the site are added, and the image gets its name: its tag stands for all of that.
The wheels are not in it, since the locks have their hashes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import environment
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.tables.dockerfile import SITE_CA
from cuda_wheels.tables.images import image_tag

DESCRIPTION = "image.json"
WHEELS = "bake/wheels"

# The platforms of wheels for a C library of 2.28, newest first.
_POLICIES = tuple(f"manylinux_2_{minor}" for minor in range(28, 4, -1))
_OLD_POLICIES = ("manylinux2014", "manylinux2010", "manylinux1")


def complete(context: Path, repository: str, ca_certs: str | None) -> str:
    """Add the certificates and the name; returns the name, `<repository>:<tag>`.

    Raises ProgramError if the certificates cannot be read.
    """
    if ca_certs:
        try:
            (context / SITE_CA).write_bytes(Path(ca_certs).read_bytes())
        except OSError as error:
            raise ProgramError(
                f"The certificates of `[GLOBAL].ca_certs_path`, {ca_certs}, cannot be read: "
                f"{error.strerror}."
            ) from error
    files = {
        path.relative_to(context).as_posix(): path.read_bytes()
        for path in sorted(context.rglob("*"))
        if path.is_file()
    }
    name = f"{repository}:{image_tag(files)}"
    description = json.loads(files[DESCRIPTION])
    description["name"] = name
    path = context / DESCRIPTION
    # What Pants puts into a sandbox may be shared with its store.
    path.unlink()
    path.write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return name


def fetch_wheels(context: Path, cache: Path, bootstrap: Path, arch: str) -> None:
    """Fetch all wheels that the locks in the context pin, for the image's architecture.

    Raises ProgramError if one cannot be had.
    """
    request = json.loads((context / "bake/request.json").read_text(encoding="utf-8"))
    locks = [request["bootstrap_lock"], *request["tools_locks"], *request["locks"]]
    settings = environment.load_settings(cache)
    env = settings.environment({})
    for lock in dict.fromkeys(locks):
        path = context / "bake" / lock
        text = path.read_text(encoding="utf-8")
        command = [str(bootstrap / "bin/python"), "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--only-binary=:all:", "--require-hashes", "--no-cache-dir"]
        command += ["--dest", str(context / WHEELS), *platform_flags(arch), *settings.pip_flags()]
        if not settings.no_index:
            for index in settings.torch_indexes_for(text):
                command += ["--extra-index-url", index]
        command += ["-r", str(path)]
        environment.run_installer("pip", command, Path(lock), context, settings, env, text)


def platform_flags(arch: str) -> list[str]:
    """pip's flags for CPython 3.12 on glibc 2.28."""
    machine = MACHINES[arch]
    flags = ["--python-version", "3.12", "--implementation", "cp"]
    for abi in ("cp312", "abi3", "none"):
        flags += ["--abi", abi]
    for policy in (*_POLICIES, *_OLD_POLICIES):
        flags += ["--platform", f"{policy}_{machine}"]
    return [*flags, "--platform", f"linux_{machine}"]


def summary(context: Path, name: str, **more: Any) -> dict[str, Any]:
    """What is told of an image: its own description, and what the daemon knows."""
    description = json.loads((context / DESCRIPTION).read_text(encoding="utf-8"))
    return {**description, "name": name, **more}
