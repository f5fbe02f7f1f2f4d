from __future__ import annotations

import json

import pytest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.engine.fs import DigestContents
from pants.engine.process import Process
from pants.testutil.rule_runner import QueryRule, RuleRunner, engine_error

from cuda_wheels.rules import place, programs, session_settings
from cuda_wheels.rules.programs import (
    TOOL_LOCKS,
    MissingToolError,
    ProgramProcess,
    imported_modules,
    program_files,
)


def test_imports_of_this_package_are_found() -> None:
    source = b"""
import json
import cuda_wheels.tables.glibc
from cuda_wheels.sandbox import environment, program
from pathlib import Path
"""
    assert set(imported_modules(source)) >= {
        "cuda_wheels.tables.glibc",
        "cuda_wheels.sandbox.environment",
        "cuda_wheels.sandbox.program",
    }
    assert not any(name.startswith(("json", "pathlib")) for name in imported_modules(source))


@pytest.mark.parametrize(
    "program",
    ["probe", "fetch", "git", "patch", "compile", "shell", "repair", "inspect_wheel", "lock"],
)
def test_a_program_comes_with_what_it_imports_and_nothing_else(program: str) -> None:
    files = program_files(program)
    assert f"cuda_wheels/sandbox/{program}.py" in files
    assert "cuda_wheels/sandbox/program.py" in files
    for path, content in files.items():
        for module in imported_modules(content):
            name = module.replace(".", "/") + ".py"
            assert programs.module_file(module) is None or name in files, (path, module)
    # A change of the matrix or of a target's fields must not rebuild anything.
    assert not any(path.startswith(("cuda_wheels/rules", "cuda_wheels/goals")) for path in files)
    assert "cuda_wheels/target_types.py" not in files
    assert "cuda_wheels/tables/rows.py" not in files


@pytest.fixture
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *programs.rules(),
            *session_settings.rules(),
            *place.rules(),
            QueryRule(Process, [ProgramProcess]),
        ],
    )


def _write_locks(rule_runner: RuleRunner) -> None:
    rule_runner.write_files({path: f"# {name}\n" for name, path in TOOL_LOCKS.items()})


def test_the_request_is_the_only_argument(rule_runner: RuleRunner) -> None:
    _write_locks(rule_runner)
    rule_runner.set_options([], env_inherit={"PATH", "PYENV_ROOT", "HOME"})
    process = rule_runner.request(
        Process, [ProgramProcess.create("probe", {"answer": 42}, description="Look", locks=())]
    )
    assert process.argv[1:] == ("-m", "cuda_wheels.sandbox.probe", "request.json")
    contents = {
        file.path: file.content
        for file in rule_runner.request(DigestContents, [process.input_digest])
    }
    assert json.loads(contents["request.json"]) == {"answer": 42, "cache": ".cuda_wheels"}
    assert not any(path.startswith("3rdparty/") for path in contents)


def test_the_number_of_cores_is_not_in_the_key(rule_runner: RuleRunner) -> None:
    _write_locks(rule_runner)
    rule_runner.set_options([], env_inherit={"PATH", "PYENV_ROOT", "HOME"})
    process = rule_runner.request(
        Process,
        [ProgramProcess.create("compile", {}, description="Compile", concurrency=64)],
    )
    assert process.argv[-1] == "--concurrency={pants_concurrency}"
    assert process.concurrency_available == 64


def test_a_missing_tool_lock_is_named(rule_runner: RuleRunner) -> None:
    rule_runner.set_options([], env_inherit={"PATH", "PYENV_ROOT", "HOME"})
    with engine_error(MissingToolError, contains="3rdparty/python/bootstrap-tools.txt"):
        rule_runner.request(
            Process,
            [
                ProgramProcess.create(
                    "compile", {}, description="Compile", locks=("bootstrap_lock",)
                )
            ],
        )


def test_no_python_says_how_to_get_one(rule_runner: RuleRunner) -> None:
    _write_locks(rule_runner)
    rule_runner.set_options(["--python-bootstrap-search-path=['/nonexistent']"])
    with engine_error(MissingToolError, contains="apt-get install python3.12"):
        rule_runner.request(Process, [ProgramProcess.create("probe", {}, description="Look")])


def test_what_else_is_missing_is_reported_with_it(rule_runner: RuleRunner) -> None:
    rule_runner.set_options(
        [
            "--python-bootstrap-search-path=['/nonexistent']",
            "--cuda-wheels-cxx-compiler=no-such-g++",
        ],
        env_inherit={"PATH"},
    )
    with engine_error(MissingToolError, contains="apt-get install g++"):
        rule_runner.request(Process, [ProgramProcess.create("probe", {}, description="Look")])
