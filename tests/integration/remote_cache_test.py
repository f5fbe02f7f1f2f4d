"""What machines share through a remote cache, against a real server.

Each run has a local store of its own, as another machine would, so that only the server can answer.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration import cluster
from integration.checkout import Checkout, Run, own_caches
from integration.cluster import READERS, WRITERS, Cluster
from integration.recipes import address, comment_patch, recipe

LACKS = cluster.missing()
pytestmark = pytest.mark.skipif(LACKS is not None, reason=str(LACKS))

EVERY_SESSION = "Look at the toolchain"
PACKAGE = "tests/fixtures/vecadd"
STAGES = [f"{stage} {address('vecadd')}" for stage in ("Compile", "Repair", "Inspect")]
MAY_WRITE = {"PANTS_REMOTE_CACHE_WRITE": "true"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("server"), tls=True) as server:
        yield server


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The machine that fills the cache; its compiler cache is kept from run to run."""
    root = tmp_path_factory.mktemp("one")
    with Checkout(root / "checkout", own_caches(root)) as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        yield checkout


@pytest.fixture(scope="module")
def wheel(server: Cluster, checkout: Checkout) -> bytes:
    """vecadd's wheel, in the server's cache."""
    run = _package(checkout, cluster.client(server, WRITERS), MAY_WRITE)
    assert run.completed == [EVERY_SESSION, *STAGES]
    assert run.counters["remote_cache_write_successes"] == len(STAGES), run.output
    return _wheel(checkout)


def _package(checkout: Checkout, *environments: dict[str, str]) -> Run:
    env = {name: value for one in environments for name, value in one.items()}
    run = checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", address("vecadd"), env=env)
    assert run.returncode == 0, "\n" + run.output
    return run


def _wheel(checkout: Checkout) -> bytes:
    (path,) = checkout.wheels()
    content = path.read_bytes()
    path.unlink()
    return content


def _empty_store(tmp_path: Path) -> dict[str, str]:
    return {"PANTS_LOCAL_STORE_DIR": str(tmp_path / "store")}


def _answered(run: Run) -> bool:
    """Whether every stage of the wheel came from the server."""
    return (
        run.completed == [EVERY_SESSION]
        and run.counters["remote_cache_requests_cached"] == len(STAGES)
        and run.counters["local_cache_requests_cached"] == 0
    )


def test_a_second_machine_compiles_nothing(tmp_path: Path, server: Cluster, wheel: bytes) -> None:
    before = server.blobs()
    env = {**own_caches(tmp_path), **cluster.client(server, READERS)}
    with Checkout(tmp_path / "checkout", env) as second:
        second.add_fixture("vecadd", recipe("vecadd"))
        run = _package(second)
        assert _answered(run), run.output
        assert _wheel(second) == wheel
        facts = json.loads(next(second.dist.glob("*.facts.json")).read_text())
        # Those of the compile on the first machine.
        assert facts["compile"]["ccache"]["misses"] >= 3
        objects = Path(env["PANTS_NAMED_CACHES_DIR"]) / "cuda_wheels/ccache"
        assert not any(path.is_file() and path.stat().st_size > 4096 for path in objects.rglob("*"))
    assert server.blobs() == before


def test_nothing_larger_than_a_wheel_is_uploaded(server: Cluster, wheel: bytes) -> None:
    sizes = sorted(path.stat().st_size for path in server.blobs().values())
    assert sizes[-1] == len(wheel)
    # The raw wheel, the repaired one, and beside them logs, facts and the actions themselves.
    assert sum(sizes) < 3 * len(wheel)


def test_results_outlive_a_restart_of_the_server(
    tmp_path: Path, server: Cluster, checkout: Checkout, wheel: bytes
) -> None:
    server.stop_server()
    server.start_server()
    run = _package(checkout, cluster.client(server, READERS), _empty_store(tmp_path))
    assert _answered(run), run.output
    assert _wheel(checkout) == wheel


def test_a_reader_adds_nothing(
    tmp_path: Path, server: Cluster, checkout: Checkout, wheel: bytes
) -> None:
    before = server.blobs()
    patch = f"{PACKAGE}/patches/0001-comment.patch"
    written = checkout.write(patch, comment_patch(f"by a reader {uuid.uuid4()}"))
    run = _package(checkout, cluster.client(server, READERS), _empty_store(tmp_path), MAY_WRITE)
    written.unlink()
    assert STAGES[0] in run.completed
    assert _wheel(checkout) != wheel
    assert run.counters["remote_cache_write_errors"] > 0
    assert run.counters["remote_cache_write_successes"] == 0
    assert "Failed to write to remote cache" in run.output
    assert server.blobs() == before


def test_a_refused_token_is_told_and_costs_a_build(
    tmp_path: Path, server: Cluster, checkout: Checkout, wheel: bytes
) -> None:
    forged = cluster.client(server, WRITERS, secret="another")
    run = _package(checkout, forged, _empty_store(tmp_path))
    assert STAGES[0] in run.completed
    assert "Failed to read from remote cache" in run.output
    assert _wheel(checkout) == wheel


def test_a_corrupted_blob_never_becomes_a_wheel(
    tmp_path: Path, server: Cluster, checkout: Checkout, wheel: bytes
) -> None:
    sizes = {path.stat().st_size: path for path in server.blobs().values()}
    blob = sizes[len(wheel)]
    content = blob.read_bytes()
    assert content == wheel
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        env = [cluster.client(server, READERS), _empty_store(tmp_path)]
        run = _package(checkout, *env)
    finally:
        blob.write_bytes(content)
    assert "Remote CAS gave wrong digest" in run.output
    # Repaired here, from the raw wheel of the cache.
    assert run.completed == [EVERY_SESSION, STAGES[1]]
    assert _wheel(checkout) == wheel


def test_a_full_store_costs_a_build(tmp_path: Path, checkout: Checkout, wheel: bytes) -> None:
    with Cluster(tmp_path / "cluster", disk=str(len(wheel) // 2)) as full:
        for subject, more in ((WRITERS, MAY_WRITE), (READERS, {})):
            store = _empty_store(tmp_path / subject)
            run = _package(checkout, cluster.client(full, subject), store, more)
            assert STAGES[0] in run.completed
            assert _wheel(checkout) == wheel
            assert run.counters["remote_cache_requests_cached"] == 0
            if subject == WRITERS:
                assert run.counters["remote_cache_write_errors"] > 0
                assert (
                    "Failed to write to remote cache (1 occurrences so far): ResourceExhausted"
                    in (run.output)
                )


def test_a_server_that_is_away_costs_a_build(
    tmp_path: Path, server: Cluster, checkout: Checkout, wheel: bytes
) -> None:
    server.stop_server()
    try:
        run = _package(checkout, cluster.client(server, READERS), _empty_store(tmp_path))
    finally:
        server.start_server()
    assert STAGES[0] in run.completed
    assert "Failed to read from remote cache" in run.output
    assert _wheel(checkout) == wheel
