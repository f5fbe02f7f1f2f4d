from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cuda_wheels.sandbox import patch
from cuda_wheels.sandbox.program import ProgramError

SETUP = "".join(f"line {number}\n" for number in range(1, 31))
HEADER = "Reason: the test wants it.\nCUDA: >=13.0\n\n"


def diff(file: str, old: str, new: str) -> str:
    """A patch in git's form that turns `old` into `new`."""
    folder = Path("diff")
    for side, text in (("a", old), ("b", new)):
        (folder / side / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / side / file).write_bytes(text.encode())
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", f"a/{file}", f"b/{file}"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stdout.decode()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "setup.py").write_text(SETUP)


def run(patches: dict[str, str], overlay: str | None = None) -> Path:
    listed = []
    for name, text in patches.items():
        Path(name).write_bytes(text.encode())
        listed.append({"name": name, "path": name})
    patch.main({"source": "source", "patches": listed, "overlay": overlay, "out": "patched"})
    return Path("patched")


def failure(patches: dict[str, str], overlay: str | None = None) -> str:
    with pytest.raises(ProgramError) as raised:
        run(patches, overlay)
    assert not Path("patched").exists()
    return str(raised.value)


def test_without_patches_the_tree_is_the_source() -> None:
    assert (run({}) / "setup.py").read_text() == SETUP


def test_patches_apply_in_order_and_leave_the_source_alone() -> None:
    once = SETUP.replace("line 5\n", "five\n")
    twice = once.replace("five\n", "FIVE\n")
    tree = run(
        {
            "0001-a.patch": HEADER + diff("setup.py", SETUP, once),
            "0002-b.patch": HEADER + diff("setup.py", once, twice),
        }
    )
    assert (tree / "setup.py").read_text() == twice
    assert Path("source/setup.py").read_text() == SETUP


def test_a_patch_adds_and_removes_files() -> None:
    new = "--- /dev/null\n+++ b/csrc/new.h\n@@ -0,0 +1 @@\n+#pragma once\n"
    gone = diff("setup.py", SETUP, "").replace("+++ b/setup.py", "+++ /dev/null")
    tree = run({"1.patch": HEADER + new, "2.patch": "deleted\n" + gone})
    assert (tree / "csrc/new.h").read_text() == "#pragma once\n"
    assert (tree / "csrc/new.h").stat().st_mode & 0o777 == 0o644


def test_a_moved_hunk_still_applies() -> None:
    """An earlier patch, left out for this row, may have added lines above."""
    text = diff("setup.py", SETUP, SETUP.replace("line 20\n", "twenty\n"))
    Path("source/setup.py").write_text("one more\n" + SETUP)
    assert "twenty" in (run({"1.patch": text}) / "setup.py").read_text()


def test_a_changed_context_line_is_refused() -> None:
    text = diff("setup.py", SETUP, SETUP.replace("line 20\n", "twenty\n"))
    Path("source/setup.py").write_text(SETUP.replace("line 22\n", "line  22\n"))
    message = failure({"0001-twenty.patch": HEADER + text})
    assert "Patch 0001-twenty.patch does not apply" in message
    assert "setup.py: hunk 1 (@@ -17,7 +17,7 @@" in message
    assert "git: error: patch failed: setup.py:17" in message
    assert "refresh the patch" in message


def test_the_failing_hunk_of_several_is_named() -> None:
    changed = SETUP.replace("line 3\n", "three\n").replace("line 25\n", "twenty-five\n")
    text = diff("setup.py", SETUP, changed)
    Path("source/setup.py").write_text(SETUP.replace("line 25\n", "other\n"))
    assert "setup.py: hunk 2 (@@ -22,7 +22,7 @@" in failure({"1.patch": text})


def test_all_failing_patches_are_reported_and_nothing_is_left() -> None:
    one = diff("setup.py", SETUP, SETUP.replace("line 5\n", "5\n")).replace("line 4", "line four")
    two = diff("gone.py", "x\n", "y\n")
    message = failure({"0001-one.patch": one, "0002-two.patch": two, "0003-none.patch": HEADER})
    for words in ("0001-one.patch", "0002-two.patch", "gone.py: No such file", "0003-none.patch"):
        assert words in message
    assert not list(Path().glob(".patched*"))


