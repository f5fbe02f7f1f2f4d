"""Makes environments inside a toolchain image, while it is built.

Request: `cache` (where the image has them), `wheels` (a directory), `bootstrap_lock`, `tools_locks`
and `locks` (those of build environments). No index is asked: everything that the locks pin is among
the wheels.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import environment, files, program, session_settings


def main(request: dict[str, Any]) -> None:
    """Make them, and leave nothing else behind."""
    program.require(request, "cache", "wheels", "bootstrap_lock", "tools_locks", "locks")
    cache = Path(request["cache"])
    cache.mkdir(parents=True, exist_ok=True)
    settings = cache / session_settings.OWN_FILE
    wheels = str(Path(request["wheels"]).absolute())
    files.write_atomically(settings, json.dumps({"indexes": [], "find_links": [wheels]}))
    bootstrap = environment.ensure_bootstrap(cache, Path(request["bootstrap_lock"]))
    for kind, locks in (("tools", request["tools_locks"]), ("envs", request["locks"])):
        for lock in locks:
            made = environment.ensure_environment(cache, Path(lock), bootstrap=bootstrap, kind=kind)
            print(f"{lock}: {made}")
    settings.unlink()
    for name in ("uv", "locks"):
        shutil.rmtree(cache / name, ignore_errors=True)


if __name__ == "__main__":
    program.run(main)
