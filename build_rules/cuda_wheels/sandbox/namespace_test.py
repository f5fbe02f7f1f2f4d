"""Both ways to give a task fixed paths and no network.

The tests use a fixed path of their own, so that they never meet a build that runs on this machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_wheels.sandbox import namespace
from cuda_wheels.sandbox.namespace import Isolation, Layout, Outcome
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import CHILD_ENV

NAMESPACE = namespace._ATTEMPTS[:2]
LOCK = namespace._ATTEMPTS[3:]


def namespaces_work() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--mount", "--net", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


BRANCHES = [
    pytest.param(
        NAMESPACE,
        id="namespace",
        marks=pytest.mark.skipif(not namespaces_work(), reason="no user namespaces here"),
    ),
    pytest.param(LOCK, id="lock"),
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "file").write_text("tool")
    return Layout(
        work=tmp_path / "sandbox/work", read_only={"env": tools}, fixed=tmp_path / "fixed"
    )


def run_task(
    task: Callable[[Isolation], int], layout: Layout, branch: tuple[namespace._Attempt, ...]
) -> tuple[Outcome, str]:
    read, write = os.pipe()
    running = namespace.start(task, layout, output=write, attempts=branch)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        text = stream.read()
    return running.wait(), text


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_task_sees_its_files_at_the_fixed_path(
    layout: Layout, branch: tuple[namespace._Attempt, ...]
) -> None:
    def task(isolation: Isolation) -> int:
        work = layout.fixed / "work"
        (work / "made").write_text("x")
        os.chdir(work)
        print(os.getcwd(), (layout.fixed / "env/file").read_text(), os.getuid(), isolation.network)
        return 3

    outcome, text = run_task(task, layout, branch)
    expected = "namespace" if branch is NAMESPACE else "filter"
    assert outcome.returncode == 3
    assert text.split() == [str(layout.fixed / "work"), "tool", str(os.getuid()), expected]
    assert outcome.isolation.build_path == ("namespace" if branch is NAMESPACE else "lock")
    # Nothing stays at the fixed path for the next build to find.
    assert {entry.name for entry in layout.fixed.iterdir()} <= {"lock"}


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_network_is_cut(layout: Layout, branch: tuple[namespace._Attempt, ...]) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()

    def task(isolation: Isolation) -> int:
        try:
            socket.create_connection(address, timeout=5)
            print("connected")
        except OSError as error:
            print(type(error).__name__, error.strerror)
        return 0

    with server:
        _, text = run_task(task, layout, branch)
    assert "connected" not in text
    assert text


@pytest.mark.skipif(not namespaces_work(), reason="no user namespaces here")
def test_tools_are_read_only(layout: Layout) -> None:
    def task(isolation: Isolation) -> int:
        try:
            (layout.fixed / "env/file").write_text("changed")
        except OSError as error:
            print(error.strerror)
        return 0

    assert "Read-only file system" in run_task(task, layout, NAMESPACE)[1]
    assert (layout.read_only["env"] / "file").read_text() == "tool"


def test_without_a_namespace_proxies_lead_nowhere() -> None:
    env = Isolation("proxies", "lock").environment()
    assert env["https_proxy"] == env["HTTPS_PROXY"] == namespace.DEAD_PROXY
    assert Isolation("namespace", "namespace").environment() == {}
    assert Isolation("filter", "lock").environment() == {}


def test_refused_namespaces_fall_back_to_the_lock(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(flags: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unshare", refuse)
    outcome, _ = run_task(lambda isolation: 0, layout, namespace._ATTEMPTS)
    assert outcome == Outcome(0, Isolation("filter", "lock"))


def test_a_refused_filter_leaves_the_proxies(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(namespace.network_filter, "install", refuse)
    outcome, _ = run_task(lambda isolation: 0, layout, LOCK)
    assert outcome == Outcome(0, Isolation("proxies", "lock"))


def test_refused_mounts_keep_the_network_cut(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not namespaces_work():
        pytest.skip("no user namespaces here")

    def refuse(layout: Layout) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(namespace, "_mount_layout", refuse)
    outcome, _ = run_task(lambda isolation: 0, layout, namespace._ATTEMPTS)
    assert outcome == Outcome(0, Isolation("namespace", "lock"))


def test_the_lock_lets_one_in_at_a_time(layout: Layout, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def task(isolation: Isolation) -> int:
        for word in ("in", "out"):
            with open(log, "a", encoding="utf-8") as handle:
                handle.write(word + "\n")
            time.sleep(0.2)
        return 0

    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from cuda_wheels.sandbox import namespace
        layout = namespace.Layout(Path(sys.argv[1]) / "w", {}, Path(sys.argv[2]))
        def task(isolation):
            with open(sys.argv[3], "a") as handle:
                handle.write("in\\n")
                handle.flush()
                __import__("time").sleep(0.2)
                handle.write("out\\n")
            return 0
        namespace.start(task, layout, attempts=namespace._ATTEMPTS[3:]).wait()
        """)
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(layout.fixed), str(log)], env=CHILD_ENV
    )
    run_task(task, layout, LOCK)
    assert other.wait() == 0
    assert log.read_text().split() == ["in", "out"] * 2


