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
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version
from pants.util.frozendict import FrozenDict

from cuda_wheels.tables.images import image_variants
from cuda_wheels.tables.upstreams import github, github_problem, pyg_index

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


def _index_file_problems(owner: str, name: Any, version: Any, sha256: Any) -> tuple[str, ...]:
    """What is wrong with the name, the version and the pin of a file of a package index."""
    problems: list[str | None] = [*_text_problems(owner, name=name, version=version)]
    if isinstance(name, str) and "://" in name:
        problems.append(
            f"{owner}: the name is an address. For the file there write "
            f"`archive_source({name!r}, sha256=...)`."
        )
    elif isinstance(name, str) and name.strip():
        problems.append(name_problem(f"{owner}: `name`", name))
    if isinstance(version, str) and version.strip():
        problems.append(version_problem(f"{owner}: `version`", version))
    return (*(problem for problem in problems if problem), *_sha256_problems(owner, sha256))


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
        return _index_file_problems(owner, self.name, self.version, self.sha256)

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"sdist {self.name} {self.version}"

    @property
    def description(self) -> str:
        """The source with its pin, as the facts of a wheel record it."""
        return f"{self.title}, sha256 {self.sha256}"


@dataclass(frozen=True)
class WheelSource:
    """`wheel_source(name, version, sha256=...)`: a wheel of a Python package index, unpacked.

    For a package whose wheel carries its whole source. Of the wheels of that version the one with
    the pinned hash is taken, whatever Python or platform its tag names.
    """

    name: str
    version: str
    sha256: str = ""

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"wheel_source({self.name!r}, {self.version!r})"
        return _index_file_problems(owner, self.name, self.version, self.sha256)

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"wheel {self.name} {self.version}"

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


GIT_SCHEMES = ("https", "http", "ssh", "file")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class GitSource:
    """`git_source(url, commit=..., subdirectory="")`: a commit of a git repository.

    The tree is what the commit holds, its submodules included, without `.git`; `subdirectory`
    takes one folder of it. `[cuda-wheels].source_mirrors` rewrites the beginning of the address
    and of those of the submodules.
    """

    url: str
    commit: str = ""
    subdirectory: str = ""

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"git_source({self.url!r})"
        found = _text_problems(owner, url=self.url)
        url_problem = None if found else _git_url_problem(self.url)
        if url_problem:
            # Not the address: where it holds a password, no message may repeat it.
            owner = "git_source(...)"
            found = (f"{owner}: {url_problem}",)
        return (*found, *self._commit_problems(owner), *self._subdirectory_problems(owner))

    def _commit_problems(self, owner: str) -> tuple[str, ...]:
        commit = self.commit
        if isinstance(commit, str) and _COMMIT.fullmatch(commit):
            return ()
        if isinstance(commit, str) and re.fullmatch(r"[0-9a-fA-F]{7,64}", commit):
            how = f"`git rev-parse {commit.lower()}` in a clone prints it in full."
        else:
            tag = commit.strip() if isinstance(commit, str) and commit.strip() else "TAG"
            how = (
                f"`git ls-remote URL {tag} '{tag}^{{}}'` prints it; of two lines the one that ends "
                "in `^{}` names the commit."
            )
        return (
            f"{owner}: `commit` is {commit!r}, which is no whole commit: 40 lower-case hexadecimal "
            "digits (64 in a repository of sha256). A tag or a branch can move, and a short commit "
            f"can become ambiguous. {how}",
        )

    def _subdirectory_problems(self, owner: str) -> tuple[str, ...]:
        folder = self.subdirectory
        if isinstance(folder, str) and not (
            folder.startswith("/") or ".." in folder.split("/") or "\\" in folder
        ):
            return ()
        return (
            f"{owner}: `subdirectory` is {folder!r}: name a folder of the repository, for instance "
            "'libs/pointops', or leave it out for all of it.",
        )

    @property
    def title(self) -> str:
        """The source as messages name it."""
        return f"git {self.url}"

    @property
    def description(self) -> str:
        """The source with its pin, as the facts of a wheel record it."""
        folder = f", folder {self.subdirectory}" if self.subdirectory else ""
        return f"{self.title}, commit {self.commit}{folder}"


