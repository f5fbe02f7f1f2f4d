"""The process of a shell, beside that of the compile step which it stands in for."""

from __future__ import annotations

import json

import pytest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.core.util_rules.environments import (
    DockerEnvironmentTarget,
    EnvironmentTarget,
    LocalEnvironmentTarget,
)
from pants.engine.addresses import Address
from pants.engine.environment import EnvironmentName
from pants.engine.fs import DigestContents
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels import register
from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules.programs import PROGRAM_ENV, program_files
from cuda_wheels.rules.shell import FallibleShell, ShellRequest, unsupported_environment

LOCK = "3rdparty/torch/amd64-cu130-torch2.11.0-cp312.txt"
BOOTSTRAP_LOCK = "3rdparty/python/bootstrap-tools.txt"
WHEEL = """
cuda_source(name="src", source=files_source("."), sources=["setup.py", "patches/*.patch"])
cuda_wheel(
    name="wheel",
    package="thing",
    version="1.0",
    source=":src",
    arch="amd64",
    accel="cu130",
    torch="2.11.0",
    cuda_arch={cuda_arch},
    env={{"FORCE_CUDA": "1"}},
    memory_per_job_gb=2.5,
)
"""
UNAPPLICABLE_PATCH = """\
Reason: a test of a patch that does not apply.
--- a/setup.py
+++ b/setup.py
@@ -1 +1 @@
-this line is nowhere
+another
"""


@pytest.fixture
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *register.rules(),
            QueryRule(FallibleShell, [ShellRequest, EnvironmentName]),
        ],
        target_types=[*register.target_types(), LocalEnvironmentTarget],
        objects=dict(register.build_file_aliases().objects),
        inherent_environment=None,
    )


def _open(
    rule_runner: RuleRunner, *arguments: str, cuda_arch: str = '["9.0"]', patch: str | None = None
) -> FallibleShell:
    rule_runner.write_files(
        {
            LOCK: "# a lock\n",
            BOOTSTRAP_LOCK: "# a lock\n",
            "thing/BUILD": WHEEL.format(cuda_arch=cuda_arch),
            "thing/setup.py": "# a package\n",
            **({"thing/patches/0001-why.patch": patch} if patch else {}),
        }
    )
    rule_runner.set_options(
        [], env={"TERM": "xterm-256color"}, env_inherit={"PATH", "HOME", "PYENV_ROOT"}
    )
    target = rule_runner.get_target(Address("thing", target_name="wheel"))
    request = ShellRequest(CudaWheelFieldSet.create(target), arguments)
    return rule_runner.request(FallibleShell, [request, EnvironmentName(None)])


def test_a_shell_has_the_inputs_of_the_compile_step(rule_runner: RuleRunner) -> None:
    process = _open(rule_runner, "-c", "ls").process
    assert process is not None
    assert process.argv[1:] == ("-m", "cuda_wheels.sandbox.shell", "request.json")
    assert dict(process.env) == {**PROGRAM_ENV, "TERM": "xterm-256color"}
    assert process.append_only_caches["cuda_wheels"] == ".cuda_wheels"
    assert "cuda_wheels_settings" in process.append_only_caches
    contents = {
        file.path: file.content
        for file in rule_runner.request(DigestContents, [process.input_digest])
    }
    assert contents["source/setup.py"] == b"# a package\n"
    assert LOCK in contents and BOOTSTRAP_LOCK in contents
    # Of what a build is made, and at what place, the compile program alone decides.
    assert contents.items() >= program_files("compile").items()
    request = json.loads(contents["request.json"])
    assert request.pop("shell_arguments") == ["-c", "ls"]
    assert request["env"] == {"FORCE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "9.0"}
    assert (request["source"], request["build_lock"]) == ("source", LOCK)


def test_no_wheel_is_compiled_anew_for_the_shell() -> None:
    names = set(program_files("compile"))
    assert names.isdisjoint({f"cuda_wheels/sandbox/{n}.py" for n in ("shell", "terminal")})


def test_a_faulty_target_opens_no_shell(rule_runner: RuleRunner) -> None:
    shell = _open(rule_runner, cuda_arch='["7.0"]')
    assert shell.process is None
    assert shell.failure is not None and shell.failure.stage == "check"
    assert "removed in CUDA 13" in shell.failure.message


def test_a_patch_that_does_not_apply_opens_no_shell(rule_runner: RuleRunner) -> None:
    shell = _open(rule_runner, patch=UNAPPLICABLE_PATCH)
    assert shell.process is None
    assert shell.failure is not None and shell.failure.stage == "patch"
    assert "0001-why.patch" in shell.failure.message


def test_the_environment_decides_whether_there_is_a_shell() -> None:
    local = LocalEnvironmentTarget({}, Address("", target_name="local"))
    docker = DockerEnvironmentTarget({"image": "an-image"}, Address("images", target_name="x"))
    assert unsupported_environment(EnvironmentTarget(None, None)) is None
    assert unsupported_environment(EnvironmentTarget("amd64-cu130", local)) is None
    problem = unsupported_environment(EnvironmentTarget("amd64-cu130", docker))
    assert problem is not None
    for word in ("`amd64-cu130`", "`docker_environment`", "local_environment", "so far"):
        assert word in problem
