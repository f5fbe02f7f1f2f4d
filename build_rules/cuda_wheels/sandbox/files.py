"""Writes files so that nobody sees a part of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part.

    Raises OSError where that is not possible; the old file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp makes the file 0600: a secret in it is at no moment readable by others.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