def test_a_missing_patch_is_named() -> None:
    with pytest.raises(ProgramError, match="Patch 0009-x.patch is missing"):
        patch.main(
            {
                "source": "source",
                "patches": [{"name": "0009-x.patch", "path": "patches/0009-x.patch"}],
                "overlay": None,
                "out": "patched",
            }
        )


def test_line_ends_of_windows() -> None:
    windows = SETUP.replace("\n", "\r\n")
    Path("source/setup.py").write_bytes(windows.encode())
    changed = windows.replace("line 5\r\n", "five\r\n")
    tree = run({"1.patch": HEADER + diff("setup.py", windows, changed)})
    assert (tree / "setup.py").read_bytes() == changed.encode()


def test_line_ends_must_match() -> None:
    Path("source/setup.py").write_bytes(SETUP.replace("\n", "\r\n").encode())
    text = diff("setup.py", SETUP, SETUP.replace("line 5\n", "five\n"))
    assert "does not apply" in failure({"1.patch": text})


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_a_patch_cannot_write_outside(name: str) -> None:
    text = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    assert "git: error" in failure({"1.patch": text})
    assert not Path("outside").exists()


def test_a_repository_around_the_sandbox_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a repository `git apply` would skip every file and call it a success."""
    subprocess.run(["git", "init", "-q", "."], check=True)
    monkeypatch.setenv("GIT_DIR", str(Path(".git").resolve()))
    text = diff("setup.py", SETUP, SETUP.replace("line 5\n", "five\n"))
    assert "five" in (run({"1.patch": text}) / "setup.py").read_text()


def test_the_users_git_settings_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("home").mkdir()
    Path("home/.gitconfig").write_text("[apply]\n\tignoreWhitespace = change\n")
    monkeypatch.setenv("HOME", str(Path("home").resolve()))
    text = diff("setup.py", SETUP, SETUP.replace("line 20\n", "twenty\n"))
    Path("source/setup.py").write_text(SETUP.replace("line 22\n", "line  22\n"))
    assert "does not apply" in failure({"1.patch": text})


def test_overlay_comes_before_the_patches() -> None:
    Path("overlay/csrc").mkdir(parents=True)
    Path("overlay/csrc/shim.h").write_text("old\n")
    tree = run({"1.patch": diff("csrc/shim.h", "old\n", "new\n")}, "overlay")
    assert (tree / "csrc/shim.h").read_text() == "new\n"


def test_overlay_never_replaces_a_file_of_the_source() -> None:
    Path("overlay").mkdir()
    Path("overlay/setup.py").write_text("ours")
    message = failure({}, "overlay")
    assert "would replace files of the source: setup.py" in message


@pytest.mark.parametrize("parent", ["file", "link"])
def test_overlay_goes_below_no_file_and_no_link(parent: str) -> None:
    Path("source/file").write_text("x")
    Path("outside").mkdir()
    Path("source/link").symlink_to(Path("outside").resolve())
    Path(f"overlay/{parent}").mkdir(parents=True)
    Path(f"overlay/{parent}/new.h").write_text("x")
    assert f"{parent}/new.h" in failure({}, "overlay")
    assert list(Path("outside").iterdir()) == []


def test_a_patch_that_changes_nothing() -> None:
    assert "no `diff` is below its header" in failure({"1.patch": HEADER})


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    text = diff("setup.py", SETUP, SETUP.replace("line 5\n", "five\n"))
    monkeypatch.setenv("PATH", "")
    assert "git is needed" in failure({"1.patch": text})


def test_lines_that_look_like_headers_are_not_counted() -> None:
    text = (
        "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- a comment\n+-- other\n x\n"
        "@@ -9 +9,2 @@\n y\n+z\n"
    )
    assert [(h.file, h.number, h.old_start) for h in patch.hunks(text)] == [
        ("q.sql", 1, 1),
        ("q.sql", 2, 9),
    ]
