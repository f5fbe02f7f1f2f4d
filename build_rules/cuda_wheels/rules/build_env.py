"""The locked build environment of a row."""

from __future__ import annotations

from dataclasses import dataclass

from pants.engine.fs import Digest, PathGlobs
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


@rule
async def find_build_env_lock(request: BuildEnvLockRequest) -> BuildEnvLock:
    path = request.row.lock_path
    return BuildEnvLock(path, await Get(Digest, PathGlobs([path])))


def rules():
    return collect_rules()
