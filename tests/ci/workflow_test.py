"""The workflow: valid, without what zizmor knows to be unsafe, and true to the scripts it calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

BIN = Path(sys.executable).parent
WORKFLOWS = sorted(Path(".github/workflows").glob("*.yml"))
CI = Path(".github/workflows/ci.yml")
# What a pinned action looks like: the commit, and for people the release that it is.
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def run(program: str, *arguments: object, text: str | None = None) -> str:
    """What a linter says; it must have ended well."""
    done = subprocess.run(
        [str(BIN / program), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def refused(program: str, *arguments: object, text: str | None = None) -> str:
    with pytest.raises(AssertionError) as caught:
        run(program, *arguments, text=text)
    return str(caught.value)


def jobs(path: Path = CI) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text())["jobs"])


def steps(path: Path = CI) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


def test_there_is_one() -> None:
    assert CI in WORKFLOWS


SCHEMA = ["--builtin-schema", "vendor.github-workflows"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_it_is_valid(path: Path, tmp_path: Path) -> None:
    run("check-jsonschema", *SCHEMA, path)
    wrong = tmp_path / path.name
    wrong.write_text(path.read_text().replace("runs-on:", "run-on:", 1))
    assert "run-on" in refused("check-jsonschema", *SCHEMA, wrong)


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_zizmor_has_nothing_to_say(path: Path, tmp_path: Path) -> None:
    run("zizmor", "--offline", "--no-progress", path)
    wrong = tmp_path / path.name
    wrong.write_text(re.sub(r"@[0-9a-f]{40} # v", "@v", path.read_text(), count=1))
    assert "unpinned-uses" in refused("zizmor", "--offline", "--no-progress", wrong)


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_shellcheck_has_nothing_to_say_of_its_commands(path: Path) -> None:
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        run("shellcheck", "--shell=bash", "-", text=command)
    assert "SC2086" in refused("shellcheck", "--shell=bash", "-", text="x=$1\nls $x")


@pytest.mark.parametrize("path", WORKFLOWS, ids=str)
def test_actions_are_pinned_by_their_commit(path: Path) -> None:
    used = re.findall(r"^ +(?:- )?uses: (.*)", path.read_text(), re.MULTILINE)
    assert used and [one for one in used if not PINNED.fullmatch(one)] == []
    # One commit for one release, and one release an action.
    names: dict[str, set[str]] = {}
    for one in used:
        names.setdefault(one.split("@")[0].split("/")[1], set()).add(one.split("@")[1])
    assert {name: len(pins) for name, pins in names.items()} == {name: 1 for name in names}


def test_the_scripts_that_it_calls_are_there() -> None:
    commands = "\n".join(step["run"] for step in steps() if "run" in step)
    called = set(re.findall(r"\.ci/\w+", commands))
    assert called == {".ci/run", ".ci/prepare", ".ci/plan", ".ci/publish"}
    assert [name for name in called if not Path(name).stat().st_mode & 0o100] == []


def test_it_reads_the_outputs_and_keys_that_the_plan_writes() -> None:
    text, plan = CI.read_text(), Path(".ci/plan").read_text()
    outputs = {"wheels", "wheelhouses", "any_wheels", "any_wheelhouses"}
    assert set(re.findall(r"steps\.plan\.outputs\.(\w+)", text)) == outputs
    assert set(re.findall(r"needs\.plan\.outputs\.(\w+)", text)) == {*outputs, "cache"}
    assert 'print(f"{name}=' in plan and 'print(f"any_{name}=' in plan
    for key in set(re.findall(r"matrix\.(\w+)", text)) - {"targets"}:
        assert f'"{key}"' in plan
    # Of its own matrix, `targets` is the key of `cuda-matrix`.
    assert "matrix.targets" in text


def test_only_a_release_may_write_anything() -> None:
    writing = {
        name
        for name, job in jobs().items()
        if "write" in {*job["permissions"].values(), *([] if job["permissions"] else ["none"])}
    }
    assert writing == {"publish"}
    assert "refs/tags/" in jobs()["publish"]["if"]
    # And where it does, no package is built.
    commands = " ".join(step.get("run", "") for step in jobs()["publish"]["steps"])
    assert "./pants" not in commands


def test_secrets_of_the_cache_reach_the_preparation_alone() -> None:
    for step in steps():
        named = [
            key for key, value in step.get("env", {}).items() if "secrets.REMOTE" in str(value)
        ]
        assert not named or step.get("run") == ".ci/prepare" or named == ["THERE"]
    written = {
        step["env"]["REMOTE_CACHE_WRITE"]
        for step in steps()
        if "REMOTE_CACHE_WRITE" in step.get("env", {})
    }
    assert written == {"${{ github.event_name == 'push' }}"}
