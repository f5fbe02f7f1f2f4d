"""Run a task without a network and with its files at paths that are the same on every machine.

Compilers write the paths that they see into their output. So a build sees its tree and its tools
under `FIXED`, wherever they really are: in a user, mount and network namespace they are mounted
there. Where namespaces are refused (by docker's seccomp profile, by AppArmor, by
`user.max_user_namespaces`), the tree is a real directory at that path, the tools are links, a file
lock lets one build at a time in, and a filter of system calls lets no process open a socket to a
network. Where that is refused too, proxies that lead nowhere stand in for the cut network.

A process of its own watches over the task. Whatever ends the parent, and however, it kills every
process that came from the task: those too that left their process group, as ninja's do.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.sandbox import network_filter
from cuda_wheels.sandbox.program import ProgramError

FIXED = Path("/tmp/cuda-wheels")

DEAD_PROXY = "http://127.0.0.1:9"

_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUNDS = 1000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


@dataclass(frozen=True)
class Isolation:
    """How a task was shut in: `namespace`, `filter` or `proxies`, and `namespace` or `lock`."""

    network: str
    build_path: str

    def environment(self) -> dict[str, str]:
        """The variables that a task needs for it."""
        if self.network != "proxies":
            return {}
        names = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
        return {n: DEAD_PROXY for name in names for n in (name, name.upper())}


@dataclass(frozen=True)
class Layout:
    """What a task sees under the fixed path.

    `work` is the one directory that it writes to; `read_only` maps further names to directories.
    """

    work: Path
    read_only: Mapping[str, Path]
    fixed: Path = FIXED


@dataclass(frozen=True)
class Outcome:
    """How a task ended; a negative code is the signal that killed it, or its watcher."""

    returncode: int
    isolation: Isolation


@dataclass(frozen=True)
class _Attempt:
    user: bool
    mount: bool
    network: bool
    filter: bool = False

    def isolation(self) -> Isolation:
        without = "filter" if self.filter else "proxies"
        return Isolation(
            network="namespace" if self.network else without,
            build_path="namespace" if self.mount else "lock",
        )


# From the strictest to the one that always works. Root without the right to make user namespaces
# may still make the other two; AppArmor lets users make namespaces, but not mount in them.
_ATTEMPTS = (
    _Attempt(user=True, mount=True, network=True),
    _Attempt(user=False, mount=True, network=True),
    _Attempt(user=True, mount=False, network=True),
    _Attempt(user=False, mount=False, network=False, filter=True),
    _Attempt(user=False, mount=False, network=False),
)


class Running:
    """A task that was started; `wait` for its outcome, or `kill` it with all its children."""

    def __init__(self, pid: int, report: int, alive: int, isolation: Isolation, layout: Layout):
        self.isolation = isolation
        self._pid = pid
        self._report = report
        self._alive = alive
        self._layout = layout
        self._outcome: Outcome | None = None

    def wait(self) -> Outcome:
        """Wait for the end of the task."""
        if self._outcome is None:
            text = _read_line(self._report)
            _, status = os.waitpid(self._pid, 0)
            os.close(self._report)
            if self._alive >= 0:
                os.close(self._alive)
            code = json.loads(text) if text else os.waitstatus_to_exitcode(status)
            self._outcome = Outcome(code, self.isolation)
            if self.isolation.build_path == "lock":
                _clear_after_death(self._layout)
        return self._outcome

    def kill(self) -> None:
        """Kill the task and every process that it started."""
        if self._outcome is None:
            os.close(self._alive)
            self._alive = -1
            self.wait()


def start(
    task: Callable[[Isolation], int],
    layout: Layout,
    *,
    output: int | None = None,
    attempts: tuple[_Attempt, ...] = _ATTEMPTS,
) -> Running:
    """Start `task` in the strictest isolation that this machine allows.

    `output` is a file descriptor for the task's stdout and stderr.
    """
    with contextlib.suppress(OSError):
        layout.fixed.mkdir(mode=0o755)
    reasons = []
    for attempt in attempts:
        running, reason = _try(attempt, task, layout, output)
        if running is not None:
            return running
        reasons.append(reason)
    raise ProgramError(reasons[-1])


def _try(
    attempt: _Attempt, task: Callable[[Isolation], int], layout: Layout, output: int | None
) -> tuple[Running | None, str]:
    report_read, report_write = os.pipe()
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(report_read)
        os.close(alive_write)
        _lead(attempt, task, layout, output, report_write, alive_read)
    os.close(report_write)
    os.close(alive_read)
    reason = _read_line(report_read)
    if reason == "":
        return Running(pid, report_read, alive_write, attempt.isolation(), layout), ""
    os.close(report_read)
    os.close(alive_write)
    os.waitpid(pid, 0)
    return None, reason or "The process that was to shut the build in died at once."


def _lead(
    attempt: _Attempt,
    task: Callable[[Isolation], int],
    layout: Layout,
    output: int | None,
    report: int,
    alive: int,
) -> None:
    """The body of the process that watches over the task; never returns."""
    try:
        # A group of its own: who ends the parent's group must not end this before its work is done.
        os.setpgid(0, 0)
        _adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            lock = _enter(attempt, layout)
        except (OSError, ProgramError) as error:
            _write_line(report, str(error) or type(error).__name__)
            os._exit(1)
        _write_line(report, "")
        pid = os.fork()
        if pid == 0:
            os.close(report)
            _run_task(task, attempt.isolation(), output)
        # A thread of this process, not of the task: a fork copies no threads.
        threading.Thread(target=_die_with_parent, args=(alive,), daemon=True).start()
        _, status = os.waitpid(pid, 0)
        _kill_descendants()
        if lock is not None:
            _clear(layout)
        _write_line(report, json.dumps(os.waitstatus_to_exitcode(status)))
        os._exit(0)
    finally:
        os._exit(1)


def _run_task(task: Callable[[Isolation], int], isolation: Isolation, output: int | None) -> None:
    code = 1
    try:
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
            # The parent's objects may be anything; the task writes where its children do.
            sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
            sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
        code = task(isolation)
    except ProgramError as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with_parent(alive: int) -> None:
    """Runs in a thread: the pipe ends when the parent does, or when it closes its side."""
    os.read(alive, 1)
    # The task dies first; the main thread, which waits for it, does the rest.
    _kill_descendants()


def _adopt_orphans() -> None:
    """Have processes whose parents ended become children of this one, not of init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_descendants() -> None:
    for _ in range(_KILL_ROUNDS):
        alive = _descendants()
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _descendants() -> list[int]:
    """Every living process that came from this one."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
                # The name may hold spaces and brackets; what follows it does not.
                state, parent = stat.rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        born = children.get(queue.pop(), [])
        found += born
        queue += born
    return found


def _enter(attempt: _Attempt, layout: Layout) -> int | None:
    """Enter the namespaces of the attempt; the descriptor of the lock where there is no mount."""
    user, group = os.geteuid(), os.getegid()
    flags = 0
    flags |= os.CLONE_NEWUSER if attempt.user else 0
    flags |= os.CLONE_NEWNS if attempt.mount else 0
    flags |= os.CLONE_NEWNET if attempt.network else 0
    if flags:
        os.unshare(flags)
    if attempt.user:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    if attempt.mount:
        _mount_layout(layout)
        return None
    if attempt.filter:
        network_filter.install()
    return _link_layout(layout)


def _mount_layout(layout: Layout) -> None:
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", layout.fixed, "tmpfs", 0, "mode=0755,size=16m")
    layout.work.mkdir(parents=True, exist_ok=True)
    for name, source in {"work": layout.work, **layout.read_only}.items():
        target = layout.fixed / name
        target.mkdir()
        _mount(source, target, None, _MS_BIND | _MS_REC)
        if name != "work":
            # A mount keeps the flags of the file system below, which a user may not take off.
            kept = os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
            _mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _mount(
    source: object, target: object, kind: str | None, flags: int, data: str | None = None
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [None if a is None else os.fsencode(str(a)) for a in (source, target, kind, data)]
    done = libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def _link_layout(layout: Layout) -> int:
    _check_owner(layout.fixed)
    lock = os.open(layout.fixed / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _clear(layout)
    (layout.fixed / "work").mkdir()
    for name, source in layout.read_only.items():
        (layout.fixed / name).symlink_to(Path(source).absolute())
    return lock


def _check_owner(fixed: Path) -> None:
    fixed.mkdir(mode=0o755, exist_ok=True)
    status = fixed.lstat()
    if fixed.is_symlink() or not fixed.is_dir() or status.st_uid != os.geteuid():
        raise ProgramError(
            f"Builds need the directory {fixed}, since namespaces are refused here, but it belongs "
            f"to user {status.st_uid} or is no directory. Have it removed, or allow unprivileged "
            "user namespaces (sysctl user.max_user_namespaces; on Ubuntu also "
            "kernel.apparmor_restrict_unprivileged_userns=0)."
        )


def _clear(layout: Layout) -> None:
    """Remove what a build left, a killed one too. The directory stays: others may mount on it."""
    with contextlib.suppress(FileNotFoundError):
        for entry in layout.fixed.iterdir():
            if entry.is_symlink():
                entry.unlink(missing_ok=True)
            elif entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)


def _clear_after_death(layout: Layout) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(layout.fixed / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(layout)
        finally:
            os.close(lock)


def _write_line(descriptor: int, text: str) -> None:
    os.write(descriptor, text.replace("\n", " ").encode() + b"\n")


def _read_line(descriptor: int) -> str | None:
    """One line without its end; None where the other side closed before it wrote any."""
    data = b""
    while not data.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return data.decode() or None
        data += byte
    return data[:-1].decode()