def _git_url_problem(url: str) -> str | None:
    """Why git is not asked for `url`; None if it can be."""
    try:
        parts = urlsplit(url)
        user, password, host = parts.username, parts.password, parts.hostname
    except ValueError as error:
        return f"its address is none: {error}."
    if password or (user and parts.scheme != "ssh"):
        return (
            "its address holds a user or a password, which would be recorded in every wheel. Take "
            "them out, and lead the address to one with them by [cuda-wheels].source_mirrors in a "
            "file of your own (`.pants.rc`), which is recorded nowhere."
        )
    if re.search(r"[\s\x00-\x1f]", url):
        return f"its address {url!r} has white space in it."
    has_host = bool(host) and not str(host).startswith("-")
    if parts.scheme not in GIT_SCHEMES or not (has_host or parts.scheme == "file"):
        return (
            f"its address {url!r} is none of {', '.join(f'`{s}://`' for s in GIT_SCHEMES)}. For "
            "`git@HOST:PATH` write `ssh://git@HOST/PATH`."
        )
    return github_problem(url)


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


# The names of `prebuilt_wheel(..., index=...)`: the package index of [python-repos], and PyG's.
PACKAGE_INDEX = ""
PYG = "pyg"


@dataclass(frozen=True)
class PrebuiltWheel:
    """`prebuilt_wheel(name, version, sha256=..., index="")`: a wheel that upstream publishes.

    `name` and `version` are its own and may differ from the package's: `cumm-cu126`,
    `2.1.2+pt29cu130`. With `index="pyg"` it is looked for on PyG's index, on the page of the row's
    torch and accelerator; otherwise in `[python-repos]`.
    """

    name: str
    version: str
    sha256: str = ""
    index: str = PACKAGE_INDEX

    def problems(self) -> tuple[str, ...]:
        """Everything wrong with this value, one sentence a fault; empty if it is usable."""
        owner = f"prebuilt_wheel({self.name!r}, {self.version!r})"
        found = _index_file_problems(owner, self.name, self.version, self.sha256)
        if self.index in (PACKAGE_INDEX, PYG):
            return found
        return (
            *found,
            f"{owner}: `index` is {self.index!r}, which is unknown. Leave it out for the indexes "
            f"of `[python-repos]`, or write {PYG!r} for PyG's.",
        )

    def page(self, torch: str | None, accel: str) -> str | None:
        """The page of links that lists it for a row; None where the package index does."""
        return pyg_index(torch, accel) if self.index == PYG and torch else None

    @property
    def title(self) -> str:
        """The wheel as messages name it."""
        return f"prebuilt {self.name} {self.version}"


Source = Union[SdistSource, WheelSource, ArchiveSource, GitSource, FilesSource]
SOURCE_TYPES = (SdistSource, WheelSource, ArchiveSource, GitSource, FilesSource)

# How each is written, for the message about a call that is not.
_FORMS: tuple[tuple[str, type, str], ...] = (
    ("sdist_source", SdistSource, 'sdist_source("NAME", "VERSION", sha256="...")'),
    ("wheel_source", WheelSource, 'wheel_source("NAME", "VERSION", sha256="...")'),
    ("archive_source", ArchiveSource, 'archive_source("https://...", sha256="...")'),
    ("git_source", GitSource, 'git_source("https://...", commit="...", subdirectory="...")'),
    ("files_source", FilesSource, 'files_source("DIRECTORY")'),
)
SOURCE_ALIASES = tuple(alias for alias, _, _ in _FORMS)


def _constructor(alias: str, source: type, form: str) -> Callable[..., Any]:
    """What a BUILD file calls: `source`, with errors that name it as the BUILD file does."""

    @functools.wraps(source, updated=())
    def construct(*args: Any, **kwargs: Any) -> Any:
        try:
            value = source(*args, **kwargs)
            hash(value)
        except TypeError as error:
            reason = str(error).replace("__init__()", f"{alias}(...)")
            raise TypeError(f"{reason}. It is written `{form}`, of strings.") from None
        return value

    return construct


BUILD_FILE_OBJECTS: dict[str, Callable[..., Any]] = {
    **{alias: _constructor(alias, source, form) for alias, source, form in _FORMS},
    "prebuilt_wheel": _constructor(
        "prebuilt_wheel", PrebuiltWheel, 'prebuilt_wheel("NAME", "VERSION", sha256="...")'
    ),
    "github": github,
    # What `images/pins.py` is written with: a prelude's values must be hashable, which a dict is not.
    "pins": FrozenDict,
    "toolchain_image_variants": image_variants,
}
