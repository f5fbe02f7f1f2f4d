"""Publishes a wheelhouse to an OCI registry: files as layers, tags as annotations.

Request: `cache`, `bootstrap_lock`, `publish_lock`, `house` (the wheelhouse), `row`
(`linux-amd64/cu130/torch2.11.0-cp312`), `registry` (`https://registry.example`), `repository`
(`team/wheels`), `date` (`2026.11.30`, or null for today in UTC), `dry_run`, `scratch`.

A release is a tag, `linux-amd64-cu130-torch2.11.0-cp312-2026.11.30-0123456789abcdef`. A registry
moves a tag to whatever came last, so what tells releases apart stands in the tag: of two publishers
at once neither takes the other's. Files go first, each of which the registry has only once,
whatever releases it belongs to; then the manifest under its tag. Until then nobody sees any.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cuda_wheels.audit.release_manifest import (
    ARTIFACT,
    GLIBC,
    TITLE,
    VERIFIED,
    VERSION,
    date_of,
    layer_type,
    tag_identity,
    tag_prefix,
    tag_row,
)
from cuda_wheels.audit.wheelhouse import MANIFEST, TAG_KEYS, TAGS, load, sha256
from cuda_wheels.sandbox import credentials, environment, program, publish_client
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.release import free_name, identity, require_honest, stamp
from cuda_wheels.tables.publish_addresses import ORAS

# A file that is larger is sent in pieces of this size, and never read as a whole.
CHUNK = 64 * 1024 * 1024
# The content of the configuration of what is no image, by the image specification.
EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
TIMEOUT_S = 60
# A registry on a file system does not see a file in the moment in which another publisher sends the
# same one; so once more is often enough.
TRIES = 5
PAUSE_S = 0.5


class BlobUnknown(Exception):
    """A manifest names a file that the registry does not find."""


def main(request: dict[str, Any]) -> None:
    """Publish, and say in a line what became of it."""

    def repository(scratch: Path) -> Repository:
        registry = request["registry"]
        known = credentials.find(urlsplit(registry).netloc, ORAS)
        return Repository(registry, request["repository"], known, scratch)

    publish_client.run(request, ("registry", "repository"), repository, publish)


def publish(
    house: Path,
    repository: Repository,
    row: str,
    *,
    date: str,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Send what the registry lacks, the manifest last; returns a sentence about it."""
    require_honest(house, row, date, str(repository))
    content = identity(house)
    tags = [tag for tag in repository.tags() if tag_row(tag) == row]
    there = next((tag for tag in tags if tag_identity(tag) == content[:16]), None)
    if there:
        what = "nothing would be done" if dry_run else "nothing was done"
        return f"{row} is in {repository} already as {date_of(there)}: {what}. Its tag: {there}"
    name = free_name(date, map(date_of, tags))
    tag = f"{tag_prefix(row)}{name}-{content[:16]}"
    with tempfile.TemporaryDirectory(dir=repository.scratch) as folder:
        layers = [_layer(path, house) for path in _files(house)]
        if dry_run:
            for layer in layers:
                what = "is there already" if repository.has(layer) else "would be sent"
                say(f"{layer['annotations'][TITLE]} {what}")
            return f"{row} would be added to {repository} as {name}. Its tag: {tag}"
        # Only what the date changes is copied.
        changed = Path(folder)
        for file in _STAMPED:
            shutil.copy(house / file, changed / file)
        stamp(changed, name)
        stamped = {file: _layer(changed / file, changed) for file in _STAMPED}
        layers = [stamped.get(layer["annotations"][TITLE], layer) for layer in layers]
        empty = changed / "empty"
        empty.write_bytes(EMPTY)
        config = {"mediaType": EMPTY_TYPE, "digest": f"sha256:{sha256(empty)}", "size": len(EMPTY)}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT,
            "config": config,
            "layers": layers,
            "annotations": _annotations(house, name),
        }
        for left in reversed(range(TRIES)):
            for layer in layers:
                file = layer["annotations"][TITLE]
                repository.send((changed if file in stamped else house) / file, layer, say)
            repository.send(empty, config)
            try:
                repository.tag(tag, manifest)
            except BlobUnknown as error:
                if not left:
                    raise ProgramError(f"{error} Publish again; nothing is sent twice.") from error
                time.sleep(PAUSE_S)
            else:
                break
    return f"{row} was added to {repository} as {name}. Its tag: {tag}"


_STAMPED = (MANIFEST, "SHA256SUMS")


def _files(house: Path) -> list[Path]:
    """The largest first: what takes longest fails first."""
    found = [path for path in house.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: (-path.stat().st_size, path))


