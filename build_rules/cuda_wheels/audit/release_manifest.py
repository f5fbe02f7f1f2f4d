"""How a release is called in an OCI registry, and what its manifest says.

The tag is row, date and the first digits of the content's `identity`:
`linux-amd64-cu130-torch2.11.0-cp312-2026.11.30-0123456789abcdef`. The manifest's annotations are
the six tags under their own names, and those below; a layer is a file, whose name is its title.
"""

from __future__ import annotations

import re

ARTIFACT = "application/vnd.cuda-wheels.wheelhouse.v1"
TITLE = "org.opencontainers.image.title"
# The release's name: a date.
VERSION = "org.opencontainers.image.version"
VERIFIED = "verified"  # as JSON
GLIBC = "glibc"

_TAG = re.compile(
    r"(linux-[a-z0-9]+)-([a-z0-9.]+)-(torch[0-9.]*-cp\d+)"
    r"-(\d{4}\.\d{2}\.\d{2}(?:\.\d+)?)-([0-9a-f]{16})"
)


def tag_prefix(row: str) -> str:
    """What the tags of a row begin with."""
    return row.replace("/", "-") + "-"


def tag_row(tag: str) -> str | None:
    """The row of a release's tag; None for any other tag."""
    found = _TAG.fullmatch(tag)
    return "/".join(found.group(1, 2, 3)) if found else None


def date_of(tag: str) -> str:
    """The release's name; raises ValueError for another tag."""
    return _parsed(tag).group(4)


def tag_identity(tag: str) -> str:
    """The first digits of its content's identity; raises ValueError for another tag."""
    return _parsed(tag).group(5)


def layer_type(file: str) -> str:
    """The media type of a file of a wheelhouse."""
    if file.endswith(".whl"):
        return "application/vnd.pypa.wheel"
    if file.endswith(".json"):
        return "application/json"
    return "text/html" if file.endswith(".html") else "text/plain"


def _parsed(tag: str) -> re.Match[str]:
    found = _TAG.fullmatch(tag)
    if found is None:
        raise ValueError(f"{tag} is no tag of a release")
    return found
