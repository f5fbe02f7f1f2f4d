"""Wheelhouses of an OCI registry, read by the protocol of the distribution specification.

`oci://registry.example/team/wheels` is a repository, `oci:http://localhost:5000/wheels` one without
TLS. `:TAG` or `@sha256:DIGEST` behind it names one release; the digest proves all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Callable

from cuda_wheels.audit.release_manifest import (
    ARTIFACT,
    GLIBC,
    TITLE,
    VERIFIED,
    VERSION,
    tag_row,
)
from cuda_wheels.audit.wheelhouse import (
    MANIFEST,
    SUMS,
    TAG_KEYS,
    Summary,
    WheelhouseError,
    is_inside,
    parse_tags,
    sha256,
    summarize,
)
from cuda_wheels.tables.publish_addresses import ORAS
from verify.web import Answer, Client, NotThere, require_plain

SCHEME = "oci:"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

_ADDRESS = re.compile(
    r"oci:(?P<server>//[^/]+|https?://[^/]+)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?:(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]*))|@(?P<digest>sha256:[0-9a-f]{64}))?/?"
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')


@dataclass(frozen=True)
class Registry:
    """A repository of a registry; `reference` is the tag or the digest of one release, if any."""

    server: str
    name: str
    reference: str | None = None

    def __str__(self) -> str:
        server = self.server[len("https:") :] if self.server.startswith("https:") else self.server
        return f"{SCHEME}{server}/{self.name}"

    @classmethod
    def parse(cls, source: str) -> Registry:
        """Raises WheelhouseError for what is no address of a repository."""
        require_plain(source[len(SCHEME) :], ORAS)
        found = _ADDRESS.fullmatch(source)
        if found is None:
            raise WheelhouseError(
                f"{source} is no repository of a registry. Write oci://registry.example/team/wheels, "
                "or oci:http://localhost:5000/wheels without TLS."
            )
        server = found["server"]
        return cls(
            f"https:{server}" if server.startswith("//") else server,
            found["name"],
            found["tag"] or found["digest"],
        )

    @property
    def names_one(self) -> bool:
        return self.reference is not None

    def find(self) -> tuple[Summary, ...]:
        """Every release, as its annotations have it: without what stands in manifest.json alone."""
        names = [self.reference] if self.reference else self._releases()
        return tuple(self._summary(name, self._manifest(name)) for name in names)

    def describe(self, summary: Summary) -> Summary:
        """The same with packages, and with what is skipped."""
        for layer in self._layers(self._manifest(self._named(summary))):
            if layer.title == MANIFEST:
                body = self._blob(layer)
                found = json.loads(body.decode("utf-8"))
                tags = {"verified": dict(summary.verified)}
                return summarize(summary.path, summary.tags, tags, found, summary.sums)
        raise WheelhouseError(f"{summary.path} has no {MANIFEST}.")

    def download(self, summary: Summary, folder: Path, say: Callable[[str], None]) -> None:
        """All files of a release; raises WheelhouseError for one that is not what was promised."""
        for layer in self._layers(self._manifest(self._named(summary))):
            say(f"fetching {layer.title}")
            file = folder / layer.title
            file.parent.mkdir(parents=True, exist_ok=True)
            self._client.save(self._address("blobs", layer.digest), file, layer.size)
            if f"sha256:{sha256(file)}" != layer.digest:
                raise WheelhouseError(
                    f"{summary.path}: {layer.title} has sha256 {sha256(file)}, but the registry "
                    f"calls it {layer.digest}."
                )

    def _releases(self) -> list[str]:
        """The tags that are those of releases; others may be in the repository too."""
        address: str | None = self._address("tags", "list")
        found: list[str] = []
        while address:
            try:
                answer = self._client.read(address)
            except NotThere:
                raise WheelhouseError(f"{self}: the registry has no such repository.") from None
            document = answer.json()
            names = document.get("tags") if isinstance(document, dict) else None
            found += [name for name in names or () if isinstance(name, str)]
            address = next_page(answer)
        releases = sorted(name for name in {*found} if tag_row(name))
        if not releases:
            raise WheelhouseError(f"{self} has no wheelhouse: no tag of it is that of a release.")
        return releases

    def _manifest(self, reference: str) -> dict[str, Any]:
        answer = self._client.read(self._address("manifests", reference), MANIFEST_TYPE)
        where = f"{self}{'@' if ':' in reference else ':'}{reference}"
        if ":" in reference and f"sha256:{hashlib.sha256(answer.body).hexdigest()}" != reference:
            raise WheelhouseError(f"{where}: what the registry sent for it is another manifest.")
        document = answer.json()
        if not isinstance(document, dict) or document.get("artifactType") != ARTIFACT:
            raise WheelhouseError(f"{where} is no wheelhouse: its artifactType is not {ARTIFACT}.")
        return document

    def _summary(self, reference: str, document: dict[str, Any]) -> Summary:
        path = f"{self}{'@' if ':' in reference else ':'}{reference}"
        said = document.get("annotations")
        said = said if isinstance(said, dict) else {}
        try:
            tags = parse_tags({key: said.get(key) for key in TAG_KEYS})
            verified = json.loads(said.get(VERIFIED, "{}"))
        except (WheelhouseError, TypeError, ValueError) as error:
            raise WheelhouseError(f"{path}: {error}") from None
        if ":" not in reference and tag_row(reference) not in (None, tags.name):
            raise WheelhouseError(f"{path}: its annotations say {tags.name}.")
        sums = next((one for one in self._layers(document) if one.title == SUMS), None)
        if sums is None:
            raise WheelhouseError(f"{path} has no {SUMS}.")
        manifest = {"glibc": said.get(GLIBC), "date": said.get(VERSION)}
        return summarize(
            path, tags, {"verified": verified}, manifest, sums.digest[len("sha256:") :]
        )

    def _layers(self, document: dict[str, Any]) -> list[_Layer]:
        """The files of a release; raises WheelhouseError where one leads out of its folder."""
        found = []
        for layer in document.get("layers") or ():
            layer = layer if isinstance(layer, dict) else {}
            annotations = layer.get("annotations")
            title = annotations.get(TITLE) if isinstance(annotations, dict) else None
            digest, size = layer.get("digest"), layer.get("size")
            if not (isinstance(title, str) and is_inside(title)):
                raise WheelhouseError(f"{self}: a layer is titled {title!r}: no file inside.")
            if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
                raise WheelhouseError(f"{self}: {title} has the digest {digest!r}: no sha256.")
            if not isinstance(size, int):
                raise WheelhouseError(f"{self}: {title} has the size {size!r}.")
            found.append(_Layer(title, digest, size))
        return found

    def _blob(self, layer: _Layer) -> bytes:
        body = self._client.read(self._address("blobs", layer.digest)).body
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != layer.digest:
            raise WheelhouseError(f"{self}: {layer.title} is not the file {layer.digest}.")
        return body

    def _named(self, summary: Summary) -> str:
        """Tag or digest of a release that `find` named."""
        return summary.path[len(str(self)) + 1 :]

    def _address(self, kind: str, name: str) -> str:
        return f"{self.server}/v2/{self.name}/{kind}/{urllib.parse.quote(name, safe=':')}"

    @cached_property
    def _client(self) -> Client:
        return Client(self.server, ORAS, f"repository:{self.name}:pull")


@dataclass(frozen=True)
class _Layer:
    """A file of a release: its path, `sha256:...` and its size in bytes."""

    title: str
    digest: str
    size: int


def next_page(answer: Answer) -> str | None:
    """Where a list goes on (`Link: <...>; rel="next"`); never on another server."""
    found = _NEXT.search(answer.headers.get("Link", ""))
    if found is None:
        return None
    address = urllib.parse.urljoin(answer.address, found.group(1))
    here, there = urllib.parse.urlsplit(answer.address), urllib.parse.urlsplit(address)
    return address if here[:2] == there[:2] else None
