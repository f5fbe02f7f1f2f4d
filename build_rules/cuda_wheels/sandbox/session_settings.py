"""Where a program finds the settings of its session: indexes, mirrors, certificates, proxies.

They are in no cache key, and sessions with different ones share a cache. So Pants tells a program
the name of its session's settings by what is in no key either: the sandbox has a directory LINKS,
in it is one link that has that name, and it leads to the append-only cache that holds
`<name>.json`. Where there is no such directory (a program that is run by hand, a remote worker)
`settings.json` in the program's own cache counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox.program import ProgramError

LINKS = ".cuda_wheels_settings"
OWN_FILE = "settings.json"


def path(cache: Path) -> Path:
    """Where the settings are, or would be."""
    links = list(Path(LINKS).iterdir()) if Path(LINKS).is_dir() else []
    # In a sandbox that was copied to another machine the link leads nowhere.
    if len(links) == 1 and links[0].is_dir():
        return links[0] / f"{links[0].name}.json"
    return Path(cache) / OWN_FILE


def read(cache: Path) -> dict[str, Any] | None:
    """The settings, or None where there are none."""
    file = path(cache)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no JSON object")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ProgramError(f"The settings file {file} cannot be read: {error}.") from error
    return data
