"""Shells with the host's compilers and a build environment that holds pip alone."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import subprocess
import termios
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox.shell import exit_code, shell_command
from cuda_wheels.sandbox.testutil import (
    CHILD_ENV,
    build_command,
    build_environment,
    build_inputs,
    build_request,
    script,
    wheel_bytes,
)

# A PEP 517 backend that writes down the variables that it was given.
BACKEND = """
import json, os, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("environment.json", json.dumps(dict(os.environ)))
        wheel.writestr("pkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n")
        wheel.writestr("pkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("pkg-1.0.dist-info/RECORD", "")
    return name
"""

REACH = """
import urllib.request
try:
    urllib.request.urlopen("http://127.0.0.1:%s", timeout=5)
    print("reached")
except OSError:
    print("cut off")
"""


@pytest.fixture(scope="session")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("env") / "env"
    return build_environment(path, 'echo "the real nvcc $*"')


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bootstrap")
    script(path / "bin/ccache", 'exec "$@"')
    return path


class Place:
    """A directory with the inputs of a build, where programs are run on them."""

    def __init__(self, root: Path, bootstrap: Path, env: Path):
        self.root = root
        self.environments = (bootstrap, env)
        self.fixed = root / "fixed"
        build_inputs(root, BACKEND)

    def command(self, program: str, isolation: str = "best", **changes: Any) -> list[str]:
        env = {"TORCH_CUDA_ARCH_LIST": "9.0", "FORCE_CUDA": "1"}
        request = build_request(env=env, **changes)
        (self.root / "request.json").write_text(json.dumps(request))
        return build_command(program, *self.environments, isolation=isolation)

    def shell(
        self, *arguments: str, stdin: str = "", isolation: str = "best", **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("shell", isolation, shell_arguments=arguments, **changes),
            cwd=self.root,
            env={**CHILD_ENV, "SECRET": "x"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def left_behind(self) -> set[str]:
        """What is there that was not, but for caches and for what the lock needs."""
        inputs = {"source", "lock.txt", "request.json", "cache", "fixed"}
        left = {entry.name for entry in self.root.iterdir()} - inputs
        return left | {entry.name for entry in self.fixed.iterdir()} - {"lock"}


@pytest.fixture
def place(tmp_path: Path, bootstrap: Path, env: Path) -> Place:
    return Place(tmp_path, bootstrap, env)


@contextlib.contextmanager
def http_server() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("isolation", ["best", "lock"])
def test_a_command_runs_where_the_build_would(place: Place, isolation: str) -> None:
    with http_server() as port:
        command = f"pwd; python -c '{REACH % port}'; nvcc --version; ls; touch made; exit 7"
        done = place.shell("-c", command, isolation=isolation)
    assert done.stdout.splitlines() == [
        f"{place.fixed}/work/source",
        "cut off",
        "the real nvcc --version",
        "backend.py",
        "pyproject.toml",
    ]
    assert done.returncode == 7
    assert "pkg 1.0 for amd64-cu130-torch2.11.0-cp312" in done.stderr
    assert f"{place.root}/cache/logs/pkg.log (there was no build yet)" in done.stderr
    assert "lost" in done.stderr
    assert ("every other build waits" in done.stderr) == (
        isolation == "lock" or "proxies" in done.stderr
    )
    assert place.left_behind() == set()
    assert not (place.root / "source/made").exists()


def test_the_variables_are_those_of_the_build(place: Place) -> None:
    built = subprocess.run(
        place.command("compile"), cwd=place.root, env=CHILD_ENV, capture_output=True, check=False
    )
    assert built.returncode == 0, built.stderr.decode()
    with zipfile.ZipFile(place.root / "dist/pkg-1.0-py3-none-any.whl") as wheel:
        of_build = json.loads(wheel.read("environment.json"))
    done = place.shell("-c", "env -0")
    of_shell = dict(line.split("=", 1) for line in done.stdout.rstrip("\0").split("\0"))
    # bash's own, pip's own, and a file in a directory that is made anew each time.
    for name in ("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLORTERM", "CCACHE_STATSLOG"):
        of_shell.pop(name, None)
        of_build.pop(name, None)
    pips = ("PIP_BUILD_TRACKER", "PEP517_", "_PYPROJECT_HOOKS", "PIP_USER", "PIP_TARGET")
    of_build = {name: of_build[name] for name in of_build if not name.startswith(pips)}
    assert of_shell == of_build
    assert of_shell["FORCE_CUDA"] == "1" and of_shell["CUDA_VISIBLE_DEVICES"] == ""
    assert of_shell["CUDA_HOME"] == f"{place.fixed}/work/tools/cuda"
    assert "cache/logs/pkg.log\n" in done.stderr


def test_build_wheel_is_what_the_compile_step_runs(place: Place) -> None:
    done = place.shell("-c", 'cd / && build-wheel >&2 && cat "$(command -v build-wheel)"')
    assert done.returncode == 0, done.stderr
    assert "Successfully built pkg" in done.stderr
    announced = next(line for line in done.stderr.splitlines() if "build-wheel, which" in line)
    command = announced.split("which runs: ")[1]
    assert command.startswith(
        f"cd {place.fixed}/work/source && {place.fixed}/env/bin/python -m pip"
    )
    assert f'{command} "$@"' in done.stdout


def test_commands_may_come_from_stdin(place: Place) -> None:
    done = place.shell(stdin="pwd\nfalse\n")
    assert (done.returncode, done.stdout) == (1, f"{place.fixed}/work/source\n")


def test_wheels_of_build_requirements_are_there(place: Place) -> None:
    wheels = ["cumm-2.0-py3-none-any.whl"]
    content = wheel_bytes("cumm", "2.0", files={"cumm.py": "here = __file__"})
    (place.root / wheels[0]).write_bytes(content)
    done = place.shell("-c", "python -c 'import cumm; print(cumm.here)'", wheels=wheels)
    assert done.stdout == f"{place.fixed}/work/overlay/cumm.py\n"


def test_a_preparation_that_fails_opens_nothing(place: Place) -> None:
    (place.root / "cumm-2.0-py3-none-any.whl").write_text("no archive")
    done = place.shell("-c", "echo opened", wheels=["cumm-2.0-py3-none-any.whl"])
    assert done.returncode != 0 and done.stdout == ""
    assert "no shell was opened" in done.stderr and "cumm-2.0-py3-none-any.whl" in done.stderr
    assert place.left_behind() == {"cumm-2.0-py3-none-any.whl"}


def test_a_shell_that_is_ended_from_outside_leaves_nothing(place: Place) -> None:
    process = subprocess.Popen(
        place.command("shell", shell_arguments=["-c", "echo started; sleep 600"]),
        cwd=place.root,
        env=CHILD_ENV,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    # The stream ends when the shell and all that it started have ended.
    assert process.communicate()[0] == ""
    assert process.returncode == 130
    assert place.left_behind() == set()


def test_a_person_at_a_terminal(place: Place) -> None:
    screen, keyboard = os.openpty()
    before = termios.tcgetattr(screen)
    # As Pants starts it: in a session that this terminal does not control.
    process = subprocess.Popen(
        place.command("shell"),
        cwd=place.root,
        env={**CHILD_ENV, "TERM": "xterm"},
        stdin=keyboard,
        stdout=keyboard,
        stderr=keyboard,
        start_new_session=True,
    )
    # Then reading fails when the program has ended.
    os.close(keyboard)

    def read_until(text: str) -> str:
        seen = b""
        while text.encode() not in seen:
            try:
                seen += os.read(screen, 4096)
            except OSError:
                pytest.fail(f"The shell ended before it wrote {text!r}: {seen!r}")
        return seen.decode(errors="replace")

    def enter(line: str) -> None:
        os.write(screen, line.encode() + b"\r")

    assert "build-wheel" in read_until("(pkg) ")
    enter("echo $TERM $(tty) job control: ${-//[!m]/}.")
    assert re.search(r"xterm /dev/pts/\d+ job control: m\.", read_until("(pkg) "))
    # Told by the program, not by the shell before it: then Ctrl-C is for the program.
    enter("sh -c 'echo sleep\"\"ing; exec sleep 600'")
    read_until("sleeping")
    os.write(screen, b"\x03")
    read_until("(pkg) ")
    enter("exit 5")
    with contextlib.suppress(OSError):
        while os.read(screen, 4096):
            pass
    assert process.wait() == 5
    assert termios.tcgetattr(screen) == before
    assert place.left_behind() == set()
    os.close(screen)


def test_bash_without_the_users_settings_or_sh(tmp_path: Path) -> None:
    script(tmp_path / "bash", "true")
    settings = tmp_path / "settings"
    assert shell_command(str(tmp_path), settings) == [
        str(tmp_path / "bash"),
        "--noprofile",
        "--rcfile",
        str(settings),
    ]
    assert shell_command(str(tmp_path / "nowhere"), settings) == ["/bin/sh"]


@pytest.mark.parametrize(("returncode", "code"), [(0, 0), (3, 3), (-2, 130), (-15, 143)])
def test_exit_codes(returncode: int, code: int) -> None:
    assert exit_code(returncode) == code
