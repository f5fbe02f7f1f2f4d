"""Publishes a wheelhouse through an upload API, as twine does it.

Request: `cache`, `bootstrap_lock`, `publish_lock`, `house` (the wheelhouse), `row`
(`linux-amd64/cu130/torch2.11.0-cp312`), `upload` (the address of the API), `simple` (that of the
index it fills), `date` (`2026.11.30`, or null for today in UTC), `dry_run`, `scratch`.

Wheels keep their names: one that the index has with the same hash is not sent again, one that it
has with another hash is an error. Last comes the release, a small wheel named `cuda-wheelhouse`
whose version is the date and the row, `2026.11.30+linux.amd64.cu130.torch2.11.0.cp312`. It has
the other files of the wheelhouse inside and requires all its wheels, so a release is in the index
only when everything that belongs to it is.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cuda_wheels.audit.release_wheel import (
    FILES,
    PROJECT,
    date_of,
    is_release,
    local_version,
    release_version,
    row_of,
)
from cuda_wheels.audit.wheelhouse import MANIFEST, REQUIREMENTS, SUMS, load, sha256
from cuda_wheels.sandbox import credentials, environment, program, publish_client, source_wheel
from cuda_wheels.sandbox.credentials import Credentials
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.release import (
    free_name,
    identity,
    identity_of,
    require_honest,
    stamp,
)
from cuda_wheels.tables.names import pins_of
from cuda_wheels.tables.publish_addresses import TWINE

TIMEOUT_S = 60
# How often another name is tried where other publishers take each for the same row and date.
TRIES = 20


class AlreadyThere(Exception):
    """The server refuses a file whose name it has."""


def main(request: dict[str, Any]) -> None:
    """Publish, and say in a line what became of it."""

    def index(scratch: Path) -> PackageIndex:
        upload = request["upload"]
        return PackageIndex(upload, request["simple"], credentials.find(upload, TWINE), scratch)

    publish_client.run(request, ("upload", "simple"), index, publish)


def publish(
    house: Path,
    index: PackageIndex,
    row: str,
    *,
    date: str,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Upload what is missing, the release last; returns a sentence about it."""
    require_honest(house, row, date, index.upload)
    content = identity(house)
    there = index.release_of(row, content)
    if there:
        what = "nothing would be done" if dry_run else "nothing was done"
        return f"{row} is in {index.simple} already as {there}: {what}."
    wheels = sorted(house.glob("*.whl"))
    missing = index.missing(wheels)
    if dry_run:
        for wheel in wheels:
            what = "would be uploaded" if wheel in missing else "is there already"
            say(f"{wheel.name} {what}")
        name = free_name(date, index.dates(row))
        return f"{row} would be added to {index.upload} as {name}."
    for wheel in missing:
        say(f"uploading {wheel.name}")
        index.add(wheel)
    for _ in range(TRIES):
        name = free_name(date, index.dates(row))
        try:
            index.send(write_release(house, row, name, index.scratch))
        except AlreadyThere:
            # Another publisher was faster; it may have published the very same.
            if there := index.release_of(row, content):
                return f"{row} was added to {index.simple} as {there} meanwhile."
            continue
        return f"{row} was added to {index.upload} as {name}."
    raise ProgramError(
        f"{index.upload} refuses every release of {row} and {date} as one that it has, but "
        f"{index.simple} lists none of them. Is that the index which it fills? "
        "`[cuda-publish].simple_indexes` says which it is."
    )


# --- the release -------------------------------------------------------------------------------