def _layer(path: Path, house: Path) -> dict[str, Any]:
    """A file as the manifest lists it."""
    name = path.relative_to(house).as_posix()
    return {
        "mediaType": layer_type(name),
        "digest": f"sha256:{sha256(path)}",
        "size": path.stat().st_size,
        "annotations": {TITLE: name},
    }


def _annotations(house: Path, name: str) -> dict[str, str]:
    """The six tags as they are, and what else a consumer wants to know before it chooses."""
    tags = load(house / TAGS)
    found = {key: str(tags[key]) for key in TAG_KEYS}
    glibc = load(house / MANIFEST).get("glibc")
    return {
        **found,
        VERIFIED: json.dumps(tags.get("verified", {}), sort_keys=True),
        VERSION: name,
        **({GLIBC: glibc} if glibc else {}),
    }


# --- the registry ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repository:
    """A repository of a registry. `scratch` is a folder for small files."""

    registry: str
    name: str
    credentials: Credentials
    scratch: Path

    def __str__(self) -> str:
        return f"oci:{self.registry}/{self.name}"

    def tags(self) -> list[str]:
        """All of them; none where the registry does not know the repository yet."""
        with self._told():
            response = self._client.do_request(
                f"{self.registry}/v2/{self.name}/tags/list", "GET", headers={}
            )
            if response.status_code == 404:
                return []
            self._require(response, 200)
            return [str(tag) for tag in self._client.get_tags(self._container)]

    def has(self, layer: dict[str, Any]) -> bool:
        """Whether the registry has a file already, of whatever release."""
        with self._told():
            return bool(self._client.blob_exists(layer, self._container))

    def send(
        self, path: Path, layer: dict[str, Any], say: Callable[[str], None] | None = None
    ) -> None:
        """Upload a file that the registry lacks."""
        if self.has(layer):
            return
        if say:
            say(f"sending {layer['annotations'][TITLE]} ({layer['size']} bytes)")
        with self._told():
            response = self._client.upload_blob(
                str(path),
                self._container,
                layer,
                do_chunked=layer["size"] > CHUNK,
                chunk_size=CHUNK,
            )
            self._require(response, 200, 201, 202, 204)

    def tag(self, tag: str, manifest: dict[str, Any]) -> None:
        """Publish a manifest under a tag; raises BlobUnknown where the registry lacks a layer."""
        with self._told():
            container = self._client.get_container(f"{self._host}/{self.name}:{tag}")
            response = self._client.upload_manifest(manifest, container)
            if response.status_code in (400, 404) and "BLOB_UNKNOWN" in response.text:
                raise BlobUnknown(f"{self} lacks a file of the release: {response.text.strip()}")
            self._require(response, 200, 201, 202)

    @property
    def _host(self) -> str:
        return urlsplit(self.registry).netloc

    @cached_property
    def _container(self) -> Any:
        return self._client.get_container(f"{self._host}/{self.name}")

    @cached_property
    def _client(self) -> Any:
        """A client that answers as this registry asks: with a password, or with a token."""
        import requests
        from oras.provider import Registry

        with self._told():
            asked = requests.get(f"{self.registry}/v2/", timeout=TIMEOUT_S)
        basic = asked.headers.get("Www-Authenticate", "").lower().startswith("basic")
        client = Registry(
            self._host,
            insecure=self.registry.startswith("http:"),
            auth_backend="basic" if basic else "token",
        )
        if self.credentials:
            client.auth.set_basic_auth(self.credentials.user, self.credentials.password)
        elif basic:
            raise self._refused("401 Unauthorized")
        return client

    def _require(self, response: Any, *expected: int) -> None:
        if response.status_code in (401, 403):
            raise self._refused(f"{response.status_code} {response.reason}")
        if response.status_code not in expected:
            text = environment.hide_credentials(response.text.strip()[:500])
            raise ProgramError(f"{self} answers {response.status_code} {response.reason}: {text}")

    def _refused(self, said: str) -> ProgramError:
        return ProgramError(f"{self} refuses ({said}). {credentials.advice(self._host, ORAS)}")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Faults of the network and of the client, in words."""
        import requests

        try:
            yield
        except requests.RequestException as error:
            reason = environment.hide_credentials(str(error))
            raise ProgramError(f"{self} cannot be used: {reason}.") from error
        except ValueError as error:
            text = environment.hide_credentials(str(error))
            if "authentication" in text:
                raise self._refused(text) from error
            raise ProgramError(f"{self} does not take part of the release: {text}.") from error


if __name__ == "__main__":
    program.run(main)
