"""The locked build environment of a row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pants.engine.addresses import Address
from pants.engine.fs import Digest, DigestContents, PathGlobs
from pants.engine.rules import Get, collect_rules, rule

from cuda_wheels.tables.rows import Row
from cuda_wheels.tables.torch import lock_indexes


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


def lock_problem(row: Row, address: Address) -> str:
    """That the row of a wheel has no lock, and what writes one; the row itself must be sound."""
    indexes = " and ".join(lock_indexes(row.arch, row.accel, row.torch))
    needs = f" (it asks {indexes} too, beside the package index)" if indexes else ""
    return (
        f"The row has no locked build environment: {row.lock_path} does not exist. Make it with "
        f"`./pants cuda-lock {address}`{needs}, look at it, and commit it."
    )


@rule
async def find_build_env_lock(request: BuildEnvLockRequest) -> BuildEnvLock:
    path = request.row.lock_path
    digest = await Get(Digest, PathGlobs([path]))
    contents = await Get(DigestContents, Digest, digest)
    content = contents[0].content if contents else b""
    return BuildEnvLock(path, digest, hashlib.sha256(content).hexdigest())


def rules():
    return collect_rules()
