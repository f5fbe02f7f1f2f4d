"""A toolchain image on the stand-in base, with what builds need and what it says of itself."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import docker
from docker.errors import ImageNotFound

from images.stand_in import CERTIFICATES, base_image

REPOSITORY = "cuda-wheels-test/amd64-cu130"
DOCKERFILE = """\
FROM {base}
RUN apt-get update \\
 && apt-get install -y --no-install-recommends gcc g++ git \\
 && rm -rf /var/lib/apt/lists/*
COPY image.json /etc/cuda-wheels/image.json
LABEL cuda-wheels.accel="cu130"
"""
DESCRIPTION = {
    "arch": "amd64",
    "accel": "cu130",
    "platform_policy": "manylinux_2_31",
    "cuda_home": None,
    "gcc": "gcc",
    "gxx": "g++",
    "ca_certs": f"/{CERTIFICATES}",
}


def toolchain_image(client: docker.DockerClient) -> str:
    """The name of a toolchain image for amd64 and cu130 on that base, built where it is missing."""
    base = base_image(client)
    dockerfile = DOCKERFILE.format(base=base)
    tag = hashlib.sha256(f"{dockerfile} {DESCRIPTION}".encode()).hexdigest()[:16]
    name = f"{REPOSITORY}:{tag}"
    try:
        client.images.get(name)
    except ImageNotFound:
        description = {"name": name, "base": client.images.get(base).id, **DESCRIPTION}
        client.images.build(
            fileobj=build_context(
                {"Dockerfile": dockerfile, "image.json": json.dumps(description, indent=1)}
            ),
            custom_context=True,
            tag=name,
            rm=True,
        )
    return name


def build_context(files: dict[str, str]) -> io.BytesIO:
    """A build context with these files, as the daemon takes it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as context:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            context.addfile(member, io.BytesIO(text.encode()))
    archive.seek(0)
    return archive
