"""Where the source of a package comes from: content-addressed values for BUILD files.

Each is a frozen dataclass that BUILD files call by its alias, for instance
`source=sdist_source("torch-scatter", "2.1.2", sha256="...")`. They check their shape only: a value
of the wrong shape is kept and reported when the target is packaged, since an exception while
BUILD files are read would break every goal, `list` included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Union

_SHA256 = re.compile(r"[0-9a-f]{64}")


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
            *_sha256_problems(owner, self.sha256),
        )

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
        return _text_problems(f"files_source({self.root!r})", root=self.root)

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"files of this repository below {self.root}"

    @property
    def description(self) -> str:
        """The source as the facts of a wheel record it; its pin is the repository's own commit."""
        return self.title


Source = Union[SdistSource, ArchiveSource, FilesSource]

BUILD_FILE_OBJECTS = {
    "sdist_source": SdistSource,
    "archive_source": ArchiveSource,
    "files_source": FilesSource,
}
