"""Where the source of a package comes from: content-addressed values for BUILD files.

Each is a frozen dataclass that BUILD files call by its alias, for instance
`source=sdist_source("torch-scatter", "2.1.2", sha256="...")`. They check their shape only: a value
of the wrong shape is kept and reported when the target is packaged, since an exception while
BUILD files are read would break every goal, `list` included.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Callable, Union

from packaging.version import InvalidVersion, Version

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _sha256_problems(owner: str, sha256: Any) -> tuple[str, ...]:
    if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
        return ()
    return (
        f"{owner}: `sha256` is {sha256!r}, which is not 64 lower-case hexadecimal digits. "
        "A source is pinned by its content: give the sha256 of the file "
        "(`sha256sum FILE` prints it).",
    )


def _text_problems(owner: str, **values: Any) -> tuple[str, ...]:
    return tuple(
        f"{owner}: `{name}` is {value!r}: a non-empty string is needed."
        for name, value in values.items()
        if not isinstance(value, str) or not value.strip()
    )


def name_problem(owner: str, name: str) -> str | None:
    """Why `name` cannot be the name of a distribution; None if it can."""
    if _NAME.fullmatch(name):
        return None
    return (
        f"{owner} is {name!r}, which is no name of a distribution: letters and digits, with "
        "`-`, `_` and `.` between them, for instance 'torch-scatter'."
    )


def version_problem(owner: str, version: str) -> str | None:
    """Why `version` cannot be the version of a distribution; None if it can."""
    try:
        Version(version)
    except InvalidVersion:
        return f"{owner} is {version!r}, which is no version. Write it like '2.1.2' (PEP 440)."
    return None


@dataclass(frozen=True)
class SdistSource:
    """`sdist_source(name, version, sha256=...)`: a source distribution of a Python package index.

    It is looked up in `[python-repos].indexes` and `.find_links` and downloaded without running
    any of its code.
    """

    name: str
    version: str
    sha256: str = ""

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"sdist_source({self.name!r}, {self.version!r})"
        return (
            *_text_problems(owner, name=self.name, version=self.version),
            *self._unusable(owner),
            *_sha256_problems(owner, self.sha256),
        )

    def _unusable(self, owner: str) -> tuple[str, ...]:
        """What is text, but no name and no version."""
        problems: list[str | None] = []
        if isinstance(self.name, str) and "://" in self.name:
            problems.append(
                f"{owner}: the name is an address. For the file there write "
                f"`archive_source({self.name!r}, sha256=...)`."
            )
        elif isinstance(self.name, str) and self.name.strip():
            problems.append(name_problem(f"{owner}: `name`", self.name))
        if isinstance(self.version, str) and self.version.strip():
            problems.append(version_problem(f"{owner}: `version`", self.version))
        return tuple(problem for problem in problems if problem)

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"sdist {self.name} {self.version}"

    @property
    def description(self) -> str:
        """The source with its pin, as the facts of a wheel record it."""
        return f"{self.title}, sha256 {self.sha256}"


@dataclass(frozen=True)
class ArchiveSource:
    """`archive_source(url, sha256=...)`: a tar or zip archive at a `https:` or `file:` address.

    Its single top directory, if it has one, is stripped. `[cuda-wheels].source_mirrors` rewrites
    the beginning of the address.
    """

    url: str
    sha256: str = ""

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"archive_source({self.url!r})"
        return (*_text_problems(owner, url=self.url), *_sha256_problems(owner, self.sha256))

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"archive {self.url}"

    @property
    def description(self) -> str:
        """The source with its pin, as the facts of a wheel record it."""
        return f"{self.title}, sha256 {self.sha256}"


@dataclass(frozen=True)
class FilesSource:
    """`files_source(root)`: files of this repository, below `root` beside the BUILD file.

    The files themselves are named by the target's `sources` field; `root` becomes the top of the
    source tree.
    """

    root: str

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"files_source({self.root!r})"
        problems = _text_problems(owner, root=self.root)
        if not problems and (self.root.startswith("/") or ".." in self.root.split("/")):
            return (f"{owner}: name a directory below the one of the BUILD file, or '.' for that.",)
        return problems

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"files of this repository below {self.root}"

    @property
    def description(self) -> str:
        """The source as the facts of a wheel record it; its pin is the repository's own commit."""
        return self.title


Source = Union[SdistSource, ArchiveSource, FilesSource]

# How each is written, for the message about a call that is not.
_FORMS: tuple[tuple[str, type, str], ...] = (
    ("sdist_source", SdistSource, 'sdist_source("NAME", "VERSION", sha256="...")'),
    ("archive_source", ArchiveSource, 'archive_source("https://...", sha256="...")'),
    ("files_source", FilesSource, 'files_source("DIRECTORY")'),
)


def _constructor(alias: str, source: type, form: str) -> Callable[..., Source]:
    """What a BUILD file calls: `source`, with errors that name it as the BUILD file does."""

    @functools.wraps(source, updated=())
    def construct(*args: Any, **kwargs: Any) -> Source:
        try:
            value = source(*args, **kwargs)
            hash(value)
        except TypeError as error:
            reason = str(error).replace("__init__()", f"{alias}(...)")
            raise TypeError(f"{reason}. It is written `{form}`, of strings.") from None
        return value

    return construct


BUILD_FILE_OBJECTS = {alias: _constructor(alias, source, form) for alias, source, form in _FORMS}
