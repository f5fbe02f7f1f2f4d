"""What the compilers' stand-ins turn a call into, and how they wait for a slot."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_wheels.sandbox import compiler
from cuda_wheels.sandbox.compiler import Config, plan
from cuda_wheels.sandbox.testutil import CHILD_ENV, script

CONFIG = Config(
    gcc="/usr/bin/gcc-13",
    gxx="/usr/bin/g++-13",
    nvcc="/cuda/bin/nvcc",
    ccache="/ccache",
    slots="/slots",
    jobs=2,
    keep="/keep",
    link_objects=("/shim.o",),
)


@pytest.mark.parametrize(
    ("name", "arguments", "argv", "slot"),
    [
        pytest.param(
            "g++", ["-c", "a.cpp"], ["/ccache", "/usr/bin/g++-13", "-c", "a.cpp"], True, id="g++"
        ),
        pytest.param(
            "cc", ["-c", "a.c"], ["/ccache", "/usr/bin/gcc-13", "-c", "a.c"], True, id="cc"
        ),
        pytest.param(
            "c++",
            ["-shared", "a.o", "-o", "x.so"],
            ["/usr/bin/g++-13", "-shared", "a.o", "-o", "x.so", "/shim.o"],
            False,
            id="a-shared-object-gets-the-shims",
        ),
        pytest.param(
            "g++", ["a.o", "-o", "x"], ["/usr/bin/g++-13", "a.o", "-o", "x"], False, id="program"
        ),
        pytest.param("g++", ["-v"], ["/usr/bin/g++-13", "-v"], False, id="torch-asks-the-version"),
        pytest.param("nvcc", ["--version"], ["/cuda/bin/nvcc", "--version"], False, id="version"),
    ],
)
def test_calls(name: str, arguments: list[str], argv: list[str], slot: bool) -> None:
    call = plan(CONFIG, name, arguments, "/build")
    assert (call.argv, call.slot, call.keep) == (argv, slot, None)


def test_nvcc_compiles_with_the_declared_host_compiler_and_fixed_names() -> None:
    arguments = ["-c", "a.cu", "-o", "out/a.o", "-ccbin", "gcc", "--compiler-bindir=cc", "-O3"]
    call = plan(CONFIG, "nvcc", arguments, "/build")
    assert call.keep is not None
    assert call.keep.startswith("/keep/")
    assert call.argv == [
        *("/ccache", "/cuda/bin/nvcc", "-ccbin", "/usr/bin/g++-13"),
        *("-keep", "-keep-dir", call.keep, "-c", "a.cu", "-o", "out/a.o", "-O3"),
    ]


def test_keep_folders_belong_to_one_output() -> None:
    def keep(output: str, directory: str = "/build") -> str | None:
        return plan(CONFIG, "nvcc", ["-c", "a.cu", "-o", output], directory).keep

    assert keep("x/a.o") == keep("x/a.o")
    assert keep("x/a.o") == keep("/build/x/a.o", "/elsewhere")
    assert keep("x/a.o") != keep("y/a.o")
    assert keep("a.o", "/build/x") != keep("a.o", "/build/y")


def test_nvcc_links_device_code_without_ccache() -> None:
    call = plan(CONFIG, "nvcc", ["-dlink", "a.o", "-o", "d.o"], "/build")
    assert call.argv[0] == "/cuda/bin/nvcc"
    assert call.keep is not None


def test_a_build_without_cuda_says_so() -> None:
    with pytest.raises(SystemExit, match="no CUDA toolkit"):
        plan(dataclasses.replace(CONFIG, nvcc=None), "nvcc", ["-c", "a.cu"], "/build")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        gcc=script(tmp_path / "gcc", "exit 3"),
        gxx=script(tmp_path / "g++", 'kill -9 "$$"'),
        nvcc=script(tmp_path / "nvcc", 'ls -d "$5"; touch "$5/a.cubin"; echo "$@"'),
        ccache=None,
        slots=str(tmp_path / "slots"),
        jobs=1,
        keep=str(tmp_path / "keep"),
    )


def run(config: Config, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = Path(config.slots).parent / "config.json"
    path.write_text(json.dumps(dataclasses.asdict(config)))
    command = [sys.executable, "-I", "-S", compiler.__file__, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_exit_codes_and_signals_come_through(config: Config) -> None:
    assert run(config, "gcc", "-c", "a.c").returncode == 3
    assert run(config, "gcc", "-v").returncode == 3
    assert run(config, "g++", "-c", "a.c").returncode == 137


def test_the_keep_folder_exists_while_nvcc_runs_and_is_removed(config: Config) -> None:
    done = run(config, "nvcc", "-c", "a.cu", "-o", "a.o")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(config.keep)
    assert os.listdir(config.keep) == []


def test_a_compile_waits_for_a_slot_and_other_calls_do_not(config: Config, tmp_path: Path) -> None:
    slot = compiler.take_slot(config.slots, 1)
    assert run(config, "gcc", "-v").returncode == 3
    path = tmp_path / "config.json"
    command = [sys.executable, "-I", "-S", compiler.__file__, str(path), "gcc", "-c", "a.c"]
    waiting = subprocess.Popen(command)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.5)
    os.close(slot)
    assert waiting.wait() == 3


def test_a_dead_compiler_frees_its_slot(config: Config, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from cuda_wheels.sandbox import compiler;"
            "slot = compiler.take_slot(sys.argv[1], 1); print(slot, flush=True); time.sleep(600)",
            config.slots,
        ],
        env=CHILD_ENV,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with open(Path(config.slots) / "0") as handle, pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holder.kill()
    holder.wait()
    os.close(compiler.take_slot(config.slots, 1))


def test_no_more_compilers_run_than_there_are_slots(config: Config, tmp_path: Path) -> None:
    count = tmp_path / "running"
    count.mkdir()
    body = f"touch {count}/$$; ls {count} | wc -l; sleep 0.1; rm {count}/$$"
    config = dataclasses.replace(config, gcc=script(tmp_path / "gcc", body), jobs=2)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dataclasses.asdict(config)))
    command = [sys.executable, "-I", "-S", compiler.__file__, str(path), "gcc", "-c", "a.c"]
    all_ = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    seen = [int(process.communicate()[0]) for process in all_]
    assert max(seen) <= 2
    assert len(seen) == 6
