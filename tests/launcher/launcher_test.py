"""The launcher: finding Python, making the set-up once, and surviving what happens to it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Callable

import pytest

from launcher import toy as toys
from launcher.toy import Toy

WAYS_TO_GET_PYTHON = ("apt-get install python3.9", "pyenv install 3.9", "uv python install 3.9")
NOWHERE = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}


def test_the_first_run_sets_up_and_the_second_does_not(toy: Toy) -> None:
    first = toy.run(toy.environment("twice"), "package", "a b::")
    assert (first.exit_code, first.set_up) == (0, True), first.stderr
    assert first.arguments == ("package", "a b::")
    second = toy.run(toy.environment("twice"), "--version")
    assert (second.exit_code, second.stderr, second.arguments) == (0, "", ("--version",))


def test_a_later_run_needs_no_index_and_no_python(toy: Toy, ready: str) -> None:
    run = toy.run(toy.environment(ready, PANTS_PYTHON="/nowhere/python3.9", **NOWHERE))
    assert (run.exit_code, run.stderr) == (0, "")


def test_pants_is_told_of_the_pex_tool(toy: Toy, ready: str) -> None:
    variables = toy.run(toy.environment(ready)).variables
    pex = Path(variables["PANTS_PEX_CLI_URL_TEMPLATE"].replace("file://", ""))
    content = pex.read_bytes()
    known = f"v2.1.163|linux_x86_64|{hashlib.sha256(content).hexdigest()}|{len(content)}"
    assert f"'{known}'" in variables["PANTS_PEX_CLI_KNOWN_VERSIONS"]


def test_a_daemon_that_does_not_start_is_told_without_a_traceback(toy: Toy, ready: str) -> None:
    run = toy.run(toy.environment(ready), "busy")
    assert run.exit_code == 1
    assert "pants: exceeded timeout of 60 seconds while waiting for pantsd to start" in run.stderr
    assert "--no-pantsd" in run.stderr and "Traceback" not in run.stderr


def test_another_fault_of_pants_is_shown_whole(toy: Toy, ready: str) -> None:
    run = toy.run(toy.environment(ready), "broken")
    assert run.exit_code == 1
    assert "Traceback" in run.stderr and "ValueError: another fault" in run.stderr


def test_what_another_version_set_up_serves_this_one(toy: Toy, ready: str, tmp_path: Path) -> None:
    shutil.copytree(toy.cache(ready), toy.cache(tmp_path.name), symlinks=True)
    (home,) = toy.homes(tmp_path.name)
    toys.write_program(home / "server", "exit 7")
    run = toy.run(toy.environment(tmp_path.name), "a")
    assert (run.exit_code, run.set_up, run.arguments) == (0, False, ("a",))
    assert sorted(path.name for path in home.glob("*server*")) == ["server"]


def remove_python(home: Path) -> None:
    (home / "venv/bin/python").unlink()


def cut_pex_short(home: Path) -> None:
    (home / "pex").write_bytes(b"")


def stop_before_the_end(home: Path) -> None:
    (home / "complete").unlink()


def clean_libraries(home: Path) -> None:
    shutil.rmtree(home / "venv/lib")


@pytest.mark.parametrize(
    "harm", [remove_python, cut_pex_short, stop_before_the_end, clean_libraries]
)
def test_a_broken_set_up_is_made_again(
    toy: Toy, ready: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    shutil.copytree(toy.cache(ready), toy.cache(tmp_path.name), symlinks=True)
    (home,) = toy.homes(tmp_path.name)
    harm(home)
    run = toy.run(toy.environment(tmp_path.name))
    assert (run.exit_code, run.set_up) == (0, True), run.stderr
    assert not toy.run(toy.environment(tmp_path.name)).set_up
    assert toy.homes(tmp_path.name) == [home]


def test_two_first_runs_at_once_make_one_set_up(toy: Toy) -> None:
    processes = [toy.start(toy.environment("at-once"), str(number)) for number in range(2)]
    runs = [toys.finish(process) for process in processes]
    assert [(run.exit_code, run.arguments) for run in runs] == [(0, ("0",)), (0, ("1",))]
    assert sorted(run.set_up for run in runs) == [False, True]
    assert len(toy.homes("at-once")) == 1


def test_what_a_killed_set_up_left_is_removed(toy: Toy) -> None:
    left = toy.cache("killed") / "cuda-wheels/.pants-new.AAAAAA/venv"
    left.mkdir(parents=True)
    assert toy.run(toy.environment("killed")).exit_code == 0
    assert not left.parent.exists()


def test_a_failed_set_up_leaves_nothing_and_says_whose_index_it_was(toy: Toy) -> None:
    run = toy.run(toy.environment("failed", PIP_FIND_LINKS=str(toy.root / "home")))
    assert run.exit_code == 1
    assert "No matching distribution found for pantsbuild.pants" in run.stderr
    assert "`pip config list`" in run.stderr
    assert [path.name for path in (toy.cache("failed") / "cuda-wheels").iterdir()] == [".lock"]


def test_a_wheel_that_is_not_the_locked_one_is_refused(toy: Toy, tmp_path: Path) -> None:
    toys.write_wheel(tmp_path, "pantsbuild.pants", "2.17.1", {"other.py": ""})
    run = toy.run(toy.environment("other-wheel", PIP_FIND_LINKS=str(tmp_path)))
    assert run.exit_code == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in run.stderr
    assert toy.homes("other-wheel") == []


def test_no_python_is_one_message_with_every_way_out(toy: Toy) -> None:
    run = toy.run(toy.environment("no-python", PANTS_PYTHON=""))
    assert run.exit_code == 1
    for way in (*WAYS_TO_GET_PYTHON, "PANTS_PYTHON=", "standard launcher"):
        assert run.stderr.count(way) == 1, way
    assert "looked for python3.9 on PATH" in run.stderr


@pytest.mark.parametrize("python", ["/nowhere/python3.9", "/bin/sh"])
def test_a_chosen_python_that_is_none_is_named(toy: Toy, python: str) -> None:
    run = toy.run(toy.environment("wrong-python", PANTS_PYTHON=python))
    assert run.exit_code == 1
    assert f"PANTS_PYTHON={python} is not a CPython 3.9 that runs" in run.stderr


def test_a_stand_in_on_path_is_passed_over_for_pyenvs(toy: Toy, tmp_path: Path) -> None:
    toys.write_program(tmp_path / "shims/python3.9", "echo 'command not found' >&2; exit 127")
    shutil.copytree(toy.python.parent, tmp_path / "pyenv/versions/3.9.18/bin")
    (tmp_path / "pyenv/versions/3.9.18/bin/python3.9").rename(
        tmp_path / "pyenv/versions/3.9.18/bin/python"
    )
    environment = toy.environment(
        "pyenv",
        PANTS_PYTHON="",
        PYENV_ROOT=str(tmp_path / "pyenv"),
        PATH=f"{tmp_path / 'shims'}:{toy.programs}",
    )
    run = toy.run(environment)
    assert (run.exit_code, run.set_up) == (0, True), run.stderr


def test_uv_is_asked_for_its_python(toy: Toy, tmp_path: Path) -> None:
    toys.write_program(tmp_path / "uv", f'[ "$1 $2" = "python find" ] && echo "{toy.python}"')
    run = toy.run(toy.environment("uv", PANTS_PYTHON="", PATH=f"{tmp_path}:{toy.programs}"))
    assert (run.exit_code, run.set_up) == (0, True), run.stderr
