"""Objects that are linked into every extension, so that it runs on an older glibc.

A shim defines a symbol of a newer glibc inside the extension, hidden, so that the extension does
not ask the system's for it. Only symbols whose older behaviour is always right can be shimmed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from cuda_wheels.sandbox.program import ProgramError

_HIDDEN = '__attribute__((visibility("hidden")))'

SOURCES = {
    # GLIBC_2.32. libstdc++'s reference counts skip atomic operations where it is not 0; 0 says
    # "there may be threads", which is always right.
    "__libc_single_threaded": f"{_HIDDEN} char __libc_single_threaded = 0;",
}


def compile_shims(symbols: Iterable[str], gcc: str, directory: Path) -> list[Path]:
    """Compile the shims of these symbols into one object; an empty list where there are none."""
    symbols = sorted(symbols)
    unknown = [symbol for symbol in symbols if symbol not in SOURCES]
    if unknown:
        raise ProgramError(
            f"glibc_shims names {', '.join(unknown)}, for which there is no shim. Known: "
            f"{', '.join(sorted(SOURCES))}."
        )
    if not symbols:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    source, target = directory / "glibc_shims.c", directory / "glibc_shims.o"
    source.write_text("".join(f"{SOURCES[s]}\n" for s in symbols), encoding="ascii")
    command = [gcc, "-c", "-O2", "-fPIC", "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"{gcc} cannot compile the glibc shims:\n{done.stderr.strip()}")
    return [target]
