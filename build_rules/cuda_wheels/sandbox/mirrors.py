"""Where the address of a source leads on this machine, by `[cuda-wheels].source_mirrors`.

Like the addresses of indexes the mirrors come from the session's settings. What is fetched is pinned
by its content, so where it came from is in no cache key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cuda_wheels.sandbox import session_settings

OPTION = "[cuda-wheels].source_mirrors"


def load(cache: Path) -> dict[str, str]:
    """The mirrors of the session: beginning of an address -> what replaces it."""
    return dict((session_settings.read(cache) or {}).get("source_mirrors") or {})


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """`url` with its longest beginning that `mirrors` names replaced."""
    for prefix in sorted(mirrors, key=len, reverse=True):
        if url.startswith(prefix):
            return mirrors[prefix] + url[len(prefix) :]
    return url


def example(url: str, target: str = "https://MIRROR/") -> str:
    """The option, written so that it would lead `url` elsewhere."""
    found = re.match(r"\w+://[^/]*/|[^/:]+:", url)
    return f'{OPTION}: {{"{found.group() if found else url}": "{target}"}}'
