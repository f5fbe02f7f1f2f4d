"""Wheelhouses of a package index, where the project `cuda-wheelhouse` has a version a release.

`pypi:https://wheels.example/` is what wheelhouses are published to, or its index itself, as pip's
`--index-url` takes it. `#VERSION` behind it names one release.
"""

from __future__ import annotations

import hashlib
import html.parser
import json
import re
import tempfile
import urllib.parse
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Callable

from cuda_wheels.audit.release_wheel import (
    FILES,
    PROJECT,
    date_of,
    is_release,
    local_version,
    row_of,
    version_of,
)
from cuda_wheels.audit.wheelhouse import (
    MANIFEST,
    SUMS,
    TAGS,
    Summary,
    WheelhouseError,
    is_inside,
    parse_sums,
    parse_tags,
    sha256,
    summarize,
)
from cuda_wheels.tables.names import canonical_name
from cuda_wheels.tables.publish_addresses import TWINE
from verify.web import LIMIT, Answer, Client, NotThere, require_plain

SCHEME = "pypi:"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
# The HTML form last: some servers name no other.
_ACCEPT = f"{JSON_TYPE}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True)
class File:
    """A file of a project's page; `digest` is its sha256, where the index says it."""

    name: str
    address: str
    digest: str | None


@dataclass(frozen=True)
class PackageIndex:
    """A package index; `version` is that of one release, if any."""

    address: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.address}"

    @classmethod
    def parse(cls, source: str) -> PackageIndex:
        """Raises WheelhouseError for what is no address of an index."""
        address, _, version = source[len(SCHEME) :].partition("#")
        require_plain(address, TWINE)
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise WheelhouseError(
                f"{source} is no package index. Write pypi:https://wheels.example/simple/."
            )
        return cls(address, version or None)

    @property
    def names_one(self) -> bool:
        return self.version is not None

    def find(self) -> tuple[Summary, ...]:
        """Every release, or the one that is named; raises WheelhouseError if there is none."""
        found = self._releases()
        return tuple(self._read(file).summary(self) for file in found)

    def describe(self, summary: Summary) -> Summary:
        """The same: a release has all that there is to say inside."""
        return summary

    def download(self, summary: Summary, folder: Path, say: Callable[[str], None]) -> None:
        """The release's files, and the wheels that its SHA256SUMS names; each hash is checked."""
        (file,) = PackageIndex(self.address, summary.path.rpartition("#")[2])._releases()
        release = self._read(file)
        for name, digest in release.sums.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in release.files:
                target.write_bytes(release.files[name])
            else:
                say(f"fetching {name}")
                self._client.save(self._wheel(name).address, target)
            if sha256(target) != digest:
                raise WheelhouseError(
                    f"{summary.path}: {name} has sha256 {sha256(target)}, but {SUMS} says {digest}."
                )
        (folder / SUMS).write_bytes(release.files[SUMS])

    def _releases(self) -> list[File]:
        files = sorted(self._files(PROJECT), key=lambda file: file.name)
        releases = [file for file in files if is_release(file.name)]
        if not releases:
            raise WheelhouseError(f"{self} has no wheelhouse: no version of {PROJECT}.")
        named = [file for file in releases if self.version in (None, version_of(file.name))]
        if not named:
            known = ", ".join(version_of(file.name) for file in releases)
            raise WheelhouseError(f"{self} has no {PROJECT} {self.version}. It has {known}.")
        return named

    def _wheel(self, name: str) -> File:
        for file in self._files(canonical_name(name.partition("-")[0])):
            if file.name == name:
                return file
        raise WheelhouseError(f"{self} lacks {name}, which belongs to the release.")

    def _files(self, project: str) -> list[File]:
        """What the page of a project lists; nothing where the index does not know it."""
        base = self.address.rstrip("/")
        # What is published to is the API; the index that it fills lies below.
        below = [] if base.endswith("simple") else [f"{base}/simple"]
        for index in (*below, base):
            try:
                answer = self._client.read(f"{index}/{project}/", _ACCEPT)
            except NotThere:
                continue
            files = links(answer)
            if files:
                return files
        return []

    def _read(self, file: File) -> _Release:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "release"
            self._client.save(file.address, path, LIMIT)
            if file.digest not in (None, sha256(path)):
                raise WheelhouseError(
                    f"{file.address} has sha256 {sha256(path)}, but the index says {file.digest}."
                )
            return _Release(file, release_files(path, file.address))

    @cached_property
    def _client(self) -> Client:
        return Client(self.address, TWINE)


