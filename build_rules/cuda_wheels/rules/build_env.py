"""The locked build environment of a row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pants.engine.addresses import Address
from pants.engine.fs import Digest, DigestContents, PathGlobs
from pants.engine.rules import Get, collect_rules, rule

from cuda_wheels.tables.rows import Row
from cuda_wheels.tables.torch import lock_indexes, torch_build


@dataclass(frozen=True)
class BuildEnvLockRequest:
    """The row whose build environment is wanted."""

    row: Row


@dataclass(frozen=True)
class BuildEnvLock:
    """The hash-locked requirements file of a row; the digest is empty where there is none.

    `problem`: why the file that is there can be no lock.
    """

    path: str
    digest: Digest
    sha256: str
    problem: str | None = None


def lock_problem(row: Row, address: Address) -> str:
    """That the row of a wheel has no lock, and what writes one; the row itself must be sound."""
    return (
        f"The row has no locked build environment: {row.lock_path} does not exist. Make it with "
        f"`./pants cuda-lock {address}`, look at it, and commit it.{_where_to_lock(row)}"
    )


def text_problem(path: str, content: bytes) -> str | None:
    """Why no program can read a lock; None if one can. What it says uv judges."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return (
            f"The lock {path} is no text in UTF-8: byte {error.start} is {content[error.start]:#x}. "
            "Restore it from version control, or write it again with `./pants cuda-lock`."
        )
    return None


def _where_to_lock(row: Row) -> str:
    """On which machine a row's lock can be made, where that is not any one."""
    indexes = lock_indexes(row.arch, row.accel, row.torch)
    if not indexes or row.torch is None:
        return ""
    wanted = torch_build(row.torch, row.accel, row.arch).requirement
    return (
        f" {wanted} is not on the package index: run that on a machine, of any architecture, that "
        f"reaches {', '.join(indexes)}, or name a mirror of this address in "
        "`[cuda-wheels].source_mirrors`."
    )


@rule
async def find_build_env_lock(request: BuildEnvLockRequest) -> BuildEnvLock:
    path = request.row.lock_path
    digest = await Get(Digest, PathGlobs([path]))
    contents = await Get(DigestContents, Digest, digest)
    content = contents[0].content if contents else b""
    return BuildEnvLock(
        path, digest, hashlib.sha256(content).hexdigest(), text_problem(path, content)
    )


def rules():
    return collect_rules()
