from __future__ import annotations

from typing import Any

import pytest
from pants.engine.addresses import Address
from pants.engine.target import InvalidFieldTypeException

from cuda_wheels.rules.source import (
    fetch_document,
    literal_glob,
    missing_files,
    read_patches,
    root_problems,
)
from cuda_wheels.sources import (
    ArchiveSource,
    FilesSource,
    GitSource,
    SdistSource,
    Source,
    WheelSource,
)
from cuda_wheels.target_types import SourceOriginField

ADDRESS = Address("packages/thing", target_name="src")
SHA = "ab" * 32


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(SdistSource("thing", "1.0"), id="absent"),
        pytest.param(SdistSource("thing", "1.0", sha256="ab"), id="short"),
        pytest.param(SdistSource("thing", "1.0", sha256="AB" * 32), id="upper case"),
        pytest.param(SdistSource("thing", "1.0", sha256=None), id="None"),  # type: ignore[arg-type]
        pytest.param(ArchiveSource("file:///a.tar.gz", sha256="md5"), id="archive"),
    ],
)
def test_a_source_without_a_hash_is_refused(source: SdistSource | ArchiveSource) -> None:
    (problem,) = source.problems()
    assert "`sha256`" in problem and "sha256sum" in problem


def test_all_faults_of_a_source_are_reported_together() -> None:
    assert len(SdistSource("", " ", sha256="x").problems()) == 3
    assert len(FilesSource("").problems()) == 1
    assert SdistSource("thing", "1.0", sha256=SHA).problems() == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            SdistSource("thing", "1.0", SHA),
            {"kind": "sdist", "name": "thing", "version": "1.0", "sha256": SHA},
        ),
        (
            WheelSource("thing", "1.0", SHA),
            {"kind": "wheel", "name": "thing", "version": "1.0", "sha256": SHA},
        ),
        (
            ArchiveSource("https://a.example/x.zip", SHA),
            {"kind": "archive", "url": "https://a.example/x.zip", "sha256": SHA},
        ),
        (
            GitSource("https://a.example/x", "1" * 40, "libs/x"),
            {"url": "https://a.example/x", "commit": "1" * 40, "subdirectory": "libs/x"},
        ),
    ],
)
def test_what_the_programs_are_asked_for(source: Source, expected: dict[str, str]) -> None:
    assert fetch_document(source) == {**expected, "out": "source"}


def test_a_named_file_that_is_not_there_is_reported() -> None:
    (problem,) = missing_files(
        ADDRESS,
        ("patches/0001-here.patch", "patches/0002-gone.patch", "overlay/**/*"),
        ("packages/thing/patches/0001-here.patch",),
    )
    assert "patches/0002-gone.patch" in problem
    assert "0001-here" not in problem


def test_patches_are_read_in_the_order_of_their_numbers() -> None:
    patch = b"Reason: because\n\n--- a/x\n+++ b/x\n"
    patches, problems = read_patches({"p/0002-b.patch": patch, "p/0001-a.patch": patch})
    assert [p.name for p in patches] == ["0001-a.patch", "0002-b.patch"]
    assert problems == ()


def test_every_faulty_patch_header_is_reported() -> None:
    _, problems = read_patches(
        {
            "p/0001-a.patch": b"--- a/x\n+++ b/x\n",
            "p/0002-b.patch": b"Reason: old\nCUDA: >=thirteen\n--- a/x\n+++ b/x\n",
        }
    )
    assert len(problems) == 2
    assert "0001-a.patch" in problems[0] and "Reason" in problems[0]
    assert "0002-b.patch" in problems[1] and ">=thirteen" in problems[1]


def test_a_mark_of_the_byte_order_is_no_part_of_the_header() -> None:
    patches, problems = read_patches({"p/0001-a.patch": b"\xef\xbb\xbfReason: because\n--- a/x\n"})
    assert problems == () and patches[0].header.reason == "because"


def test_the_name_of_a_patch_is_no_pattern() -> None:
    assert literal_glob("p/0001-a_b c.patch") == "p/0001-a_b c.patch"
    assert literal_glob("p/0001-[a]?*.patch") == "p/0001-[[]a[]][?][*].patch"


@pytest.mark.parametrize("root", [None, 3, ""])
def test_a_root_that_is_no_text_is_reported_once(root: Any) -> None:
    source = FilesSource(root)
    assert len(source.problems()) == 1
    assert root_problems(ADDRESS, source, ("packages/thing/setup.py",)) == ()


def test_a_root_without_files() -> None:
    files = ("packages/thing/setup.py",)
    (problem,) = root_problems(ADDRESS, FilesSource("csrc"), files)
    assert '"csrc/**/*"' in problem
    assert root_problems(ADDRESS, FilesSource("."), files) == ()


@pytest.mark.parametrize(
    "source",
    [
        SdistSource("thing", "1.0"),
        WheelSource("thing", "1.0"),
        ArchiveSource("file:///a.zip"),
        GitSource("https://a.example/x"),
        FilesSource("."),
    ],
)
def test_a_target_takes_every_source(source: Source) -> None:
    assert SourceOriginField(source, ADDRESS).value == source


@pytest.mark.parametrize("value", ["https://a.example/x", ("thing", "1.0"), 3])
def test_what_is_no_source_is_told_what_is_one(value: object) -> None:
    with pytest.raises(InvalidFieldTypeException) as raised:
        SourceOriginField(value, ADDRESS)
    assert "`git_source(...)`, `files_source(...)`" in str(raised.value)
