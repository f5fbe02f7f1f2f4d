"""A stand-in for the bases of the toolchain images, made on the machine: Debian bullseye and CPython 3.12.

No registry has to be within reach: the base comes from the Debian mirror that apt is configured with,
by debootstrap, which takes root. It is made once and kept below `${XDG_CACHE_HOME:-~/.cache}`.

`python -m images.stand_in` makes it and prints its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from images import portable_python

SUITE = "bullseye"
REPOSITORY = "cuda-wheels-test/bullseye"
PYTHON = Path("/opt/python3.12")

# What is in the base besides `debootstrap --variant=minbase`: as much as a registry's image has.
PACKAGES = ("ca-certificates",)
# The distribution's certificates, and those of the site.
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")


def base_image(client: docker.DockerClient) -> str:
    """The name of the base, which is made and imported where it is missing."""
    name = f"{REPOSITORY}:{_identity()}"
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    # Several tests at once may want it.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _import_missing(client, name)
    return name


def _import_missing(client: docker.DockerClient, name: str) -> None:
    try:
        client.images.get(name)
    except ImageNotFound:
        archive = _archive()
        repository, tag = name.split(":")
        client.api.import_image_from_file(
            str(archive),
            repository=repository,
            tag=tag,
            changes=["ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        )


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cuda-wheels-test-images"


def empty_image(client: docker.DockerClient, arch: str) -> str:
    """The name of an image without a file, of any architecture; remove it after use."""
    name = f"{REPOSITORY}-empty:{arch}"
    layer = _archive_of({})
    config = {
        "architecture": arch,
        "os": "linux",
        "config": {"Cmd": ["/none"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    client.images.load(
        _archive_of(
            {
                "config.json": json.dumps(config).encode(),
                "manifest.json": json.dumps(manifest).encode(),
                "layer.tar": layer,
            }
        )
    )
    return name


def _archive_of(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def _identity() -> str:
    """A hash of what the base is made of: a release, its packages, and the Python that is copied."""
    parts = [SUITE, *PACKAGES, str(PYTHON), sys.version, platform.machine()]
    parts.append(Path(portable_python.__file__).read_text())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _archive() -> Path:
    archive = _cache() / f"{SUITE}-{_identity()}.tar"
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        root = Path(scratch) / "root"
        _debootstrap(root)
        python = Path(os.path.realpath(sys.executable))
        interpreter = portable_python.copy_python(python, root, PYTHON)
        (root / "usr/local/bin/python3.12").symlink_to(interpreter)
        shutil.copy(Path("/") / CERTIFICATES, root / CERTIFICATES)
        finished = Path(scratch) / archive.name
        _run("tar", "-C", str(root), "--numeric-owner", "-cf", str(finished), ".")
        os.rename(finished, archive)
    return archive


def _debootstrap(root: Path) -> None:
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    _run("debootstrap", *options, SUITE, str(root), _mirror())
    for downloaded in (root / "var/cache/apt/archives").glob("*.deb"):
        downloaded.unlink()


def _mirror() -> str:
    """The Debian archive among apt's sources: the one whose address ends as that of a mirror does."""
    listed = _run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    found = dict.fromkeys(uri for uri in listed.split() if uri.rstrip("/").endswith("/debian"))
    if not found:
        raise RuntimeError(f"apt has no mirror of Debian's archive among its sources: {listed}")
    return next(iter(found)).rstrip("/")


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    print(base_image(docker.from_env()))
