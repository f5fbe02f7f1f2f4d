"""Fetches a pinned source or wheel, verifies it and unpacks it. None of its code runs.

Request: `kind` "sdist" or "wheel" (`name`, `version`) or "archive" (`url`), `sha256`, `out`, and the
`cache` with the session's settings. A file of an index is looked for in every configured one, the
main one first, then in the find-links places; the file that counts is the one with the pinned hash.
With `page` that page of links is asked instead. `unpack` false keeps the file as it is, and `tags`
are words of its name: on a page without hashes such files are downloaded first.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cuda_wheels.sandbox import environment, mirrors, program, unpack

if TYPE_CHECKING:
    from unearth import Link, PackageFinder

TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 2.0

INDEXES = (
    "The indexes are those of [python-repos].indexes and .find_links; [GLOBAL].ca_certs_path names "
    "the certificates."
)

T = TypeVar("T")


@dataclass
class Search:
    """What was seen while looking for one file: the text of a useful error.

    `places` says which were asked, and by what that is changed.
    """

    kind: str
    places: str = INDEXES
    versions: set[str] = field(default_factory=set)
    hashes: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


class _Warnings(logging.Handler):
    """Collects what unearth only logs: an index page that it could not read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(environment.hide_credentials(record.getMessage()))


def host_of(address: str) -> str:
    """Host and port of an address, or the address itself where it is a local path."""
    parts = urlsplit(address)
    if not parts.hostname:
        return environment.hide_credentials(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname


def address_problem(url: str) -> str | None:
    """Why nothing can be fetched from an address; None if it can be tried."""
    shown = environment.hide_credentials(url)
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"{shown} is no address: {error}."
    if parts.scheme not in ("http", "https", "file"):
        return f"{shown} is no address of an archive (http, https or file)."
    if parts.scheme != "file" and not has_host:
        return f"{shown} is no address: it names no host."
    return None


def _raise_on_server_error(response: Any) -> None:
    """Turn a 5xx answer into an error that is tried again; unearth would take it for "no files"."""
    if response.status_code >= 500:
        response.raise_for_status()


def _client(ca_certs: str | None, index_urls: Sequence[str]) -> Any:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers.sync import PyPIClient

    client = PyPIClient(
        verify=ssl.create_default_context(cafile=ca_certs),
        timeout=TIMEOUT_S,
        follow_redirects=True,
        event_hooks={"response": [_raise_on_server_error]},
    )
    # Nobody is there to answer a prompt for a password.
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=index_urls)
    return client


def _finder(
    settings: environment.Settings,
    index: str | None,
    find_links: Sequence[str],
    kind: str = "sdist",
) -> Any:
    """A finder over one index, over find-links places, or, with neither, over unearth's default."""
    from unearth import PackageFinder

    return PackageFinder(
        session=_client(settings.ca_certs, settings.indexes),
        index_urls=[index] if index else [],
        find_links=find_links,
        # A source is fetched as pinned, also where upstream has not yet declared our Python.
        ignore_compatibility=True,
        no_binary=[":all:"] if kind == "sdist" else [],
        only_binary=[":all:"] if kind == "wheel" else [],
    )


def _places(settings: environment.Settings, kind: str) -> Iterable[tuple[str, PackageFinder]]:
    """Each place to look in, as a name for messages and a finder."""
    for index in settings.indexes:
        yield host_of(index), _finder(settings, index, (), kind)
    for place in settings.find_links:
        yield host_of(place), _finder(settings, None, (place,), kind)
    if not settings.indexes and not settings.find_links and not settings.no_index:
        yield "the default index", _finder(settings, None, (), kind)


def _with_retries(what: str, action: Callable[[], T]) -> T:
    """Run a network action; a ProgramError says what went wrong in its last attempt."""
    from httpx2 import HTTPError, InvalidURL
    from unearth.errors import UnpackError

    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except (HTTPError, OSError, UnpackError, InvalidURL) as error:
            # A wrong hash stays wrong; so does an answer like "not found".
            final = attempt == ATTEMPTS or not isinstance(error, (HTTPError, OSError))
            if final:
                reason = environment.hide_credentials(
                    str(error).splitlines()[0] if str(error) else "no answer"
                )
                raise program.ProgramError(
                    f"{what} failed ({attempt} of {ATTEMPTS} attempts): "
                    f"{type(error).__name__}: {reason}"
                ) from error
            time.sleep(PAUSE_S * attempt)
    raise AssertionError("unreachable")


def _look(place: str, finder: PackageFinder, name: str, search: Search) -> list[Any]:
    """The files of `name` in one place; what goes wrong there is noted, not raised."""
    noted = _Warnings()
    logger = logging.getLogger("unearth")
    logger.addHandler(noted)
    try:
        return _with_retries(
            f"Asking {place}", lambda: list(finder.find_all_packages(name, allow_yanked=True))
        )
    except (program.ProgramError, ValueError) as error:
        search.troubles.append(environment.hide_credentials(str(error)))
        return []
    finally:
        logger.removeHandler(noted)
        search.troubles += noted.messages


