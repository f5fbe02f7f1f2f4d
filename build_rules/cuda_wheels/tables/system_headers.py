"""Headers that packages take from the system, and what installs them.

A package names one in `system_headers`. It is for libraries of headers alone: what is linked would
need a place in the wheel too.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class SystemHeader:
    """`name` is what the source includes; `content` the files and directories that it is made of.

    All of them are below one include directory. `apt` and `dnf` name the packages that have it.
    """

    name: str
    content: tuple[str, ...]
    apt: str
    dnf: str


# Source: the file lists of Debian's libsparsehash-dev 2.0.3 and EPEL 8's sparsehash-devel.
SYSTEM_HEADERS: dict[str, SystemHeader] = {
    header.name: header
    for header in (
        SystemHeader(
            "google/dense_hash_map",
            content=("google/dense_hash_map", "sparsehash"),
            apt="libsparsehash-dev",
            dnf="sparsehash-devel",
        ),
    )
}


def unknown_header(name: str) -> str | None:
    """Why `name` cannot stand in `system_headers`; None if it can."""
    if name in SYSTEM_HEADERS:
        return None
    close = difflib.get_close_matches(name, SYSTEM_HEADERS, n=1)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"`system_headers` names {name!r}, of which it is not known what installs it.{meant} "
        f"Known: {', '.join(SYSTEM_HEADERS)}. Add a row to `tables/system_headers.py`."
    )


def missing_header(name: str) -> str:
    """What to do where a known header is not on the system."""
    header = SYSTEM_HEADERS[name]
    return (
        f"The header <{name}>, which this package includes, is in none of the system's include "
        f"directories. Install it (`apt-get install {header.apt}`, or `dnf install {header.dnf}` "
        "from EPEL)."
    )
