"""Wheels that the workers of a cluster build, against a real server and two workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration import cluster
from integration.checkout import Checkout, Run
from integration.cluster import AMD64, ARM64, Cluster
from integration.recipes import address, comment_patch, recipe

LACKS = cluster.missing()
pytestmark = pytest.mark.skipif(LACKS is not None, reason=str(LACKS))

ON_ARM64 = address("vecadd").replace("amd64", "arm64")
STAGES = ["compile", "repair", "inspect_wheel"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster")
    with Cluster(root, execution=True) as server:
        server.add_worker("amd64", Arch="amd64", toolchain=AMD64)
        server.add_worker("arm64", Arch="arm64", toolchain=ARM64)
        yield server


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, server: Cluster) -> Iterator[Checkout]:
    with cluster.checkout(tmp_path_factory.mktemp("one"), server) as checkout:
        yield checkout


def _package(checkout: Checkout, *targets: str, **env: str) -> Run:
    return checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", *targets, env=env)


def test_a_wheel_is_built_on_the_worker_of_its_row(server: Cluster, checkout: Checkout) -> None:
    run = _package(checkout, address("vecadd"))
    assert run.returncode == 0, "\n" + run.output
    assert [wheel.name.split("-")[0] for wheel in checkout.wheels()] == ["vecadd"]
    assert run.counters["local_execution_requests"] == 0
    amd64, arm64 = server.workers["amd64"], server.workers["arm64"]
    ran = [work.program for work in amd64.work if work.program]
    assert ran == ["probe", *STAGES]
    assert arm64.work == []
    for work in amd64.work:
        assert work.exit == 0
        assert "{chroot}" not in " ".join(work.arguments)
        assert str(checkout.root.parent) not in " ".join(work.arguments)
    # Of torch and CUDA, which are gigabytes on the worker, nothing is in the store.
    (wheel,) = checkout.wheels()
    largest = max(path.stat().st_size for path in server.blobs().values())
    assert largest <= wheel.stat().st_size


def test_another_machine_gets_what_the_cluster_has(
    tmp_path: Path, server: Cluster, checkout: Checkout
) -> None:
    (wheel,) = checkout.wheels()
    content = wheel.read_bytes()
    wheel.unlink()
    before = {work.action for work in server.work()}
    run = _package(checkout, address("vecadd"), PANTS_LOCAL_STORE_DIR=str(tmp_path / "store"))
    assert run.returncode == 0, "\n" + run.output
    assert run.counters["remote_cache_requests_cached"] == len(STAGES)
    # The look at the toolchain is taken in every session anew. What the cluster did already, Pants may have
    # queued again before the cache answered.
    new = [work.program for work in server.work() if work.action not in before and work.program]
    assert new == ["probe"]
    assert wheel.read_bytes() == content


def test_a_wheel_is_compiled_against_that_of_another_worker(
    server: Cluster, checkout: Checkout
) -> None:
    server.workers["amd64"].service.stop()
    another = server.add_worker("another", Arch="amd64", toolchain=AMD64)
    fields = f'output_path="gamma", build_requires={["tests/fixtures/vecadd"]}'
    directory = checkout.add_fixture("vecadd", recipe("vecadd", more=fields), "gamma")
    # Another tree than that of vecadd, which the cluster has a wheel of.
    (directory / "patches").mkdir()
    (directory / "patches/0001-comment.patch").write_text(comment_patch("gamma"))
    run = _package(checkout, address("gamma"))
    assert run.returncode == 0, "\n" + run.output
    gamma = [work for work in another.work if work.program][-3:]
    assert [work.program for work in gamma] == STAGES
    (vecadd,) = {work.action for work in server.workers["amd64"].work if work.program == "compile"}
    assert {work.action for work in server.work("compile")} == {vecadd, gamma[0].action}


def test_a_row_of_another_architecture_goes_to_its_worker_alone(
    server: Cluster, checkout: Checkout
) -> None:
    before = len(server.workers["amd64"].work)
    wheels = checkout.wheels()
    run = _package(checkout, ON_ARM64)
    assert len(server.workers["amd64"].work) == before
    ran = [work.program for work in server.workers["arm64"].work if work.program]
    # It is a machine of this architecture after all, and that is noticed before anything is compiled.
    assert ran == ["probe"]
    assert run.returncode == 1
    assert "the machine that its environment leads to is" in run.output
    assert checkout.wheels() == wheels
