"""What an address means that wheelhouses are published to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

# A repository's name, as the distribution specification has it.
_REPOSITORY = re.compile(r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")


@dataclass(frozen=True)
class Variables:
    """The variables that user and password come from, as users of the client know them."""

    user: str
    password: str


TWINE = Variables("TWINE_USERNAME", "TWINE_PASSWORD")
ORAS = Variables("ORAS_USER", "ORAS_PASS")


class PublishAddressError(Exception):
    """An index that a wheelhouse cannot be published to."""


@dataclass(frozen=True)
class Place:
    """The program of `sandbox/` that publishes there, and what its request says of the place.

    `variables`: what user and password come from; None for a folder, which needs no client.
    """

    program: str
    request: tuple[tuple[str, str], ...]
    variables: Variables | None = None


def parse_address(address: str, simple_indexes: Mapping[str, str]) -> Place:
    """What an address names; `simple_indexes` are those of upload APIs, by their addresses.

    Raises PublishAddressError for one that is of no known kind, or that has a password in it.
    """
    scheme, _, rest = address.partition(":")
    kinds = {"file": _folder, "oci": _registry, "pypi": _upload_api}
    try:
        found = kinds[scheme](address, rest, simple_indexes) if scheme in kinds else None
    except ValueError:
        # An address that `urlsplit` cannot read, such as `https://[`.
        found = None
    if found is None:
        raise _refused(address)
    return found


def _folder(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Place | None:
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        return None
    if not path.startswith("/") or not path.strip("/"):
        return None
    return Place("publish_file", (("index", path),))


def _registry(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Place | None:
    parts = _web_address(f"https:{rest}" if rest.startswith("//") else rest)
    if parts is None or not _REPOSITORY.fullmatch(parts.path):
        return None
    registry = f"{parts.scheme}://{parts.netloc}"
    return Place("publish_oci", (("registry", registry), ("repository", parts.path[1:])), ORAS)


def _upload_api(address: str, rest: str, simple_indexes: Mapping[str, str]) -> Place | None:
    if _web_address(rest) is None:
        return None
    simple = simple_indexes.get(rest) or f"{rest.rstrip('/')}/simple/"
    return Place("publish_pypi", (("upload", rest), ("simple", simple)), TWINE)


def _web_address(text: str) -> SplitResult | None:
    parts = urlsplit(text)
    plain = "@" not in parts.netloc and not (parts.query or parts.fragment)
    return parts if parts.scheme in ("http", "https") and parts.netloc and plain else None


def _refused(address: str) -> PublishAddressError:
    hidden = re.sub(r"//[^/\s]*@", "//***@", address)
    if hidden != address:
        return PublishAddressError(
            f"{hidden!r} has a user or password in it, which others would read. Leave them out, and "
            f"set {TWINE.user} and {TWINE.password} for an upload API or {ORAS.user} and "
            f"{ORAS.password} for an OCI registry, or store them in the keyring."
        )
    return PublishAddressError(
        f"{address!r} is no index that wheelhouses are published to. Write the absolute path of a "
        "folder (`file:///srv/wheels`), a repository of an OCI registry "
        "(`oci://registry.example/team/wheels`) or the address of an upload API "
        "(`pypi:https://wheels.example/`) in `publish_to` or `[cuda-publish].to`."
    )
