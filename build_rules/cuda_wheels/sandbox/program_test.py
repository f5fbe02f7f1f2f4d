"""How programs read their request and report what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox.program import ProgramError, read_request, require, run


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param("{", "is not JSON", id="broken"),
        pytest.param("[]", "does not hold a JSON object", id="list"),
    ],
)
def test_a_bad_request_is_explained(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "request.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ProgramError, match=message):
        read_request(["program", str(path)])


def test_no_argument_is_explained() -> None:
    with pytest.raises(ProgramError, match="usage: program"):
        read_request(["program"])


def test_all_missing_keys_are_reported() -> None:
    with pytest.raises(ProgramError, match="lacks: b, c"):
        require({"a": 1}, "a", "b", "c")


def test_a_program_error_is_its_message_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "request.json"
    path.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["program", str(path)])

    def main(request: dict[str, Any]) -> None:
        raise ProgramError("Do this.")

    with pytest.raises(SystemExit) as exit_:
        run(main)
    assert exit_.value.code == 1
    assert capsys.readouterr().err == "Do this.\n"