def _download(finder: PackageFinder, link: Link, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    what = f"Downloading {link.filename} from {host_of(link.normalized)}"
    # The hash is checked by us: an empty dict keeps unearth from checking the index's own.
    return _with_retries(what, lambda: finder.download(link, folder, hashes={}))


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_file(
    settings: environment.Settings,
    kind: str,
    name: str,
    version: str,
    sha256: str,
    folder: Path,
    *,
    tags: Sequence[str] = (),
    places: str = INDEXES,
) -> Path:
    """Download the sdist or wheel `name` `version` whose sha256 is the pinned one.

    Files with more of `tags` in their names come first; `places` is for the message that there is
    none.
    """
    from packaging.version import Version

    search = Search(kind, places)
    if settings.no_index and not settings.find_links:
        search.troubles.append(environment.NO_INDEX)

    def lacking(package: Any) -> int:
        return sum(tag not in package.link.filename for tag in tags)

    for place, finder in _places(settings, kind):
        for package in sorted(_look(place, finder, name, search), key=lacking):
            search.versions.add(package.version)
            if Version(package.version) != Version(version):
                continue
            announced = (package.link.hash_option or {}).get("sha256", [None])[0]
            if announced not in (None, sha256):
                search.hashes[f"{package.link.filename} on {place}"] = announced
                continue
            try:
                path = _download(finder, package.link, folder)
            except program.ProgramError as error:
                search.troubles.append(str(error))
                continue
            found = sha256_of(path)
            if found == sha256:
                return path
            search.hashes[f"{package.link.filename} from {place}"] = found
    raise program.ProgramError(_not_found(name, version, sha256, search))


def _not_found(name: str, version: str, sha256: str, search: Search) -> str:
    lines = []
    kind = search.kind
    if search.hashes:
        lines.append(
            f"The sdist of {name} {version} is not the one that is declared."
            if kind == "sdist"
            else f"No wheel of {name} {version} is the one that is declared."
        )
        lines.append(f"  declared sha256: {sha256}")
        lines += [f"  found sha256:    {found}  ({file})" for file, found in search.hashes.items()]
        lines.append(
            "Either the pin is wrong or the file was replaced. Compare with upstream before you "
            "change the pin: the same version may hold other code."
        )
    elif search.versions:
        lines.append(f"There is no {kind} of {name} {version} in the configured indexes.")
        if version not in search.versions:
            lines.append(f"  {kind}s there: {', '.join(near_versions(version, search.versions))}")
    else:
        lines.append(f"No {kind} of {name} was found, so not {version} either.")
    if search.troubles:
        lines += ["What went wrong on the way:", *(f"  {t}" for t in search.troubles)]
    if not search.hashes:
        lines.append(search.places)
    return "\n".join(lines)


def find_requested(request: Mapping[str, Any], cache: Path, folder: Path) -> Path:
    """The file of an index, or of a page of links, that the request names."""
    settings, places, page = environment.load_settings(cache), INDEXES, request.get("page")
    if page:
        place = mirrors.mirrored(page, mirrors.load(cache))
        settings = replace(settings, indexes=(), find_links=(place,))
        example = mirrors.example(environment.hide_credentials(page))
        places = (
            f"The page is {environment.hide_credentials(place)}. If it cannot be reached from here, "
            f"name a mirror in {example}; [GLOBAL].ca_certs_path names the certificates."
        )
    return find_file(
        settings,
        request["kind"],
        request["name"],
        request["version"],
        request["sha256"],
        folder,
        tags=request.get("tags", ()),
        places=places,
    )


def near_versions(wanted: str, versions: Iterable[str], count: int = 6) -> list[str]:
    """The versions around the wanted one, in order."""
    from packaging.version import Version

    ordered = sorted(versions, key=Version)
    position = sum(Version(version) < Version(wanted) for version in ordered)
    start = max(0, min(position - count // 2, len(ordered) - count))
    return ordered[start : start + count]


def fetch_archive(settings: environment.Settings, url: str, sha256: str, folder: Path) -> Path:
    """Download the archive at `url` and verify it."""
    from unearth import Link

    problem = address_problem(url)
    if problem:
        raise program.ProgramError(problem)
    link = Link(url)
    shown = environment.hide_credentials(url)
    if link.is_file and not link.file_path.is_file():
        raise program.ProgramError(f"The archive {shown} does not exist.")
    try:
        path = _download(_finder(settings, None, ()), link, folder)
    except program.ProgramError as error:
        raise program.ProgramError(
            f"{error}\nIf {host_of(url)} cannot be reached from here, name a mirror in "
            "[cuda-wheels].source_mirrors; [GLOBAL].ca_certs_path names the certificates."
        ) from error
    found = sha256_of(path)
    if found != sha256:
        raise program.ProgramError(
            f"The archive {shown} is not the one that is declared.\n"
            f"  declared sha256: {sha256}\n  found sha256:    {found}\n"
            "Either the pin is wrong or the file was replaced. Forges may pack the same commit "
            "anew; compare the trees before you change the pin."
        )
    return path


def main(request: Mapping[str, Any]) -> None:
    """Fetch what the request names and put it into `out`."""
    cache = Path(request["cache"])
    environment.reexec_in_tools(cache, Path(request["bootstrap_lock"]), Path(request["tools_lock"]))
    out = Path(request["out"])
    with tempfile.TemporaryDirectory(prefix=".download.") as scratch:
        folder = Path(scratch)
        kind = request["kind"]
        if kind == "archive":
            url = mirrors.mirrored(request["url"], mirrors.load(cache))
            settings = environment.load_settings(cache)
            archive = fetch_archive(settings, url, request["sha256"], folder)
        else:
            archive = find_requested(request, cache, folder)
        if request.get("unpack", True):
            unpack.unpack(archive, out, whole=kind == "wheel")
        else:
            out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(archive, out / archive.name)
    print(f"{archive.name}: sha256 {request['sha256']}", file=sys.stderr)


if __name__ == "__main__":
    program.run(main)
