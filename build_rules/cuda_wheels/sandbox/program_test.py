from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import program


def _run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_text: str, error: Exception | None
) -> list[dict[str, Any]]:
    path = tmp_path / "request.json"
    path.write_text(request_text)
    monkeypatch.setattr("sys.argv", ["program", str(path)])
    seen = []

    def main(request: dict[str, Any]) -> None:
        seen.append(request)
        if error:
            raise error

    program.run(main)
    return seen


def test_the_program_gets_its_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert _run(monkeypatch, tmp_path, json.dumps({"a": 1}), None) == [{"a": 1}]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (program.ProgramError("Do this instead."), "Do this instead."),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "The disk is full"),
        (
            shutil.Error([("/a", "/b", str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))]),
            "The disk is full: [Errno 28] No space left on device. Free",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "The disk is full"),
    ],
)
def test_what_the_user_can_act_on_is_a_message(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    words: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        _run(monkeypatch, tmp_path, "{}", error)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"):
        _run(monkeypatch, tmp_path, "{}", OSError(errno.EIO, "Input/output error"))


@pytest.mark.parametrize("text", ["no json", "[1]"])
def test_a_damaged_request_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        _run(monkeypatch, tmp_path, text, None)
    assert "request.json" in capsys.readouterr().err