@dataclass(frozen=True)
class _Release:
    """A release that was downloaded: path below the wheelhouse -> content of all but the wheels."""

    file: File
    files: dict[str, bytes]

    @property
    def sums(self) -> dict[str, str]:
        return parse_sums(self.files[SUMS].decode("utf-8", "replace"))

    def summary(self, index: PackageIndex) -> Summary:
        path = f"{index}#{version_of(self.file.name)}"
        documents = {}
        for name in (TAGS, MANIFEST):
            try:
                documents[name] = json.loads(self.files[name].decode("utf-8"))
            except ValueError as error:
                raise WheelhouseError(f"{path}: {name} is not JSON: {error}.") from None
        try:
            tags = parse_tags(documents[TAGS])
        except WheelhouseError as error:
            raise WheelhouseError(f"{path}: {error}") from None
        if local_version(tags.name) != row_of(self.file.name):
            raise WheelhouseError(f"{path}: its tags are those of {tags.name}.")
        manifest = documents[MANIFEST]
        if isinstance(manifest, dict):
            manifest = {**manifest, "date": date_of(self.file.name)}
        return summarize(
            path, tags, documents[TAGS], manifest, hashlib.sha256(self.files[SUMS]).hexdigest()
        )


def release_files(path: Path, where: str) -> dict[str, bytes]:
    """What a release has below `.dist-info/wheelhouse/`; raises WheelhouseError if it is none."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                folder, inside, name = member.filename.partition(f".dist-info/{FILES}/")
                if not inside or "/" in folder or member.is_dir():
                    continue
                if not is_inside(name) or member.file_size > LIMIT:
                    raise WheelhouseError(f"{where} has {member.filename!r}, which is refused.")
                found[name] = archive.read(member)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise WheelhouseError(f"{where} cannot be read as a wheel: {error}.") from None
    missing = [name for name in (SUMS, MANIFEST, TAGS) if name not in found]
    if missing:
        raise WheelhouseError(f"{where} is no release of a wheelhouse: it lacks {missing}.")
    return found


# --- pages -------------------------------------------------------------------------------------


def links(answer: Answer) -> list[File]:
    """The files of a project's page, as JSON (PEP 691) or as HTML (PEP 503)."""
    if answer.kind == JSON_TYPE or answer.kind == "application/json":
        document = answer.json()
        files = document.get("files") if isinstance(document, dict) else None
        return [_of_json(answer.address, one) for one in files or () if isinstance(one, dict)]
    page = _Page(answer.address)
    page.feed(answer.body.decode("utf-8", "replace"))
    return page.files


def _of_json(base: str, one: dict[str, Any]) -> File:
    hashes = one.get("hashes")
    digest = hashes.get("sha256") if isinstance(hashes, dict) else None
    address = urllib.parse.urljoin(base, str(one.get("url")))
    return File(str(one.get("filename")), address, digest if isinstance(digest, str) else None)


class _Page(html.parser.HTMLParser):
    """Anchors of a page: the last part of the address is the file's name."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href")
        if link is None:
            return
        address, _, fragment = urllib.parse.urljoin(self._base, link).partition("#")
        if tag == "base":
            self._base = address
        elif tag == "a":
            name = urllib.parse.unquote(urllib.parse.urlsplit(address).path.rpartition("/")[2])
            digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
            self.files.append(File(name, address, digest.group(1) if digest else None))
