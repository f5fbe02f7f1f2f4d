from __future__ import annotations

from typing import Any

import pytest

from cuda_wheels.sources import (
    BUILD_FILE_OBJECTS,
    FilesSource,
    GitSource,
    PrebuiltWheel,
    SdistSource,
    WheelSource,
)
from cuda_wheels.tables.upstreams import github, pyg_index

SHA256 = "0" * 64
COMMIT = "1" * 40
URL = "https://git.example/owner/name"


@pytest.mark.parametrize(
    ("alias", "args", "kwargs"),
    [
        ("sdist_source", (), {}),
        ("sdist_source", ("torch-scatter",), {}),
        ("sdist_source", ("torch-scatter", "2.1.2", SHA256, "more"), {}),
        ("sdist_source", ("torch-scatter", "2.1.2"), {"sha": SHA256}),
        ("sdist_source", ("torch-scatter", "2.1.2"), {"sha256": [SHA256]}),
        ("archive_source", (), {}),
        ("archive_source", ({},), {}),
        ("wheel_source", ("cumm",), {}),
        ("git_source", (), {"commit": COMMIT}),
        ("git_source", (URL,), {"tag": "v1.0"}),
        ("git_source", (URL,), {"commit": [COMMIT]}),
        ("files_source", (), {}),
        ("prebuilt_wheel", ("cumm-cu126",), {}),
        ("prebuilt_wheel", ("cumm-cu126", "0.8.2"), {"torch": "2.9.1"}),
    ],
)
def test_a_wrong_call_is_named_as_the_build_file_has_it(
    alias: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as raised:
        BUILD_FILE_OBJECTS[alias](*args, **kwargs)
    assert f"It is written `{alias}(" in str(raised.value)
    assert "__init__" not in str(raised.value)


def test_a_right_call_is_the_value() -> None:
    assert BUILD_FILE_OBJECTS["files_source"]("vecadd") == FilesSource("vecadd")
    source = BUILD_FILE_OBJECTS["sdist_source"]("flash_attn", "2.8.3.post2", sha256=SHA256)
    assert source == SdistSource("flash_attn", "2.8.3.post2", SHA256)
    assert source.problems() == ()
    wheel = BUILD_FILE_OBJECTS["wheel_source"]("cumm", "0.8.2", sha256=SHA256)
    assert wheel == WheelSource("cumm", "0.8.2", SHA256) and wheel.problems() == ()
    address = BUILD_FILE_OBJECTS["github"]("Pointcept/Pointcept")
    git = BUILD_FILE_OBJECTS["git_source"](address, commit=COMMIT, subdirectory="libs/pointops")
    assert git == GitSource(github("Pointcept/Pointcept"), COMMIT, "libs/pointops")
    assert git.problems() == ()


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("https://example.com/x.tar.gz", "1.0", "archive_source('https://example.com/x.tar.gz'"),
        ("torch scatter", "1.0", "`name`"),
        ("torch/../scatter", "1.0", "`name`"),
        ("torch-scatter", "two", "`version`"),
        ("torch-scatter", " ", "`version`"),
        (None, "1.0", "`name`"),
        ("torch-scatter", 2.1, "`version`"),
    ],
)
def test_what_is_no_name_or_no_version(name: Any, version: Any, words: str) -> None:
    for source in (SdistSource(name, version, SHA256), WheelSource(name, version, SHA256)):
        (problem,) = source.problems()
        assert words in problem


def test_all_faults_come_together() -> None:
    assert len(SdistSource("a b", "x", "y").problems()) == 3
    assert len(WheelSource("a b", "x", "y").problems()) == 3
    assert len(GitSource("", "v1", "..").problems()) == 3
    assert len(GitSource("ext::sh", "v1", "/").problems()) == 3


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "http://127.0.0.1:8000/name.git",
        "ssh://git@git.example/owner/name.git",
        "file:///srv/git/name.git",
    ],
)
@pytest.mark.parametrize("commit", [COMMIT, "0123456789abcdef" * 4])
@pytest.mark.parametrize("subdirectory", ["", ".", "libs/a..b"])
def test_a_pinned_commit(url: str, commit: str, subdirectory: str) -> None:
    assert GitSource(url, commit, subdirectory).problems() == ()


