from __future__ import annotations

import pytest
from pants.core.util_rules.environments import (
    DockerEnvironmentTarget,
    EnvironmentTarget,
    LocalEnvironmentTarget,
    RemoteEnvironmentTarget,
)
from pants.engine.addresses import Address
from pants.testutil.rule_runner import run_rule_with_mocks

from cuda_wheels.rules.place import Place, PlaceKind, place_of

ADDRESS = Address("images", target_name="x")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param(EnvironmentTarget(None, None), Place(PlaceKind.LOCAL), id="no environments"),
        pytest.param(
            EnvironmentTarget("amd64-cu130", LocalEnvironmentTarget({}, ADDRESS)),
            Place(PlaceKind.LOCAL, "amd64-cu130"),
            id="local",
        ),
        pytest.param(
            EnvironmentTarget("amd64-cu130", DockerEnvironmentTarget({"image": "an:1"}, ADDRESS)),
            Place(PlaceKind.DOCKER, "amd64-cu130", "an:1"),
            id="docker",
        ),
        pytest.param(
            EnvironmentTarget("amd64-cu130", RemoteEnvironmentTarget({}, ADDRESS)),
            Place(PlaceKind.REMOTE, "amd64-cu130"),
            id="remote",
        ),
    ],
)
def test_the_place_of_an_environment(environment: EnvironmentTarget, expected: Place) -> None:
    found = run_rule_with_mocks(place_of, rule_args=[environment])
    assert found == expected
    assert found.is_local is (expected.kind is PlaceKind.LOCAL)
