"""Faulty targets, as far as the check stage: nothing is fetched or compiled for any of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pants.core.goals.package import BuiltPackage, EnvironmentAwarePackageRequest
from pants.core.register import rules as core_rules
from pants.core.util_rules import environments
from pants.core.util_rules.environments import DockerEnvironmentTarget, LocalEnvironmentTarget
from pants.engine.addresses import Address
from pants.engine.platform import Platform
from pants.testutil.rule_runner import QueryRule, RuleRunner, engine_error

from cuda_wheels import register
from cuda_wheels.field_sets import CudaWheelFieldSet, CudaWheelPackageFieldSet
from cuda_wheels.rules.wheel import (
    PLATFORMS,
    CudaWheelError,
    CudaWheelInEnvironmentRequest,
    FallibleCudaWheel,
    platform_problem,
)

LOCK = "3rdparty/torch/amd64-cu130-torch2.11.0-cp312.txt"
WHEEL = {
    "name": '"wheel"',
    "package": '"thing"',
    "version": '"1.0"',
    "source": '":src"',
    "arch": '"amd64"',
    "accel": '"cu130"',
    "torch": '"2.11.0"',
    "cuda_arch": '["8.0", "9.0"]',
}
SOURCE = {
    "name": '"src"',
    "source": f'sdist_source("thing", "1.0", sha256="{"ab" * 32}")',
}


@pytest.fixture
def rule_runner() -> RuleRunner:
    runner = RuleRunner(
        rules=[
            *core_rules(),
            *environments.rules(),
            *register.rules(),
            QueryRule(FallibleCudaWheel, [CudaWheelInEnvironmentRequest]),
            QueryRule(BuiltPackage, [EnvironmentAwarePackageRequest]),
        ],
        target_types=[
            *register.target_types(),
            DockerEnvironmentTarget,
            LocalEnvironmentTarget,
        ],
        objects=dict(register.build_file_aliases().objects),
        inherent_environment=None,
    )
    runner.write_files({LOCK: "# a lock\n", "3rdparty/python/bootstrap-tools.txt": "# a lock\n"})
    return runner


def _call(alias: str, fields: dict[str, str], changes: dict[str, str]) -> str:
    values = {**fields, **changes}
    arguments = "".join(f"    {name}={value},\n" for name, value in values.items())
    return f"{alias}(\n{arguments})\n"


def _failure(
    rule_runner: RuleRunner,
    *,
    wheel: dict[str, str] | None = None,
    source: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    options: tuple[str, ...] = (),
    stage: str = "check",
) -> str:
    rule_runner.write_files(
        {
            "thing/BUILD": _call("cuda_source", SOURCE, source or {})
            + _call("cuda_wheel", WHEEL, wheel or {}),
            **(files or {}),
        }
    )
    rule_runner.set_options(options, env_inherit={"PATH", "HOME", "PYENV_ROOT"})
    target = rule_runner.get_target(Address("thing", target_name="wheel"))
    result = rule_runner.request(
        FallibleCudaWheel, [CudaWheelInEnvironmentRequest(CudaWheelFieldSet.create(target))]
    )
    assert result.failure is not None
    assert result.failure.stage == stage
    assert bool(result.skipped) == (stage == "skip")
    return result.error or ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"arch": '"amd46"'}, ("amd46", "amd64"), id="unknown arch"),
        pytest.param({"accel": '"cu113"'}, ("cu113", "cu118"), id="unknown accel"),
        pytest.param({"torch": '"two"'}, ("two",), id="malformed torch"),
        pytest.param({"torch": '"2.8.0"'}, ("2.8.0", "2.9.0", "cu130"), id="torch too old"),
        pytest.param({"torch": "None"}, ("`torch` is not set",), id="no torch"),
        pytest.param({"python": '"2.7"'}, ("2.7", "3.12"), id="unknown python"),
        pytest.param({"python": '"3.11"'}, ("3.11", "3.12"), id="another python"),
        pytest.param(
            {"cuda_arch": '["7.0"]'}, ("7.0", "cu128", "removed in CUDA 13"), id="removed arch"
        ),
        pytest.param(
            {"accel": '"cu128"', "cuda_arch": '["10.3"]'},
            ("10.3", "cu129", "cu130"),
            id="arch too new for nvcc",
        ),
        pytest.param(
            {"gpu_arch_rule": '"flash-attn"', "cuda_arch": '["7.5", "8.0"]'},
            ("7.5", "no kernels"),
            id="a part of the promise",
        ),
        pytest.param({"skipped": '" "'}, ("`skipped` is empty",), id="no reason"),
        pytest.param({"memory_per_job_gb": "0.0"}, ("memory_per_job_gb",), id="no memory"),
        pytest.param({"timeout": "-1"}, ("timeout",), id="negative timeout"),
        pytest.param({"gpu_arch_rule": '"touch"'}, ("touch", "'torch'?"), id="unknown rule"),
        pytest.param({"build_requires": '[":src"]'}, ("thing:src", "cuda_source"), id="no wheel"),
        pytest.param({"torch": '"2.12.0"'}, ("cuda-lock thing:wheel", "torch2.12.0"), id="no lock"),
        pytest.param(
            {"torch": '"2.10.0"'},
            ("cuda-lock thing:wheel", "torch==2.10.0+cu130", "/cu130", "source_mirrors"),
            id="no lock, and torch is not on the package index",
        ),
    ],
)
def test_a_faulty_wheel(
    rule_runner: RuleRunner, changes: dict[str, str], words: tuple[str, ...]
) -> None:
    error = _failure(rule_runner, wheel=changes)
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"skipped": '"It has no code for this."'}, "It has no code for this.", id="field"
        ),
        pytest.param(
            {"skipped": '"Why."', "accel": '"cu113"', "torch": '"two"', "arch": '"arm64"'},
            "Why.",
            id="whatever else",
        ),
        pytest.param(
            {"gpu_arch_rule": '"flash-attn"', "cuda_arch": '["7.5"]'},
            "7.5: flash-attn 2 has no kernels",
            id="rule",
        ),
    ],
)
def test_a_package_that_cannot_serve_the_row(
    rule_runner: RuleRunner, changes: dict[str, str], reason: str
) -> None:
    error = _failure(rule_runner, wheel=changes, stage="skip")
    assert error.startswith("thing:wheel is skipped: ")
    assert reason in error


def test_several_faults_are_reported_together(rule_runner: RuleRunner) -> None:
    error = _failure(
        rule_runner,
        wheel={"torch": '"2.8.0"', "cuda_arch": '["7.0", "9.0"]'},
        source={"source": 'sdist_source("thing", "1.0", sha256="12")'},
        options=("--cuda-wheels-platform-policy=manylinux_9",),
    )
    for word in ("2.8.0", "7.0", "sha256", "manylinux_9"):
        assert word in error


PATCH = dedent("""\
    Reason: a test
    {ranges}
    --- a/setup.py
    +++ b/setup.py
    @@ -1 +1 @@
    -a
    +b
    """)


def test_a_patch_that_no_wheel_selects(rule_runner: RuleRunner) -> None:
    error = _failure(
        rule_runner,
        files={"thing/patches/0001-old.patch": PATCH.format(ranges="CUDA: <13")},
    )
    assert "0001-old.patch" in error and "<13" in error and "cu130" in error


def test_a_patch_without_a_reason(rule_runner: RuleRunner) -> None:
    patch = PATCH.format(ranges="").replace("Reason: a test\n", "")
    error = _failure(rule_runner, files={"thing/patches/0001-why.patch": patch})
    assert "0001-why.patch" in error and "Reason" in error


def test_a_patch_that_is_missing(rule_runner: RuleRunner) -> None:
    error = _failure(rule_runner, source={"sources": '["patches/0001-gone.patch"]'})
    assert "patches/0001-gone.patch" in error and "does not exist" in error


def test_a_source_that_is_no_source(rule_runner: RuleRunner) -> None:
    error = _failure(rule_runner, wheel={"source": '":wheel"'})
    assert "cuda_source" in error and "cuda_wheel" in error


def test_files_that_do_not_exist(rule_runner: RuleRunner) -> None:
    error = _failure(rule_runner, source={"source": 'files_source("code")'})
    assert "'code'" in error and "sources" in error


def test_a_compiler_that_is_not_there(rule_runner: RuleRunner) -> None:
    error = _failure(rule_runner, options=("--cuda-wheels-cxx-compiler=no-such-g++",))
    assert "C++ compiler" in error and "apt-get install g++" in error


def test_a_lock_that_is_no_text(rule_runner: RuleRunner) -> None:
    (Path(rule_runner.build_root) / LOCK).write_bytes("# café\n".encode("latin-1"))
    error = _failure(rule_runner)
    assert f"The lock {LOCK} is no text in UTF-8: byte 5 is 0xe9" in error and "cuda-lock" in error


def test_narrowing_to_what_is_not_promised(rule_runner: RuleRunner) -> None:
    error = _failure(rule_runner, options=("--cuda-wheels-gpu-archs=8.6",))
    assert "8.6" in error and "8.0 9.0" in error


@pytest.mark.parametrize(
    ("arch", "platform", "refused"),
    [
        ("amd64", Platform.linux_x86_64, False),
        ("arm64", Platform.linux_arm64, False),
        ("arm64", Platform.linux_x86_64, True),
        ("amd64", Platform.macos_arm64, True),
    ],
)
def test_a_wheel_is_compiled_natively(arch: str, platform: Platform, refused: bool) -> None:
    problems = platform_problem(arch, platform, f"{arch}-cu130")
    assert bool(problems) == refused
    for problem in problems:
        assert "environments-preview" in problem and f"{arch}-cu130" in problem


def test_an_environment_that_cannot_be_used_is_a_failure_of_its_wheel_alone(
    rule_runner: RuleRunner,
) -> None:
    here = Platform.create_for_localhost().value
    other = next(platform.value for platform in PLATFORMS.values() if platform.value != here)
    error = _failure(
        rule_runner,
        wheel={"environment": '"elsewhere"'},
        files={"images/BUILD": f'docker_environment(name="e", image="an:1", platform="{other}")'},
        options=("--environments-preview-names={'elsewhere': 'images:e'}",),
    )
    said = "* The environment `elsewhere` is the image an:1 for"
    assert said in error
    # And Pants itself does not resolve it for `package`.
    target = rule_runner.get_target(Address("thing", target_name="wheel"))
    with engine_error(CudaWheelError, contains=said):
        rule_runner.request(
            BuiltPackage, [EnvironmentAwarePackageRequest(CudaWheelPackageFieldSet.create(target))]
        )
