from __future__ import annotations

import pytest
from pants.core.util_rules import environments
from pants.core.util_rules.environments import (
    DockerEnvironmentTarget,
    LocalEnvironmentTarget,
    RemoteEnvironmentTarget,
)
from pants.engine.addresses import Address
from pants.engine.platform import Platform
from pants.testutil.rule_runner import QueryRule, RuleRunner

from cuda_wheels.field_sets import CudaWheelFieldSet
from cuda_wheels.rules import wheel_environment
from cuda_wheels.rules.wheel_environment import WheelEnvironment, WheelEnvironmentRequest
from cuda_wheels.target_types import CudaWheelTarget

OTHER = {Platform.linux_x86_64: "linux_arm64", Platform.linux_arm64: "linux_x86_64"}
ARCH = {"linux_x86_64": "amd64", "linux_arm64": "arm64"}
HERE = Platform.create_for_localhost()


@pytest.fixture
def rule_runner() -> RuleRunner:
    return RuleRunner(
        rules=[
            *environments.rules(),
            *wheel_environment.rules(),
            QueryRule(WheelEnvironment, [WheelEnvironmentRequest]),
        ],
        target_types=[
            CudaWheelTarget,
            DockerEnvironmentTarget,
            LocalEnvironmentTarget,
            RemoteEnvironmentTarget,
        ],
        inherent_environment=None,
    )


def _ask(
    rule_runner: RuleRunner, declared: str, *options: str, environment: str = "amd64-cu130"
) -> WheelEnvironment:
    rule_runner.write_files(
        {
            "images/BUILD": declared,
            "thing/BUILD": f"""cuda_wheel(
                name="w", package="thing", version="1", source=":src", arch="amd64", accel="cu130",
                environment="{environment}",
            )""",
        }
    )
    names = "--environments-preview-names={'amd64-cu130': 'images:e'}"
    rule_runner.set_options([names, *options])
    target = rule_runner.get_target(Address("thing", target_name="w"))
    request = WheelEnvironmentRequest(CudaWheelFieldSet.create(target))
    return rule_runner.request(WheelEnvironment, [request])


def _problem(found: WheelEnvironment) -> str:
    assert found.name is None
    (problem,) = found.problems
    return problem


@pytest.mark.parametrize(
    "declared",
    [
        pytest.param('local_environment(name="e")', id="local"),
        pytest.param('docker_environment(name="e", image="an:1")', id="docker"),
        pytest.param(
            f'docker_environment(name="e", image="an:1", platform="{HERE.value}")', id="platform"
        ),
    ],
)
def test_one_that_is_used(rule_runner: RuleRunner, declared: str) -> None:
    assert _ask(rule_runner, declared) == WheelEnvironment("amd64-cu130")


def test_one_that_there_is_not(rule_runner: RuleRunner) -> None:
    problem = _problem(_ask(rule_runner, 'local_environment(name="e")', environment="amd64-cu13"))
    assert "'amd64-cu13'" in problem and "Did you mean 'amd64-cu130'?" in problem


def test_an_image_of_another_architecture(rule_runner: RuleRunner) -> None:
    other = OTHER[HERE]
    problem = _problem(
        _ask(rule_runner, f'docker_environment(name="e", image="an:1", platform="{other}")')
    )
    # What was declared, what was found, what to do.
    assert f"`amd64-cu130` is the image an:1 for {ARCH[other]}" in problem
    assert f"this machine and its Docker daemon are {ARCH[HERE.value]}" in problem
    assert f"on an {ARCH[other]} machine that has Docker" in problem
    assert "pants.remote-execution.toml" in problem and "DOCKER_HOST" in problem


def test_docker_is_switched_off(rule_runner: RuleRunner) -> None:
    declared = 'docker_environment(name="e", image="an:1")'
    problem = _problem(_ask(rule_runner, declared, "--no-docker-execution"))
    assert "an:1" in problem and "`[GLOBAL].docker_execution` is off" in problem


def test_a_cluster_that_is_not_in_use(rule_runner: RuleRunner) -> None:
    problem = _problem(_ask(rule_runner, 'remote_environment(name="e", platform="linux_x86_64")'))
    assert "`[GLOBAL].remote_execution` is off" in problem and "docs/remote.md" in problem


def test_a_local_one_for_other_machines(rule_runner: RuleRunner) -> None:
    declared = f'local_environment(name="e", compatible_platforms=["{OTHER[HERE]}"])'
    problem = _problem(_ask(rule_runner, declared))
    assert HERE.value in problem and "`compatible_platforms`" in problem
