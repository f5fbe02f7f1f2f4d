from __future__ import annotations

from typing import Any

import pytest

from cuda_wheels.sources import BUILD_FILE_OBJECTS, FilesSource, SdistSource

SHA256 = "0" * 64


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
        ("files_source", (), {}),
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
    (problem,) = SdistSource(name, version, SHA256).problems()
    assert words in problem


def test_all_faults_come_together() -> None:
    assert len(SdistSource("a b", "x", "y").problems()) == 3


@pytest.mark.parametrize("root", ["/tmp", "..", "a/../..", "", 3])
def test_files_lie_below_the_build_file(root: Any) -> None:
    (problem,) = FilesSource(root).problems()
    assert problem.startswith(f"files_source({root!r}): ")


@pytest.mark.parametrize("root", [".", "vecadd", "a/..b"])
def test_a_directory_below_the_build_file(root: str) -> None:
    assert FilesSource(root).problems() == ()
