"""Counts the device images of a library with `cuobjdump`.

Every image counts: one source file that was compiled for another GPU makes one more kind of image,
and a library with one missing on a GPU fails there, at the first call.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.wheel_facts import gpu_order

_IMAGE = re.compile(r"(ELF|PTX) file\s+\d+:.*\.(?:sm|compute)_(\d+[a-z]?)\.(?:cubin|ptx)")
# It exits with an error where there is nothing to list, and says so on stderr.
_NOTHING = ("does not contain device code", "No PTX file found", "No ELF file found")


def find_cuobjdump(path: Sequence[str] | None = None) -> Path:
    """The `cuobjdump` of the tools environment, looked for as modules are."""
    folders = [Path(entry) for entry in (sys.path if path is None else path)]
    found = [tool for folder in folders for tool in folder.glob("nvidia/*/bin/cuobjdump")]
    if not found:
        raise ProgramError(
            "There is no cuobjdump in the tools environment: it belongs to the package "
            "nvidia-cuda-cuobjdump of 3rdparty/python/wheel-tools.txt. Lock that file again."
        )
    return found[0]


def device_images(name: str, path: Path, cuobjdump: Path) -> tuple[tuple[str, int], ...]:
    """How many images of each GPU arch the library at `path` holds; `name` is for messages."""
    done = subprocess.run(
        [str(cuobjdump), "--list-elf", "--list-ptx", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode and not any(text in done.stderr for text in _NOTHING):
        raise ProgramError(
            f"cuobjdump cannot read the device code of {name} (exit code {done.returncode}): "
            f"{done.stderr.strip() or 'it said nothing'}"
        )
    return parse_images(name, done.stdout)


def parse_images(name: str, listing: str) -> tuple[tuple[str, int], ...]:
    """The images that cuobjdump lists: cubins as `sm_90`, PTX as `compute_90`."""
    counts: Counter[str] = Counter()
    for line in filter(None, map(str.strip, listing.splitlines())):
        match = _IMAGE.fullmatch(line)
        if match is None:
            raise ProgramError(
                f"cuobjdump says of {name} what is not understood here: {line!r}. An image must "
                "not go uncounted; report this together with cuobjdump's version."
            )
        counts[("sm_" if match[1] == "ELF" else "compute_") + match[2]] += 1
    return tuple((arch, counts[arch]) for arch in gpu_order(counts))
