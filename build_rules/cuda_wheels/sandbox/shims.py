"""Objects that are linked into every extension, so that it runs on an older glibc.

Each defines a symbol of a newer glibc inside the extension, hidden, so that the extension does not
ask the system's for it. `cuda_wheels.tables.glibc` says which there are, and why each is right.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.tables.glibc import SHIMS


def compile_shims(symbols: Iterable[str], gcc: str, directory: Path) -> list[Path]:
    """Compile the shims of these symbols into one object; an empty list where there are none."""
    symbols = sorted(symbols)
    sources = {shim.symbol: shim.c_source for shim in SHIMS}
    unknown = [symbol for symbol in symbols if symbol not in sources]
    if unknown:
        raise ProgramError(
            f"glibc_shims names {', '.join(unknown)}, for which there is no shim. Known: "
            f"{', '.join(sorted(sources))}."
        )
    if not symbols:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    source, target = directory / "glibc_shims.c", directory / "glibc_shims.o"
    source.write_text("".join(f"{sources[s]}\n" for s in symbols), encoding="ascii")
    command = [gcc, "-c", "-O2", "-fPIC", "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"{gcc} cannot compile the glibc shims:\n{done.stderr.strip()}")
    return [target]
