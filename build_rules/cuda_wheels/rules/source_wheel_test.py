from __future__ import annotations

from typing import Any

import pytest
from pants.engine.addresses import Address

from cuda_wheels.rules.source import Patch
from cuda_wheels.rules.source_wheel import SourceWheelFieldSet, commit_version, problems_of
from cuda_wheels.sources import FilesSource, GitSource
from cuda_wheels.tables.patches import PatchHeader
from cuda_wheels.target_types import SourceWheelTarget

COMMIT = "9f37497e4f3005c90bbbe7221b86439c29d60611"


def field_set(**fields: Any) -> SourceWheelFieldSet:
    values = {
        "package": "pointcept",
        "version": "1.7.0.post8",
        "source": ":src",
        "contents": {"pointcept": "pointcept", "configs": "pointcept/configs"},
        **fields,
    }
    return SourceWheelFieldSet.create(SourceWheelTarget(values, Address("packages/pointcept")))


def test_the_version_names_the_commit() -> None:
    source = GitSource("https://example.org/a", COMMIT)
    assert commit_version("1.7.0.post8", source) == "1.7.0.post8+g9f37497"
    assert commit_version("1.7.0", FilesSource(".")) == "1.7.0"


def test_sound_fields_have_no_problems() -> None:
    assert problems_of(field_set(metadata={"Requires-Python": ">=3.10"})) == ()


@pytest.mark.parametrize("path", ["/etc", "../outside", "a/../../b", "", ".", "a/"])
def test_what_is_no_directory_of_the_tree_or_the_wheel(path: str) -> None:
    for contents in ({path: "pointcept"}, {"pointcept": path}):
        (problem,) = problems_of(field_set(contents=contents))
        assert repr(path) in problem


def test_everything_wrong_is_said_at_once() -> None:
    patch = Patch("patches/0001-x.patch", PatchHeader("why", cuda=">=13.0"))
    problems = problems_of(
        field_set(
            package="a b", version="one", contents={}, metadata={"A": "1\nB: 2"}, output_path="../x"
        ),
        (patch,),
    )
    assert len(problems) == 6
    assert "`output_path` is '../x', which leads out of `--distdir`" in problems[0]
    assert "`contents` is empty" in problems[3]
    assert "0001-x.patch is limited to rows (CUDA: >=13.0)" in problems[5]
