"""Locks a build environment: exact versions and hashes, no addresses.

Request: `requirements`, `python`, `arch`, `out`. uv resolves for the target platform whatever
machine this is, so one machine locks both architectures. A torch with a local version is looked for
on the PyTorch index that the session's settings name for it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import environment, files, program
from cuda_wheels.tables.accelerators import MACHINES
from cuda_wheels.tables.torch import uv_platform

REASON_LINES = 15


def compile_arguments(request: Mapping[str, Any], settings: environment.Settings) -> list[str]:
    """The arguments of uv that lock this request; requirements come through stdin."""
    arch = request["arch"]
    if arch not in MACHINES:
        raise program.ProgramError(
            f"arch {arch!r} is unknown; known are {', '.join(sorted(MACHINES))}."
        )
    return [
        "pip",
        "compile",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--no-emit-index-url",
        "--no-emit-find-links",
        # Only wheels: a lock never runs a setup.py, and both architectures lock alike.
        "--only-binary=:all:",
        f"--python-platform={uv_platform(arch)}",
        f"--python-version={request['python']}",
        *settings.uv_flags("\n".join(request["requirements"])),
        "-",
    ]


def reason(stderr: str) -> str:
    """uv's reason for a failure, without credentials and not longer than a screen."""
    lines = [
        line.rstrip() for line in environment.hide_credentials(stderr).splitlines() if line.strip()
    ]
    lines = [line for line in lines if not re.match(r"\s*(warning|hint)\b", line)] or lines
    shown = lines[:REASON_LINES]
    if len(lines) > len(shown):
        shown.append(f"... ({len(lines) - len(shown)} more lines)")
    return "\n".join(f"  {line}" for line in shown) or "  uv gave no reason."


def check(lock: str) -> None:
    """Refuse a lock that pins without hashes or that holds an address."""
    if "://" in lock:
        raise program.ProgramError(
            "The lock would hold an address, which ties it to one index: give requirements as "
            "`name==version`, not as a URL."
        )
    if "--hash=sha256:" not in lock:
        raise program.ProgramError(
            "The lock would hold no hashes, so nothing was written: uv resolved no package. Give "
            "at least one requirement."
        )


def _note(settings: environment.Settings, requirements: Sequence[str]) -> str:
    note = settings.torch_note("\n".join(requirements))
    return f"\n  {note}" if note else ""


def main(request: Mapping[str, Any]) -> None:
    """Resolve the requirements and write the lock."""
    cache = Path(request["cache"])
    settings = environment.load_settings(cache)
    arguments = compile_arguments(request, settings)
    bootstrap = environment.ensure_bootstrap(cache, Path(request["bootstrap_lock"]))
    done = subprocess.run(
        [str(bootstrap / "bin" / "uv"), *arguments],
        input="".join(f"{line}\n" for line in request["requirements"]),
        capture_output=True,
        text=True,
        env={
            **settings.environment(os.environ),
            "UV_CACHE_DIR": str((cache / "uv").absolute()),
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        },
        check=False,
    )
    if done.returncode != 0:
        raise program.ProgramError(
            f"No lock for {request['arch']}, Python {request['python']}:\n"
            f"  wanted: {', '.join(request['requirements'])}\n{reason(done.stderr)}"
            f"{_note(settings, request['requirements'])}"
        )
    check(done.stdout)
    files.write_atomically(Path(request["out"]), done.stdout)


if __name__ == "__main__":
    program.run(main)
