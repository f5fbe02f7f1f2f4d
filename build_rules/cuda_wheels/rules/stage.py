"""What every stage of a wheel's way returns when it fails, and how a program's failure is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pants.engine.fs import EMPTY_DIGEST, Digest
from pants.engine.process import FallibleProcessResult

# The stage of a wheel that is not built because its package cannot serve the row.
SKIP = "skip"

# The script that leads an action to a worker's append-only caches says this of a cache at the top of
# the sandbox, where there is no directory to make (`process_execution`, 2.17).
_NO_DIRECTORY = re.compile(
    r"^\S*mkdir: cannot create directory \W*: No such file or directory\n?", re.M
)

# Locks lie in a sandbox as in the repository: where that sandbox was says nothing to a user.
_SANDBOX = re.compile(r"/[^\s'\"`]*pants-sandbox[^\s'\"`/]*/(?=3rdparty/)")

# The exit code that Pants gives a process which it ended for its `timeout_seconds`.
_TIMEOUT_EXIT_CODE = -15
# SIGKILL, as Pants and as a container's shell tell of it.
_KILLED_EXIT_CODES = (-9, 137)


@dataclass(frozen=True)
class StageFailure:
    """Why a stage did not give its result; `log` holds the compile step's `build.log` if any."""

    stage: str
    message: str
    log: Digest = EMPTY_DIGEST


@dataclass(frozen=True)
class Tree:
    """The files of a stage, or why there are none."""

    digest: Digest = EMPTY_DIGEST
    failure: StageFailure | None = None


def program_failure(
    stage: str, result: FallibleProcessResult, *, timeout: int | None = None
) -> StageFailure | None:
    """The failure that a program's result stands for; None where it succeeded."""
    if result.exit_code == 0:
        return None
    message = _NO_DIRECTORY.sub("", result.stderr.decode(errors="replace")).strip()
    message = _SANDBOX.sub("", message)
    if result.exit_code == _TIMEOUT_EXIT_CODE and timeout:
        message = (
            f"The step was ended after its `timeout` of {timeout} seconds. Finished objects are "
            "in the compiler cache: the same command resumes. Raise the target's `timeout` field "
            f"if it needs longer.\n{message}"
        ).strip()
    if not message and result.exit_code in _KILLED_EXIT_CODES:
        message = (
            f"The step was killed (exit code {result.exit_code}): its container was stopped, Docker "
            "with it, or there was no memory left. What was compiled is in the compiler's cache."
        )
    return StageFailure(
        stage, message or f"The step ended with exit code {result.exit_code} and said nothing."
    )
