from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_wheels.sandbox import session_settings
from cuda_wheels.sandbox.program import ProgramError


def link(name: str, cache: Path) -> None:
    """The link by which Pants tells a program the name of its settings."""
    cache.mkdir(exist_ok=True)
    links = Path(session_settings.LINKS)
    links.mkdir()
    (links / name).symlink_to(cache)


@pytest.fixture(autouse=True)
def _sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sandbox").mkdir()
    monkeypatch.chdir(tmp_path / "sandbox")


def test_each_session_reads_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "settings"
    for name in ("one", "other"):
        sandbox = tmp_path / f"sandbox-{name}"
        sandbox.mkdir()
        monkeypatch.chdir(sandbox)
        link(name, cache)
        assert session_settings.read(tmp_path) is None
        (cache / f"{name}.json").write_text(json.dumps({"indexes": [name]}))
    assert session_settings.read(tmp_path) == {"indexes": ["other"]}
    monkeypatch.chdir(tmp_path / "sandbox-one")
    assert session_settings.read(tmp_path) == {"indexes": ["one"]}


def test_the_file_of_the_cache_counts_where_no_name_is_told(tmp_path: Path) -> None:
    assert session_settings.read(tmp_path) is None
    (tmp_path / "settings.json").write_text('{"indexes": ["of the cache"]}')
    assert session_settings.read(tmp_path) == {"indexes": ["of the cache"]}
    link("mine", tmp_path / "settings")
    assert session_settings.read(tmp_path) is None
    (tmp_path / "settings").rmdir()
    assert session_settings.read(tmp_path) == {"indexes": ["of the cache"]}


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_broken_settings_are_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(ProgramError, match="settings.json cannot be read"):
        session_settings.read(tmp_path)