def write_release(house: Path, row: str, date: str, scratch: Path) -> Path:
    """The wheel that stands for a release: small, and equal for equal wheelhouses and dates."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        copy = Path(folder)
        others = [path for path in house.rglob("*") if path.is_file() and path.suffix != ".whl"]
        for path in others:
            target = copy / path.relative_to(house)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        stamp(copy, date)
        files = {
            path.relative_to(copy).as_posix(): path.read_bytes()
            for path in copy.rglob("*")
            if path.is_file()
        }
    version = release_version(row, date)
    stem = f"{PROJECT.replace('-', '_')}-{version}"
    members = {f"{stem}.dist-info/{FILES}/{name}": content for name, content in files.items()}
    members[f"{stem}.dist-info/METADATA"] = _metadata(house, row, version).encode()
    members[f"{stem}.dist-info/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: cuda-wheels\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    path = scratch / f"{stem}-py3-none-any.whl"
    source_wheel.write(path, members)
    return path


def _metadata(house: Path, row: str, version: str) -> str:
    """It requires torch, all wheels and the pinned packages, each in the version that it names."""
    manifest = load(house / MANIFEST)
    pins = {
        "torch": manifest["tags"]["torch"],
        **pins_of((house / REQUIREMENTS).read_text(encoding="utf-8")),
        **{wheel["name"]: wheel["version"] for wheel in manifest["wheels"]},
    }
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {PROJECT}",
        f"Version: {version}",
        f"Summary: The CUDA wheels of {row} that belong together",
        *(f"Requires-Dist: {name}=={pin}" for name, pin in sorted(pins.items()) if pin),
    ]
    return "\n".join(lines) + "\n"


# --- the index ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackageIndex:
    """An upload API and the index that it fills. `scratch` is a folder for small files."""

    upload: str
    simple: str
    credentials: Credentials
    scratch: Path

    def dates(self, row: str) -> list[str]:
        """The names of the releases of a row."""
        return [date_of(file.filename) for file in self._releases(row)]

    def release_of(self, row: str, content: str) -> str | None:
        """The name of the release that has this `identity`."""
        for file in self._releases(row):
            with zipfile.ZipFile(self._download(file)) as archive:
                texts = {
                    name.rsplit("/", 1)[-1]: archive.read(name).decode()
                    for name in archive.namelist()
                    if name.endswith((f"/{FILES}/{MANIFEST}", f"/{FILES}/{SUMS}"))
                }
            if identity_of(texts[SUMS], texts[MANIFEST]) == content:
                return date_of(file.filename)
        return None

    def missing(self, wheels: list[Path], uploaded: str = "Nothing was uploaded.") -> list[Path]:
        """Those that the index lacks; raises ProgramError naming each that it has otherwise.

        `uploaded` says what became of the others.
        """
        found = {wheel: self.digest(wheel.name) for wheel in wheels}
        others = [wheel for wheel in wheels if found[wheel] not in (None, sha256(wheel))]
        if others:
            raise ProgramError(
                f"{self.simple} has other files of these names:\n"
                + "".join(
                    f"* {wheel.name} has the sha256 {found[wheel]} there, here {sha256(wheel)}.\n"
                    for wheel in others
                )
                + f"{uploaded} An index has one file of a name. If an upload broke off there, remove "
                "what it left. Otherwise publish to another index, or to a `file:` or `oci:` one, "
                "where each release has its own; or give the recipe another version."
            )
        return [wheel for wheel in wheels if found[wheel] is None]

    def add(self, wheel: Path) -> None:
        """Upload a wheel that another publisher may be uploading at this moment."""
        try:
            self.send(wheel)
        except AlreadyThere as error:
            there = self.digest(wheel.name)
            if there is None:
                raise ProgramError(
                    f"{self.upload} refuses {wheel.name} as one that it has, but {self.simple} does "
                    "not list it. Is that the index which it fills? "
                    "`[cuda-publish].simple_indexes` says which it is."
                ) from error
            self.missing([wheel], "What was uploaded before it is there, and no release.")

    def digest(self, name: str) -> str | None:
        """The sha256 of a file of the index; None where there is none of that name."""
        project = name.split("-")[0]
        found = [file for file in self._files(project) if file.filename == name]
        if not found:
            return None
        # An index need not tell, and a weaker hash proves nothing.
        return found[0].digests.get("sha256") or sha256(self._download(found[0]))

    def send(self, wheel: Path) -> None:
        """Upload a file; raises AlreadyThere where the server says so."""
        import requests
        from twine.commands.upload import upload
        from twine.exceptions import TwineException
        from twine.settings import Settings

        nothing = self.scratch / "no-config"
        nothing.touch()
        with _told(self.upload, self.upload):
            try:
                settings = Settings(
                    repository_url=self.upload,
                    username=self.credentials.user,
                    password=self.credentials.password,
                    non_interactive=True,
                    # What a user's .pypirc says is for their own packages.
                    config_file=str(nothing),
                    disable_progress_bar=True,
                )
                # It says of each file where it goes, and we did.
                with contextlib.redirect_stdout(io.StringIO()):
                    upload(settings, [str(wheel)])
            except requests.HTTPError as error:
                if _is_there(error.response):
                    raise AlreadyThere(wheel.name) from error
                raise
            except TwineException as error:
                raise ProgramError(f"{wheel.name} was not uploaded: {error}.") from error

    def _releases(self, row: str) -> list[Any]:
        return [
            file
            for file in self._files(PROJECT)
            if is_release(file.filename) and row_of(file.filename) == local_version(row)
        ]

    def _files(self, project: str) -> list[Any]:
        from pypi_simple import NoSuchProjectError, PyPISimple

        with _told(self.simple, self.upload), PyPISimple(self.simple, auth=self._auth()) as client:
            try:
                return list(client.get_project_page(project, timeout=TIMEOUT_S).packages)
            except NoSuchProjectError:
                return []

    def _download(self, file: Any) -> Path:
        from pypi_simple import PyPISimple

        path = self.scratch / "downloaded"
        with _told(self.simple, self.upload), PyPISimple(self.simple, auth=self._auth()) as client:
            client.download_package(file, path, verify=bool(file.digests), timeout=TIMEOUT_S)
        return path

    def _auth(self) -> tuple[str, str] | None:
        return (self.credentials.user, self.credentials.password) if self.credentials else None


@contextlib.contextmanager
def _told(address: str, service: str) -> Iterator[None]:
    """Faults of the network and answers of the server, in words; without a password in any."""
    import requests

    try:
        yield
    except requests.HTTPError as error:
        response = error.response
        if response is None:
            raise ProgramError(f"{address} cannot be reached: {error}") from error
        said = f"{response.status_code} {response.reason}"
        if response.status_code in (401, 403):
            raise ProgramError(
                f"{address} refuses ({said}). {credentials.advice(service, TWINE)}"
            ) from error
        raise ProgramError(f"{address} answers {said}.") from error
    except requests.RequestException as error:
        reason = environment.hide_credentials(str(error))
        raise ProgramError(f"{address} cannot be used: {reason}.") from error


def _is_there(response: Any) -> bool:
    """Whether a server refused a file because it has one of that name.

    The answers are those that twine knows of pypiserver, Nexus, Artifactory, GitLab and others.
    """
    from twine.commands.upload import skip_upload

    # It asks for the package too, and does not look at it.
    return bool(skip_upload(response, True, cast(Any, None)))


if __name__ == "__main__":
    program.run(main)
