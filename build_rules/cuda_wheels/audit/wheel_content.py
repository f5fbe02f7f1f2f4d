"""What a wheel says of itself inside, against its name and its own bytes."""

from __future__ import annotations

import base64
import csv
import email.parser
import hashlib
import io
import zipfile

from cuda_wheels.tables.names import canonical_name

# They sign RECORD, and cannot stand in it with a hash.
_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_ALGORITHMS = ("sha256", "sha384", "sha512")


def content_problems(archive: zipfile.ZipFile, name: str, version: str, tag: str) -> list[str]:
    """What METADATA and WHEEL say, against the file's name, and RECORD, against the files.

    Raises KeyError where one of the three is missing.
    """
    found = []
    folder = next(
        (n.split("/")[0] for n in archive.namelist() if n.endswith(".dist-info/WHEEL")), ""
    )
    parse = email.parser.Parser().parsestr
    metadata = parse(archive.read(f"{folder}/METADATA").decode("utf-8", "replace"))
    if (canonical_name(str(metadata["Name"])), metadata["Version"]) != (
        canonical_name(name),
        version,
    ):
        found.append(f"its METADATA says {metadata['Name']} {metadata['Version']}.")
    wheel = parse(archive.read(f"{folder}/WHEEL").decode("utf-8", "replace"))
    inside = {str(value) for value in wheel.get_all("Tag", [])}
    names = {
        f"{python}-{abi}-{platform}"
        for python in tag.split("-")[0].split(".")
        for abi in tag.split("-")[1].split(".")
        for platform in tag.split("-")[2].split(".")
    }
    if inside != names:
        found.append(f"its WHEEL says {', '.join(sorted(inside)) or 'no tag'}.")
    return [*found, *_record_problems(archive, folder)]


def _record_problems(archive: zipfile.ZipFile, folder: str) -> list[str]:
    """Installers put files in place without a look at RECORD."""
    text = archive.read(f"{folder}/RECORD").decode("utf-8", "replace")
    recorded = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) > 1}
    files = {member.filename for member in archive.infolist() if not member.is_dir()}
    unhashed = {f"{folder}/{name}" for name in _UNHASHED}
    found = [f"its RECORD names {name}, which is not there." for name in {*recorded} - files]
    for name in files - unhashed:
        if name not in recorded:
            found.append(f"{name} is in it, but not in its RECORD.")
        elif not _is_recorded(archive, name, recorded[name]):
            found.append(f"{name} in it has another hash than its RECORD says.")
    return sorted(found)


def _is_recorded(archive: zipfile.ZipFile, name: str, recorded: str) -> bool:
    """Whether a member has the hash `ALGORITHM=DIGEST` of RECORD."""
    algorithm, _, expected = recorded.partition("=")
    if algorithm not in _ALGORITHMS:
        return False
    digest = hashlib.new(algorithm)
    with archive.open(name) as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=") == expected
