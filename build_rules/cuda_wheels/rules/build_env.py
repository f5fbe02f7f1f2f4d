"""The locked build environment of a row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pants.engine.fs import Digest, DigestContents, PathGlobs
from pants.engine.rules import Get, collect_rules, rule

from cuda_wheels.tables.rows import Row


@dataclass(frozen=True)
class BuildEnvLockRequest:
    """The row whose build environment is wanted."""

    row: Row


@dataclass(frozen=True)
class BuildEnvLock:
    """The hash-locked requirements file of a row; the digest is empty where there is none."""

    path: str
    digest: Digest
    sha256: str


@rule
async def find_build_env_lock(request: BuildEnvLockRequest) -> BuildEnvLock:
    path = request.row.lock_path
    digest = await Get(Digest, PathGlobs([path]))
    contents = await Get(DigestContents, Digest, digest)
    content = contents[0].content if contents else b""
    return BuildEnvLock(path, digest, hashlib.sha256(content).hexdigest())


def rules():
    return collect_rules()
