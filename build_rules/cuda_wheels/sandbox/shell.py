"""Open a shell where a wheel would be compiled: the compile program with another last step.

    python3.12 -m cuda_wheels.sandbox.shell request.json

The request is that of the compile program, and may hold `shell_arguments`, the arguments of the
shell. Its exit code is the shell's. What the shell changes is removed when it ends.

`build.py` and `compile.py` are in the cache key of every wheel. So nothing in them knows of this
program: it prepares a build by their code, and gives it another last step.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_wheels.sandbox import build, failure, machine, namespace, terminal
from cuda_wheels.sandbox import compile as compile_program
from cuda_wheels.sandbox.namespace import FIXED, Isolation
from cuda_wheels.sandbox.program import run
from cuda_wheels.sandbox.request import Request

BUILD_WHEEL = "build-wheel"
"""The program that runs what the compile step would: the last step that the shell stands in for."""

INTERRUPTED = 130

# What a program needs to know to draw on the terminal. No build has them.
_TERMINAL_VARIABLES = ("TERM", "COLORTERM")


class Messages(compile_program.Log):
    """The lines that are written while a build is prepared, on stderr instead of in its log."""

    def __init__(self, path: Path):
        self.path = path
        self.lines: list[str] = []
        self._files = [sys.stderr]


@dataclass(frozen=True)
class Shell:
    """What runs shut in: a build's own preparation, and then a shell.

    `log` is where a build of the same inputs writes its log, `plan` how many compilers it runs.
    `terminal` is the descriptor of the shell's own terminal, if it has one.
    """

    build: build.Build
    arguments: tuple[str, ...]
    log: Path
    plan: failure.Plan
    terminal: int | None = None

    def __call__(self, isolation: Isolation) -> int:
        if self.terminal is not None:
            os.login_tty(self.terminal)
        stdout = os.dup(1)
        # What the preparation prints is not what the caller of a command reads.
        os.dup2(2, 1)
        opened = False

        def open_shell(argv: list[str], env: dict[str, str], directory: Path) -> int:
            nonlocal opened
            opened = True
            os.dup2(stdout, 1)
            return self._open(argv, env, directory, isolation)

        code = dataclasses.replace(self.build, last_step=open_shell)(isolation)
        if not opened:
            print("The preparation failed: no shell was opened.", file=sys.stderr)
        return code

    def _open(
        self, wheel: list[str], env: dict[str, str], directory: Path, isolation: Isolation
    ) -> int:
        tools = self.build.work / "tools"
        script = tools / "bin" / BUILD_WHEEL
        command = f"cd {shlex.quote(str(directory))} && {shlex.join(wheel)}"
        script.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        print(self.introduction(command, directory, isolation), file=sys.stderr, flush=True)
        settings = tools / "bashrc"
        name = self.build.request.distribution
        settings.write_text(f"PS1='({name}) \\w\\$ '\n", encoding="utf-8")
        argv = [*shell_command(env["PATH"], settings), *self.arguments]
        ours = {name: os.environ[name] for name in _TERMINAL_VARIABLES if name in os.environ}
        done = subprocess.run(argv, env={**ours, **env}, cwd=directory, check=False)
        return exit_code(done.returncode)

    def introduction(self, command: str, directory: Path, isolation: Isolation) -> str:
        """What a person must know who looks around here for the first time."""
        request = self.build.request
        network = "proxies that lead nowhere" if isolation.network == "proxies" else "cut"
        lines = [
            f"A shell in place of the compile step of {request.distribution} {request.version} "
            f"for {request.variant}",
            f"  here       {directory}, the patched source",
            f"  build      {BUILD_WHEEL}, which runs: {command}",
            f"  the wheel  goes to {self.build.staging}",
            f"  log        {self.log}" + ("" if self.log.exists() else " (there was no build yet)"),
            f"  changes    diff -ru {request.source} {directory}",
            f"  machine    {self.plan}; network: {network}; GPUs: hidden",
            "Everything that is changed here is lost when the shell ends: copy what you want to "
            "keep to a directory of yours.",
        ]
        if isolation.build_path == "lock":
            lines.append(
                "Namespaces are refused on this machine: every other build waits until this shell "
                "ends."
            )
        return "\n".join(lines)


def shell_command(path: str, settings: Path) -> list[str]:
    """bash with nothing of the user's settings, or sh where there is none."""
    bash = shutil.which("bash", path=path)
    return [bash, "--noprofile", "--rcfile", str(settings)] if bash else ["/bin/sh"]


def exit_code(returncode: int) -> int:
    """The exit code that shells give a program which ended like this."""
    return returncode if returncode >= 0 else 128 - returncode


def main(data: dict[str, Any]) -> None:
    """Open the shell; exits with its code."""
    request = Request.parse(data)
    try:
        with compile_program.interruptible():
            code = _prepare_and_open(request, tuple(data.get("shell_arguments", ())), FIXED)
    except compile_program.Interrupted:
        code = INTERRUPTED
    sys.exit(code)


def _prepare_and_open(request: Request, arguments: tuple[str, ...], fixed: Path) -> int:
    messages = Messages(request.cache / "logs" / request.log)
    cores = compile_program.concurrency(sys.argv)
    plan = compile_program.plan_jobs(cores, request.memory_per_job_gb, machine.read_memory())
    messages.write(f"Build environment from {request.build_lock.name}; a new one takes a while.")
    with compile_program.prepared(request, plan.jobs, fixed, messages) as (inside, layout):
        return _run(Shell(inside, arguments, messages.path, plan), layout)


def _run(shell: Shell, layout: namespace.Layout) -> int:
    """Run the shell on a terminal of its own, or on redirected streams as they are."""
    master = slave = -1
    if terminal.has_terminal():
        master, slave = os.openpty()
        shell = dataclasses.replace(shell, terminal=slave)
    running = namespace.start(shell, layout)
    try:
        if shell.terminal is not None:
            os.close(slave)
            terminal.relay(master)
        return exit_code(running.wait().returncode)
    finally:
        running.kill()


if __name__ == "__main__":
    run(main)
