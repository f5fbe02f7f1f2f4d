"""How every sandbox program starts and fails.

A program is run as `python3.12 -m cuda_wheels.sandbox.<program> request.json [options]`. What the
user did wrong, or what the machine lacks, is a `ProgramError`: its text is all that is printed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class ProgramError(Exception):
    """A fault that the user can act on: what was declared, what was found, what to do next."""


def read_request(argv: list[str]) -> dict[str, Any]:
    """Read the JSON request named by the first argument."""
    if len(argv) < 2:
        raise ProgramError(f"usage: {argv[0]} REQUEST.json\nNo request file was given.")
    path = Path(argv[1])
    try:
        request = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProgramError(f"The request file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ProgramError(f"The request file {path} is not JSON: {error}.") from error
    if not isinstance(request, dict):
        raise ProgramError(f"The request file {path} does not hold a JSON object.")
    return request


def require(request: dict[str, Any], *names: str) -> None:
    """Report every key that the request lacks, all at once."""
    missing = [name for name in names if name not in request]
    if missing:
        raise ProgramError(f"The request lacks: {', '.join(missing)}.")


def run(main: Callable[[dict[str, Any]], None]) -> None:
    """Call `main` with the request; what the user can act on becomes its message and exit code 1."""
    try:
        main(read_request(sys.argv))
    except ProgramError as error:
        _fail(str(error))
    except OSError as error:
        if not is_disk_full(error):
            raise
        _fail(
            f"The disk is full: {_reason(error)}. Free some space, or move Pants' sandboxes and caches with "
            "[GLOBAL].local_execution_root_dir and [GLOBAL].named_caches_dir."
        )


def is_disk_full(error: BaseException) -> bool:
    """Whether no space, or none of the user's quota, was left."""
    if isinstance(error, shutil.Error):
        return any(os.strerror(code) in str(error) for code in _NO_SPACE)
    return isinstance(error, OSError) and error.errno in _NO_SPACE


def _reason(error: OSError) -> str:
    # Of a tree that was copied, the first of its files: source, target and what was wrong.
    return str(error.args[0][0][2]) if isinstance(error, shutil.Error) else str(error)


def _fail(message: str) -> NoReturn:
    sys.stdout.flush()
    print(message, file=sys.stderr)
    sys.exit(1)
