"""A terminal of its own for a program, between it and the terminal of this process.

Pants starts what it runs in a session without a controlling terminal. A shell there has no job
control, and Ctrl-C would end Pants instead of what the shell runs.
"""

from __future__ import annotations

import os
import select
import termios
import tty

SIZE_CHECK_SECONDS = 0.5
"""How often the size is compared: SIGWINCH reaches only the terminal's own session."""

_CHUNK = 65536


def has_terminal() -> bool:
    """Whether stdin, stdout and stderr all are a terminal: else a redirection is to be kept."""
    return all(os.isatty(descriptor) for descriptor in (0, 1, 2))


def relay(master: int, *, stdin: int = 0, stdout: int = 1) -> None:
    """Pass bytes both ways until the last program on the other side of `master` has ended.

    Every key goes to the other side meanwhile, Ctrl-C too.
    """
    before = termios.tcgetattr(stdin)
    try:
        # Not TCSAFLUSH, the default: what was typed before is for the program.
        tty.setraw(stdin, termios.TCSADRAIN)
        _pass_on(master, stdin, stdout)
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _pass_on(master: int, stdin: int, stdout: int) -> None:
    # A shell that waits for its output to be read does not read: writing to it must not wait.
    os.set_blocking(master, False)
    sources = [stdin, master]
    waiting = b""
    while True:
        _copy_size(stdin, master)
        readable, writable, _ = select.select(
            [master] if waiting else sources,
            [master] if waiting else [],
            [],
            SIZE_CHECK_SECONDS,
        )
        if master in readable:
            try:
                output = os.read(master, _CHUNK)
            except OSError:
                # EIO: nobody has the other side open any more.
                return
            _write_all(stdout, output)
        if stdin in readable:
            waiting = os.read(stdin, _CHUNK)
            if not waiting:
                sources.remove(stdin)
        elif writable:
            waiting = waiting[os.write(master, waiting) :]


def _copy_size(source: int, target: int) -> None:
    size = termios.tcgetwinsize(source)
    if size != termios.tcgetwinsize(target):
        termios.tcsetwinsize(target, size)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
