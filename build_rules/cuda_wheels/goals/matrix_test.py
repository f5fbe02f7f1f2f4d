from __future__ import annotations

import json
from pathlib import Path

import pytest
from pants.backend.project_info import list_targets, peek
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.internals.scheduler import ExecutionError
from pants.testutil.rule_runner import GoalRuleResult, RuleRunner

from cuda_wheels import register
from cuda_wheels.goals.matrix import CudaMatrix

# A prelude of one package and four rows: locked, skipped for a package, not locked, impossible.
PRELUDE = """
ROWS = (
    ("amd64", "cu130", "9.0 12.0"),
    ("amd64", "cu126", "9.0"),
    ("arm64", "cu130", "9.0 12.1"),
    ("amd64", "cu128", "9.0 10.3"),
)

def package(name, without=(), **fields):
    cuda_source(name="src", source=files_source("."), sources=["setup.py"])
    for arch, accel, cuda_arch in ROWS:
        cuda_wheel(
            name=arch + "-" + accel, package=name, version="1", source=":src", arch=arch,
            accel=accel, torch="2.9.1", cuda_arch=cuda_arch.split(),
            skipped="It has no code for " + accel + "." if accel in without else None, **fields,
        )
"""
LOCKS = ("amd64-cu130", "amd64-cu126", "amd64-cu128")


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *list_targets.rules(),
            *peek.rules(),
            *register.rules(),
        ],
        target_types=register.target_types(),
        objects=dict(register.build_file_aliases().objects),
    )
    runner.write_files(
        {
            "prelude.py": PRELUDE,
            "packages/one/BUILD": "package('one', timeout=60 * 60 * 9)",
            "packages/one/setup.py": "",
            "packages/other/BUILD": "package('other', without=('cu126',))",
            "packages/other/setup.py": "",
            "elsewhere/BUILD": "package('elsewhere')",
            "elsewhere/setup.py": "",
            "empty/BUILD": "cuda_source(name='src', source=files_source('.'))",
            **{f"3rdparty/torch/{lock}-torch2.9.1-cp312.txt": "# a lock\n" for lock in LOCKS},
        }
    )
    return runner


def _run(
    rule_runner: RuleRunner, *args: str, goal: type = CudaMatrix, path: str | None = None
) -> GoalRuleResult:
    return rule_runner.run_goal_rule(
        goal,
        global_args=("--build-file-prelude-globs=prelude.py",),
        args=args,
        env={"PATH": path} if path else None,
        env_inherit={"HOME", "PYENV_ROOT"} if path else {"PATH", "HOME", "PYENV_ROOT"},
    )


def test_without_a_target_it_shows_what_is_below_packages(rule_runner: RuleRunner) -> None:
    result = _run(rule_runner)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:6] == [
        "             one",
        "             |  other",
        "amd64-cu126  +  s",
        "amd64-cu128  x  x",
        "amd64-cu130  +  +",
        "arm64-cu130  p  p",
    ]
    assert "It has no code for cu126." in result.stdout
    assert result.stdout.count("10.3: the nvcc of cu128 cannot emit it") == 1
    assert result.stdout.count("./pants cuda-lock ") == 1
    assert "cuda_home" in result.stdout


def test_without_packages_it_shows_the_repository(rule_runner: RuleRunner) -> None:
    for package in ("one", "other"):
        rule_runner.write_files({f"packages/{package}/BUILD": ""})
    assert "elsewhere" in _run(rule_runner).stdout