def test_what_a_killed_build_left_is_cleared(layout: Layout) -> None:
    (layout.fixed / "work").mkdir(parents=True)
    (layout.fixed / "work/old").touch()
    (layout.fixed / "env").symlink_to("/nowhere")

    def task(isolation: Isolation) -> int:
        print(os.listdir(layout.fixed / "work"), (layout.fixed / "env/file").read_text())
        return 0

    outcome, text = run_task(task, layout, LOCK)
    assert (outcome.returncode, text) == (0, "[] tool\n")


def test_a_fixed_path_of_somebody_else_is_refused(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.fixed.mkdir()
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(ProgramError, match="max_user_namespaces"):
        namespace.start(lambda isolation: 0, layout, attempts=LOCK)


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_killed_task_takes_its_children_with_it(
    layout: Layout, branch: tuple[namespace._Attempt, ...]
) -> None:
    read, write = os.pipe()

    def task(isolation: Isolation) -> int:
        # ninja starts each command in a process group of its own.
        subprocess.run(["setsid", "sh", "-c", "echo started; sleep 600"], check=False)
        return 0

    running = namespace.start(task, layout, output=write, attempts=branch)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        assert stream.readline() == "started\n"
        running.kill()
        # The end of the stream: no process holds the other side any more.
        assert stream.read() == ""
    assert running.wait().returncode == -signal.SIGKILL


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_child_that_stays_behind_is_killed(
    layout: Layout, branch: tuple[namespace._Attempt, ...]
) -> None:
    def task(isolation: Isolation) -> int:
        subprocess.Popen(["setsid", "sh", "-c", "setsid sleep 600 & sleep 600"])
        return 0

    outcome, text = run_task(task, layout, branch)
    assert (outcome.returncode, text) == (0, "")


def test_a_build_does_not_outlive_a_killed_parent(layout: Layout, tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import subprocess, sys
        from pathlib import Path
        from cuda_wheels.sandbox import namespace
        layout = namespace.Layout(Path(sys.argv[1]) / "w", {}, Path(sys.argv[1]) / "f")
        def task(isolation):
            subprocess.run(["setsid", "sh", "-c", "echo started; sleep 600"])
            return 0
        namespace.start(task, layout).wait()
        """)
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env=CHILD_ENV,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    parent.kill()
    # Ends only when the last process that holds the pipe is gone.
    assert parent.stdout.read() == ""
    parent.wait()


def test_an_exception_in_the_task_is_its_failure(layout: Layout) -> None:
    def task(isolation: Isolation) -> int:
        raise ProgramError("Install it.")

    outcome, text = run_task(task, layout, LOCK)
    assert (outcome.returncode, text) == (1, "Install it.\n")
