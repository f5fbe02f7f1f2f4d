from __future__ import annotations

import email
import zipfile
from pathlib import Path

import pytest

from cuda_wheels.sandbox import environment, source_wheel, wheel_archive
from cuda_wheels.sandbox.program import ProgramError

CONTENTS = {"tiny": "tiny", "configs": "tiny/configs"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(environment, "reexec_in_tools", lambda *arguments: None)


def tree(root: Path, **more: str) -> Path:
    files = {
        "tiny/__init__.py": "",
        "tiny/data/no_package.py": "A = 1\n",
        "tiny/data/table.json": "{}",
        "configs/base.py": "B = 2\n",
        "libs/ops/setup.py": "raise SystemExit",
        "LICENSE": "of the source\n",
        **{name.replace("__", "/"): text for name, text in more.items()},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def pack(source: Path, out: Path, **changes: object) -> Path:
    request = {
        "cache": "",
        "bootstrap_lock": "",
        "tools_lock": "",
        "name": "tiny",
        "version": "1.7.0.post8+gabcdef0",
        "source": str(source),
        "contents": CONTENTS,
        "metadata": {"Requires-Python": ">=3.10"},
        "out": str(out),
        **changes,
    }
    source_wheel.main(request)
    (wheel,) = out.iterdir()
    return wheel


def test_every_file_of_the_named_directories_and_no_other(tmp_path: Path) -> None:
    wheel = pack(tree(tmp_path / "tree"), tmp_path / "out")
    assert wheel.name == "tiny-1.7.0.post8+gabcdef0-py3-none-any.whl"
    info = "tiny-1.7.0.post8+gabcdef0.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist() == [
            "tiny/__init__.py",
            "tiny/configs/base.py",
            "tiny/data/no_package.py",
            "tiny/data/table.json",
            f"{info}/METADATA",
            f"{info}/WHEEL",
            f"{info}/licenses/LICENSE",
            f"{info}/RECORD",
        ]
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert dict(metadata.items()) == {
        "Metadata-Version": "2.4",
        "Name": "tiny",
        "Version": "1.7.0.post8+gabcdef0",
        "Requires-Python": ">=3.10",
        "License-File": "LICENSE",
    }
    assert wheel_archive.scan(wheel, tmp_path).record_problems == ()


def test_neither_times_nor_modes_nor_places_change_a_byte(tmp_path: Path) -> None:
    one = pack(tree(tmp_path / "one"), tmp_path / "out1")
    other_tree = tree(tmp_path / "elsewhere/two")
    (other_tree / "tiny/__init__.py").chmod(0o755)
    (other_tree / "configs/base.py").touch()
    other = pack(other_tree, tmp_path / "out2")
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    changed = pack(tree(tmp_path / "three", configs__base="B = 3\n"), tmp_path / "out3")
    assert changed.read_bytes() != one.read_bytes()


def test_a_tree_of_another_layout_is_reported_whole(tmp_path: Path) -> None:
    source = tree(tmp_path / "tree", tiny__configs__base="taken", tiny__fast="")
    (source / "tiny/configs/base").rename(source / "tiny/configs/base.py")
    (source / "tiny/fast").rename(source / "tiny/fast.so")
    (source / "tiny/link.py").symlink_to("__init__.py")
    (source / "bare").mkdir()
    with pytest.raises(ProgramError) as caught:
        pack(source, tmp_path / "out", contents={**CONTENTS, "tools": "tiny/t", "bare": "b"})
    text = str(caught.value)
    assert "no directory tools; at the top there are: LICENSE, bare, configs, libs, tiny" in text
    assert "the directory bare is empty" in text
    assert "tiny/configs/base.py and configs/base.py would both be tiny/configs/base.py" in text
    assert "tiny/fast.so is compiled" in text
    assert "tiny/link.py is a link" in text
    assert not (tmp_path / "out").exists()
