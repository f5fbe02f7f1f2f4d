"""What the doctor says of states; a real daemon is asked in tests/integration."""

from __future__ import annotations

from pants.util.frozendict import FrozenDict

from cuda_wheels.goals.doctor import (
    docker_lines,
    image_problems,
    is_unpinned,
    machine_lines,
    machine_problems,
)
from cuda_wheels.rules.container import (
    DockerContainer,
    DockerImage,
    DockerState,
    DockerVolume,
    OwnImage,
)
from cuda_wheels.rules.toolchain import Compiler, Host, Surroundings

ID = "sha256:" + "1" * 64
IMAGE = "cuda-wheels/amd64-cu130:0123"
GCC = Compiler("/usr/bin/gcc", "12.2.0", "12")
GXX = Compiler("/usr/bin/g++", "12.2.0", "12")
HOST = Host("x86_64", "2.36", "3.12.1", True, True, GCC, GXX, "/usr/bin/git", None)
SURROUNDINGS = Surroundings(61.04, (), ())
STATE = DockerState("/run/docker.sock", version="20.10")


def test_a_machine_that_lacks_nothing() -> None:
    assert machine_problems(HOST, SURROUNDINGS) == ()
    assert machine_lines(HOST, SURROUNDINGS, ()) == [
        "This machine",
        "  x86_64, glibc 2.36, Python 3.12.1, gcc 12.2.0, g++ 12.2.0",
        "  61.0 GB free for the caches; GPUs: none",
    ]


def test_a_machine_that_lacks_everything() -> None:
    host = Host("x86_64", "2.36", "3.12.1", False, False, None, None, None, None)
    problems = machine_problems(host, Surroundings(1.0, (), (), no_cuda_home="/opt/none"))
    assert len(problems) == 6
    lines = machine_lines(host, SURROUNDINGS, problems)
    assert [line for line in lines if line.startswith("  lacks: ")] == lines[3:]


def test_images_that_are_missing() -> None:
    places = {"amd64-cu130": (IMAGE, "amd64"), "amd64-cu128": ("other:1", "amd64")}
    state = DockerState("", images=FrozenDict({IMAGE: DockerImage(ID, "amd64")}))
    (problem,) = image_problems(state, places, "amd64")
    assert "other:1 is not on this machine" in problem


def test_a_daemon_that_does_not_answer_is_one_problem() -> None:
    places = {name: (IMAGE, "amd64") for name in ("amd64-cu130", "amd64-cu128")}
    state = DockerState("/x", "stopped")
    problems = image_problems(state, places, "amd64")
    assert len(problems) == 1
    title, problem = docker_lines(state, problems)
    assert title == "Docker" and "is stopped" in problem


def test_no_image_for_this_architecture() -> None:
    (problem,) = image_problems(STATE, {}, "amd64")
    assert "No toolchain image for amd64 is pinned" in problem
    assert "`./pants cuda-pin-images --local images:amd64-cu130`" in problem
    assert docker_lines(STATE, (problem,))[1:] == [f"  lacks: {problem}"]
    stopped = DockerState("/x", "stopped")
    problems = image_problems(stopped, {}, "amd64")
    assert "is stopped" in problems[0] and problems[1:] == (problem,)
    assert docker_lines(stopped, problems)[2:] == [f"  lacks: {problem}"]


def test_what_builds_left() -> None:
    gone = "sha256:" + "2" * 64
    state = DockerState(
        "/run/docker.sock",
        version="20.10",
        containers=(DockerContainer("aaa", ID, "exited"),),
        volumes=(
            DockerVolume("pants-named-caches-1", ID, 5_100_000_000),
            DockerVolume("pants-named-caches-2", gone, -1),
        ),
        own_images=(OwnImage(ID, (IMAGE,), 861_000_000), OwnImage(gone[:-1] + "3", (), 1)),
    )
    assert docker_lines(state, ("an image",)) == [
        "Docker 20.10 at /run/docker.sock",
        "  lacks: an image",
        f"  container aaa  exited  of {IMAGE}",
        "    docker rm -f aaa",
        f"  volume pants-named-caches-1  5.10 GB  of {IMAGE}",
        "    docker volume rm pants-named-caches-1",
        f"  volume pants-named-caches-2  size unknown  of {gone}, which is gone or not ours",
        "    docker volume rm pants-named-caches-2",
        f"  image 111111111111  0.86 GB  {IMAGE}",
        f"    docker rmi {IMAGE}",
        "  image 222222222222  0.00 GB  no name",
        "    docker rmi 222222222222",
        "  0 Pants daemons on this machine: all containers above are left over",
    ]


def test_names_of_images_that_are_not_pinned() -> None:
    assert is_unpinned("cuda-wheels/amd64-cu130:not-pinned")
    assert not is_unpinned(IMAGE)
