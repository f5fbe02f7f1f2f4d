"""What is said where a container cannot be had; the daemon itself is asked in tests/integration."""

from __future__ import annotations

import pytest
from pants.core.util_rules.environments import ChosenLocalEnvironmentName
from pants.engine.environment import EnvironmentName
from pants.engine.internals.docker import DockerResolveImageRequest, DockerResolveImageResult
from pants.engine.platform import Platform
from pants.testutil.rule_runner import MockGet, run_rule_with_mocks
from pants.util.frozendict import FrozenDict

from cuda_wheels.rules.container import (
    Container,
    DockerContainer,
    DockerImage,
    DockerState,
    DockerStateRequest,
    DockerVolume,
    OwnImage,
    container_of,
    daemon_problem,
    engine_problem,
    missing_image,
    name_problems,
    parse_docker_state,
    state_problems,
)
from cuda_wheels.rules.place import Place, PlaceKind

IMAGE = "registry.example/amd64-cu130:one"
ID = "sha256:" + "1" * 64
IN_IMAGE = Place(PlaceKind.DOCKER, "amd64-cu130", IMAGE)
STATE = DockerState("/run/docker.sock", images=FrozenDict({IMAGE: DockerImage(ID, "amd64")}))


def _container(place: Place, state: DockerState | None, resolved: str | None = None) -> Container:
    """The rule's answer; without a `state` or `resolved` nobody may ask for one."""

    def asked(_: DockerStateRequest, __: EnvironmentName) -> DockerState:
        assert state is not None
        return state

    def resolve(_: DockerResolveImageRequest) -> DockerResolveImageResult:
        assert resolved is not None
        return DockerResolveImageResult(resolved)

    return run_rule_with_mocks(
        container_of,
        rule_args=[place, Platform.linux_x86_64, ChosenLocalEnvironmentName(EnvironmentName(None))],
        mock_gets=[
            MockGet(DockerState, (DockerStateRequest, EnvironmentName), asked),
            MockGet(DockerResolveImageResult, (DockerResolveImageRequest,), resolve),
        ],
    )


def test_an_image_that_is_there() -> None:
    assert _container(IN_IMAGE, STATE, ID) == Container(ID)


@pytest.mark.parametrize("kind", [PlaceKind.LOCAL, PlaceKind.REMOTE])
def test_nobody_is_asked_where_nothing_runs_in_a_container(kind: PlaceKind) -> None:
    assert _container(Place(kind), None) == Container()


def test_an_image_that_pants_knows_another_one_by() -> None:
    found = _container(IN_IMAGE, STATE, "sha256:other")
    assert "still knows sha256:other" in found.problems[0]


def test_a_missing_image_is_not_resolved() -> None:
    found = _container(IN_IMAGE, DockerState("/run/docker.sock"))
    assert found.problems == (missing_image(IMAGE),)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param(
            "cuda-wheels/amd64-cu130:not-pinned",
            "No toolchain image is pinned",
            id="pin",
        ),
        pytest.param("team/amd64-cu130:latest", "may be another image tomorrow", id="latest"),
    ],
)
def test_names_that_are_refused(image: str, expected: str) -> None:
    (problem,) = name_problems(image, "amd64-cu130")
    assert expected in problem
    assert "images/pins.py" in problem


def test_a_daemon_that_does_not_answer() -> None:
    state = DockerState("/run/docker.sock", "stopped", "something else")
    assert "nobody listens at its socket, /run/docker.sock" in daemon_problem(state)
    assert state_problems(state, IMAGE, "amd64") == (daemon_problem(state),)


@pytest.mark.parametrize(
    ("image", "help"),
    [
        ("registry.example/team/amd64-cu130@sha256:" + "1" * 64, "Pull it: `docker pull registry"),
        ("cuda-wheels/amd64-cu130:0123", "Build it with `./pants package images:`"),
        (ID, "An image's id cannot be pulled"),
    ],
)
def test_what_brings_a_missing_image(image: str, help: str) -> None:
    assert help in missing_image(image)


def test_all_that_is_wrong_with_an_image() -> None:
    state = DockerState("", images=FrozenDict({IMAGE: DockerImage(ID, "arm64", "builder")}))
    problems = state_problems(state, IMAGE, "amd64")
    assert len(problems) == 2
    assert "is for arm64" in problems[0]
    assert "as the user 'builder'" in problems[1]


@pytest.mark.parametrize("user", ["", "0", "root", "root:root"])
def test_images_that_run_as_root(user: str) -> None:
    state = DockerState("", images=FrozenDict({IMAGE: DockerImage(ID, "amd64", user)}))
    assert state_problems(state, IMAGE, "amd64") == ()


def test_the_facts_of_the_daemon() -> None:
    state = parse_docker_state(
        {
            "fault": None,
            "detail": "",
            "socket": "/run/docker.sock",
            "version": "20.10",
            "images": {
                IMAGE: {"id": ID, "arch": "amd64", "user": ""},
                "missing:1": None,
            },
            "containers": [{"id": "12", "image": ID, "state": "exited"}],
            "volumes": [{"name": "pants-named-caches-1", "image": ID, "bytes": 7}],
            "own_images": [{"id": ID, "names": [IMAGE], "bytes": 9}],
            "pantsds": ["/src/checkout"],
        }
    )
    assert state == DockerState(
        "/run/docker.sock",
        version="20.10",
        images=STATE.images,
        containers=(DockerContainer("12", ID, "exited"),),
        volumes=(DockerVolume("pants-named-caches-1", ID, 7),),
        own_images=(OwnImage(ID, (IMAGE,), 9),),
        pantsds=("/src/checkout",),
    )


def test_the_facts_of_a_daemon_that_does_not_answer() -> None:
    facts = {"fault": "stopped", "detail": "refused", "socket": "/run/docker.sock"}
    assert parse_docker_state(facts) == DockerState("/run/docker.sock", "stopped", "refused")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            "Failed to execute: Process {}\n\nFailed to create Docker execution in container: "
            "HyperResponseError { err: hyper::Error(Connect, Os { code: 2 }) }",
            "The Docker daemon went away",
            id="stopped daemon",
        ),
        pytest.param(
            "Failed to create Docker execution in container: DockerResponseServerError { "
            'status_code: 409, message: "Container ca935fc8a117 is not running" }',
            "kill $(cat .pids/*/pantsd/pid)",
            id="stopped container",
        ),
        pytest.param(
            'Failed to create Docker container: message: "mkdir /x: no space left on device" }',
            "The disk of the Docker daemon is full",
            id="full disk",
        ),
        pytest.param("Failed to start Docker container", "Docker did not run the step", id="other"),
    ],
)
def test_what_the_engine_says_of_containers(error: str, expected: str) -> None:
    problem = engine_problem(error)
    assert problem is not None
    assert expected in problem
    # Pants' own words are not lost.
    assert problem.endswith(error.splitlines()[-1])


def test_an_error_of_the_engine_that_is_about_no_container() -> None:
    assert engine_problem("Invalid glob") is None
