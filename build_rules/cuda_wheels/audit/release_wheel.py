"""How a release is called in a package index: a small wheel whose version is a date and a row.

`cuda_wheelhouse-2026.11.30+linux.amd64.cu130.torch2.11.0.cp312-py3-none-any.whl` has the files of
the wheelhouse inside that are no wheels, below `.dist-info/wheelhouse/`.
"""

from __future__ import annotations

import re

PROJECT = "cuda-wheelhouse"
FILES = "wheelhouse"

_NAME = re.compile(r"cuda_wheelhouse-(\d+(?:\.\d+)+)\+([a-z0-9.]+)-py3-none-any\.whl")


def local_version(row: str) -> str:
    """`linux-amd64/cu130/torch2.11.0-cp312` -> `linux.amd64.cu130.torch2.11.0.cp312`"""
    return ".".join(re.split(r"[/-]", row))


def release_version(row: str, date: str) -> str:
    """The version of a release; versions have no leading zeros, dates do."""
    number = ".".join(str(int(part)) for part in date.split("."))
    return f"{number}+{local_version(row)}"


def is_release(file: str) -> bool:
    """Whether a file of the project's page is a release as it is written here."""
    return _NAME.fullmatch(file) is not None


def version_of(file: str) -> str:
    """The version of a release, from the name of its file."""
    return file.split("-")[1]


def date_of(file: str) -> str:
    """The release's name, `2026.01.05` or `2026.01.05.1`, from the name of its file."""
    found = _NAME.fullmatch(file)
    if found is None:
        raise ValueError(f"{file} is no release")
    year, *rest = found.group(1).split(".")
    day = [part.zfill(2) for part in rest[:2]]
    return ".".join([year, *day, *rest[2:]])


def row_of(file: str) -> str:
    """What `local_version` says of its row."""
    found = _NAME.fullmatch(file)
    return found.group(2) if found else ""
