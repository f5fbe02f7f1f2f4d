from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuda_wheels.sandbox.files import write_atomically


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_the_one_that_is_asked_for(tmp_path: Path, mode: int) -> None:
    old = os.umask(0o077)
    try:
        write_atomically(tmp_path / "made/file", "text", mode)
    finally:
        os.umask(old)
    assert (tmp_path / "made/file").read_text() == "text"
    assert (tmp_path / "made/file").stat().st_mode & 0o777 == mode


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