def test_the_targets_and_filters_choose(rule_runner: RuleRunner) -> None:
    result = _run(
        rule_runner, "--arch=amd64", "--accel=cu126,cu130", "--format=json", "elsewhere::"
    )
    document = json.loads(result.stdout)
    assert [wheel["address"] for wheel in document["wheels"]] == [
        "elsewhere:amd64-cu126",
        "elsewhere:amd64-cu130",
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["empty::"], "was given no `cuda_wheel` target"),
        (["--accel=cu31"], "Did you mean 'cu130'?"),
        (["--package=one", "--accel=cu128", "--arch=arm64"], "No wheel is left"),
        (["--accel=cu128", "--format=github"], "No wheel of the selection is buildable"),
    ],
)
def test_an_empty_selection_is_an_error(
    rule_runner: RuleRunner, args: list[str], words: str
) -> None:
    result = _run(rule_runner, *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


def test_a_ci_matrix(rule_runner: RuleRunner) -> None:
    result = _run(rule_runner, "--format=github")
    first, second = json.loads(result.stdout)["include"]
    assert first["targets"] == ["packages/one:amd64-cu130", "packages/other:amd64-cu130"]
    assert second["targets"] == ["packages/one:amd64-cu126"]
    by_wheel = _run(rule_runner, "--format=github", "--github-entries=wheel")
    names = [entry["name"] for entry in json.loads(by_wheel.stdout)["include"]]
    assert names == ["one-amd64-cu126", "one-amd64-cu130", "other-amd64-cu130"]


# --------------------------------------------------------------------------------------------
# This machine
# --------------------------------------------------------------------------------------------


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def _nvidia_smi(folder: Path, gpus: str, driver: str, cuda: str) -> str:
    """A PATH with a machine of that name, a Python, and an nvidia-smi that tells this."""
    listing = "; ".join(f"echo '{gpu}, {driver}'" for gpu in gpus.split())
    banner = f"NVIDIA-SMI {driver}  Driver Version: {driver}  CUDA Version: {cuda}"
    _script(folder / "nvidia-smi", f'if [ $# = 0 ]; then echo "| {banner} |"; else {listing}; fi')
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("cuda", "driver", "row"),
    [("13.0", "580.95.05", "amd64-cu130"), ("12.8", "570.86.10", "amd64-cu126")],
)
def test_the_row_of_this_machine(
    rule_runner: RuleRunner, tmp_path: Path, cuda: str, driver: str, row: str
) -> None:
    result = _run(
        rule_runner,
        "--this-host",
        "--arch=amd64",
        path=_nvidia_smi(tmp_path, "9.0", driver, cuda),
    )
    assert result.exit_code == 0, result.stderr
    assert f"GPU 9.0, driver {driver} (CUDA {cuda}): {row}" in result.stdout
    assert f"\n{row}  +" in result.stdout
    assert len([line for line in result.stdout.splitlines() if line.startswith("amd64-")]) == 1


def test_programs_are_told_what_this_machine_is(rule_runner: RuleRunner, tmp_path: Path) -> None:
    path = _nvidia_smi(tmp_path, "9.0", "580.95.05", "13.0")
    result = _run(rule_runner, "--this-host", "--format=json", path=path)
    assert json.loads(result.stdout)["host"] == {
        "name": "x86_64",
        "arch": "amd64",
        "accel": "cu130",
        "gpus": ["9.0"],
        "nvidia_smi": str(tmp_path / "nvidia-smi"),
        "driver": "580.95.05",
        "cuda": "13.0",
    }


@pytest.mark.parametrize(
    ("gpus", "driver", "cuda", "words"),
    [
        ("9.0", "470.82.01", "11.4", "470.82.01 runs CUDA up to 11.4"),
        ("7.5", "580.95.05", "13.0", "names GPU 7.5"),
        ("9.0", "580.95.05", "N/A", "no CUDA version of the driver 580.95.05"),
        ("", "580.95.05", "13.0", "no GPU's compute capability"),
    ],
)
def test_a_machine_without_a_row(
    rule_runner: RuleRunner, tmp_path: Path, gpus: str, driver: str, cuda: str, words: str
) -> None:
    path = _nvidia_smi(tmp_path, gpus, driver, cuda) if gpus else None
    if path is None:
        _script(tmp_path / "nvidia-smi", f'[ $# = 0 ] && echo "CUDA Version: {cuda}"')
        path = f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"
    result = _run(rule_runner, "--this-host", path=path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr


# --------------------------------------------------------------------------------------------
# What is impossible breaks nothing else
# --------------------------------------------------------------------------------------------


def test_other_goals_show_an_impossible_row(rule_runner: RuleRunner) -> None:
    listed = _run(rule_runner, "packages/one::", goal=list_targets.List)
    assert "packages/one:amd64-cu128" in listed.stdout
    peeked = _run(rule_runner, "packages/one:amd64-cu128", goal=peek.Peek)
    assert json.loads(peeked.stdout)[0]["cuda_arch"] == ["9.0", "10.3"]


def test_two_rows_of_one_name_are_named(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({"packages/one/BUILD": "package('one')\npackage('one')"})
    with pytest.raises(ExecutionError) as raised:
        _run(rule_runner, "packages/one::")
    for part in ("packages/one/BUILD", "'src'", "cannot use the same name"):
        assert part in str(raised.value)
    rule_runner.write_files(
        {"prelude.py": PRELUDE.replace('("arm64", "cu130", "9.0 12.1")', '("amd64", "cu130", "")')}
    )
    rule_runner.write_files({"packages/one/BUILD": "package('one')"})
    with pytest.raises(ExecutionError) as raised:
        _run(rule_runner, "packages/one::")
    for part in ("packages/one/BUILD", "'amd64-cu130'", "'cuda_wheel'", "cannot use the same name"):
        assert part in str(raised.value)