@pytest.mark.parametrize(
    ("commit", "words"),
    [
        ("", "git ls-remote URL TAG 'TAG^{}'"),
        ("v1.0", "git ls-remote URL v1.0 'v1.0^{}'"),
        ("main", "git ls-remote URL main"),
        ("abc1234", "git rev-parse abc1234"),
        ("A" * 40, f"git rev-parse {'a' * 40}"),
        ("1" * 63, "no whole commit"),
        (None, "git ls-remote URL TAG"),
        (7, "no whole commit"),
    ],
)
def test_a_tag_a_branch_or_a_short_commit_is_no_pin(commit: Any, words: str) -> None:
    (problem,) = GitSource(URL, commit).problems()
    assert words in problem and repr(commit) in problem and URL in problem


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("--upload-pack=touch x", "white space"),
        ("--upload-pack=touch", "`https://`"),
        ("ext::sh -c id", "white space"),
        ("ext::id", "`https://`"),
        ("git://git.example/name", "`https://`"),
        ("git@git.example:owner/name.git", "`ssh://git@HOST/PATH`"),
        ("/srv/git/name", "`file://`"),
        ("owner/name", "`https://`"),
        ("https:///name", "`https://`"),
        ("ssh://-oProxyCommand=id/name", "`https://`"),
        ("https://[::1/name", "Invalid IPv6"),
        ("https://git.example/a\nb", "white space"),
        (github("Pointcept"), "'Pointcept' is no repository"),
        (github(None), "'None' is no repository"),
        (github(URL), "is no repository"),
        ("", "`url`"),
        (3, "`url`"),
    ],
)
def test_what_git_is_not_asked_for(url: Any, words: str) -> None:
    (problem,) = GitSource(url, COMMIT).problems()
    assert words in problem


@pytest.mark.parametrize(
    "url",
    [
        "https://someone:s3cret@git.example/name",
        "https://s3cret@git.example/name",
        "ssh://git:s3cret@git.example/name",
    ],
)
def test_a_password_has_no_place_in_a_recipe(url: str) -> None:
    (problem,) = GitSource(url, COMMIT).problems()
    assert "[cuda-wheels].source_mirrors" in problem and "s3cret" not in problem


@pytest.mark.parametrize("folder", ["/libs", "..", "a/../..", "a\\b", None, 3])
def test_a_subdirectory_is_a_folder_of_the_repository(folder: Any) -> None:
    (problem,) = GitSource(URL, COMMIT, folder).problems()
    assert repr(folder) in problem


@pytest.mark.parametrize("root", ["/tmp", "..", "a/../..", "", 3])
def test_files_lie_below_the_build_file(root: Any) -> None:
    (problem,) = FilesSource(root).problems()
    assert problem.startswith(f"files_source({root!r}): ")


@pytest.mark.parametrize("root", [".", "vecadd", "a/..b"])
def test_a_directory_below_the_build_file(root: str) -> None:
    assert FilesSource(root).problems() == ()


def test_a_prebuilt_wheel() -> None:
    call = BUILD_FILE_OBJECTS["prebuilt_wheel"]
    prebuilt = call("torch-scatter", "2.1.2+pt29cu130", sha256=SHA256, index="pyg")
    assert prebuilt == PrebuiltWheel("torch-scatter", "2.1.2+pt29cu130", SHA256, "pyg")
    assert prebuilt.problems() == ()
    assert prebuilt.page("2.9.1", "cu130") == pyg_index("2.9.1", "cu130")
    assert call("cumm-cu126", "0.8.2", sha256=SHA256).page("2.9.1", "cu126") is None


def test_every_fault_of_a_prebuilt_wheel_is_named() -> None:
    faulty = BUILD_FILE_OBJECTS["prebuilt_wheel"]("cumm/cu126", "two", index="conda")
    problems = faulty.problems()
    assert len(problems) == 4
    for problem, word in zip(problems, ("cumm/cu126", "two", "sha256", "'pyg'")):
        assert problem.startswith("prebuilt_wheel('cumm/cu126', 'two'): ") and word in problem
