"""Names of distributions as indexes compare them, and the pins of a lock."""

from __future__ import annotations

import re

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
"""A line that pins a distribution to one version."""


def canonical_name(name: str) -> str:
    """A distribution's name as an index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(requirements: str) -> dict[str, str]:
    """Canonical name -> version, of a pip-style lock."""
    return {canonical_name(name): version for name, version in PIN.findall(requirements)}
