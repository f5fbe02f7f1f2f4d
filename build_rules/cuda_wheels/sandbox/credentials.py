"""User and password for a server: from the environment, or from the keyring, and from nowhere else.

They are not part of a request and are never printed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cuda_wheels.tables.publish_addresses import Variables


@dataclass(frozen=True)
class Credentials:
    """Empty where none were found: some servers want none."""

    user: str = ""
    password: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.user or self.password)


def find(service: str, variables: Variables) -> Credentials:
    """Those of the environment; what it lacks, the keyring may have under the name `service`."""
    user = os.environ.get(variables.user, "")
    password = os.environ.get(variables.password, "")
    if password:
        return Credentials(user, password)
    import keyring
    import keyring.errors

    try:
        found = keyring.get_credential(service, user or None)
    except keyring.errors.KeyringError:
        # No keyring, or one that is locked: the server says whether it wants a password.
        found = None
    return Credentials(found.username or user, found.password) if found else Credentials(user)


def advice(service: str, variables: Variables) -> str:
    """What to do where a server refuses."""
    return (
        f"Set {variables.user} and {variables.password}, or store them in the keyring "
        f"(`keyring set {service} USER`)."
    )
