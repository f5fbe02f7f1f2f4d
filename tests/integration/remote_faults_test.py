"""What becomes of a build on a cluster when a part of the cluster fails: the right wheel, or an error."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration import cluster
from integration.checkout import Checkout, Run
from integration.cluster import AMD64, READERS, WRITERS, Cluster, wait_for
from integration.recipes import address, comment_patch

LACKS = cluster.missing()
pytestmark = pytest.mark.skipif(LACKS is not None, reason=str(LACKS))

# Of a row that the checkout pins no image for, so that no worker is of its toolchain.
UNPINNED = "tests/fixtures/vecadd:amd64-cpu"
DEADLINE = {"PANTS_REMOTE_EXECUTION_OVERALL_DEADLINE_SECS": "5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), execution=True) as server:
        server.add_worker("first", Arch="amd64", toolchain=AMD64)
        yield server


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, server: Cluster) -> Iterator[Checkout]:
    with cluster.checkout(tmp_path_factory.mktemp("one"), server) as checkout:
        yield checkout


def _package(checkout: Checkout, target: str = address("vecadd"), **env: str) -> Run:
    return checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", target, env=env)


def _wheel(checkout: Checkout) -> bytes:
    (path,) = checkout.wheels()
    content = path.read_bytes()
    path.unlink()
    return content


def _change(checkout: Checkout) -> None:
    """A tree that was never built."""
    patch = "tests/fixtures/vecadd/patches/0001-comment.patch"
    checkout.write(patch, comment_patch(str(uuid.uuid4())))


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def _is_compiling(server: Cluster) -> bool:
    return any(server.root.glob("work-*/action-*/.compile-*"))


def _package_while(
    checkout: Checkout, condition: Callable[[], bool], fault: Callable[[], None]
) -> Run:
    """A run of `./pants package`, with `fault` at the moment that `condition` holds."""
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(_package(checkout)))
    thread.start()
    try:
        wait_for(condition, "the worker compiles", 300)
        fault()
    finally:
        thread.join()
    return runs[0]


def _built_again(checkout: Checkout) -> bytes:
    """The wheel of the same tree, built from its start and without a fault."""
    run = _package(checkout, PANTS_PROCESS_EXECUTION_CACHE_NAMESPACE=str(uuid.uuid4()))
    assert run.returncode == 0, "\n" + run.output
    return _wheel(checkout)


def test_a_worker_that_dies_while_it_compiles_is_replaced(
    server: Cluster, checkout: Checkout
) -> None:
    _change(checkout)

    def fault() -> None:
        service = server.workers["first"].service
        assert service.process is not None
        below = _descendants(service.process.pid)
        service.stop(signal.SIGKILL)
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(server.root / "work-first", ignore_errors=True)
        server.add_worker("second", Arch="amd64", toolchain=AMD64)

    run = _package_while(checkout, lambda: _is_compiling(server), fault)
    assert run.returncode == 0, "\n" + run.output
    assert "compile" not in [work.program for work in server.workers["first"].work]
    assert [w.program for w in server.workers["second"].work if w.program == "compile"]
    assert _wheel(checkout) == _built_again(checkout)


def test_a_server_that_is_restarted_while_a_worker_compiles(
    server: Cluster, checkout: Checkout
) -> None:
    _change(checkout)

    def fault() -> None:
        server.stop_server()
        server.start_server()

    run = _package_while(checkout, lambda: _is_compiling(server), fault)
    if run.returncode != 0:
        # Pants asks for a few seconds only, and a busy machine's server needs longer to come back.
        assert "Too many failures from server" in run.output, run.output
        assert checkout.wheels() == []
        run = _package(checkout)
    assert run.returncode == 0, "\n" + run.output
    assert _wheel(checkout) == _built_again(checkout)


def test_no_worker_for_a_row_ends_with_a_message(checkout: Checkout) -> None:
    run = _package(checkout, UNPINNED, **DEADLINE)
    assert run.returncode == 1
    assert "remote execution timed out after 5s" in run.output
    assert checkout.wheels() == []


@pytest.mark.parametrize("subject", [WRITERS, READERS])
def test_who_may_not_have_actions_run_is_told(
    server: Cluster, checkout: Checkout, subject: str
) -> None:
    before = server.blobs()
    # The one is forged, the other allows reading alone.
    signed = {"secret": "another"} if subject == WRITERS else {}
    run = _package(checkout, **cluster.executing(server, subject, **signed))
    assert run.returncode == 1
    assert "PermissionDenied" in run.output or "Unauthenticated" in run.output, run.output
    assert server.blobs() == before
    assert checkout.wheels() == []


def test_a_server_that_is_away_is_an_error(server: Cluster, checkout: Checkout) -> None:
    server.stop_server()
    try:
        run = _package(checkout)
    finally:
        server.start_server()
    assert run.returncode == 1
    assert "Unavailable" in run.output, run.output
    assert checkout.wheels() == []


def _is_right_or_none(server: Cluster, checkout: Checkout, run: Run, content: bytes) -> None:
    """The wheel of `content`; or an error, of Pants or of the worker, which has read other bytes."""
    if run.returncode == 0:
        assert _wheel(checkout) == content
        return
    assert checkout.wheels() == []
    assert "Traceback" not in run.output
    if "Remote CAS gave wrong digest" not in run.output:
        assert "Too many failures from server" in run.output, run.output
        assert "of the store has the sha256" in server.work()[-1].error


@pytest.mark.parametrize("stage", ["compile", "repair"])
def test_a_corrupted_blob_never_becomes_a_wheel(
    tmp_path: Path, server: Cluster, checkout: Checkout, stage: str
) -> None:
    before = set(server.blobs())
    _change(checkout)
    run = _package(checkout)
    assert run.returncode == 0, "\n" + run.output
    content = _wheel(checkout)
    repaired = hashlib.sha256(content).hexdigest()
    new = {digest: path for digest, path in server.blobs().items() if digest not in before}
    # Of the two wheels the one is the repaired one; the other is the compiler's.
    wheels = {digest for digest, path in new.items() if path.read_bytes()[:2] == b"PK"}
    (compiled,) = wheels - {repaired}
    blob = new[repaired if stage == "repair" else compiled]
    right = blob.read_bytes()
    blob.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    # Another machine, which asks for what the cluster has, and one that has it done again.
    for name in ("cached", "again"):
        more = {"PANTS_LOCAL_STORE_DIR": str(tmp_path / name)}
        if name == "again":
            more["PANTS_REMOTE_CACHE_READ"] = "false"
        run = _package(checkout, **more)
        _is_right_or_none(server, checkout, run, content)
    blob.write_bytes(right)
    run = _package(checkout, PANTS_LOCAL_STORE_DIR=str(tmp_path / "mended"))
    assert run.returncode == 0, "\n" + run.output
    assert _wheel(checkout) == content


def test_a_full_store_is_an_error(tmp_path: Path, checkout: Checkout) -> None:
    with Cluster(tmp_path / "cluster", execution=True, disk="64k") as full:
        full.add_worker("only", Arch="amd64", toolchain=AMD64)
        run = _package(
            checkout,
            **cluster.executing(full),
            PANTS_LOCAL_STORE_DIR=str(tmp_path / "store"),
            PANTS_REMOTE_EXECUTION_OVERALL_DEADLINE_SECS="30",
        )
    assert run.returncode == 1, run.output
    # What it could not store BuildGrid looks for all the same, or it never hands out the result.
    errors = ("Disk Error: 28", "Too many failures from server", "remote execution timed out")
    assert any(error in run.output for error in errors), run.output
    assert checkout.wheels() == []
