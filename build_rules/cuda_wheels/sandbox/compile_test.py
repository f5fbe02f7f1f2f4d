"""Whole builds with the host's g++, a stand-in for nvcc, and a build backend of the tests."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox import build, environment, machine, namespace
from cuda_wheels.sandbox import compile as compile_program
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.request import Request
from cuda_wheels.sandbox.testutil import (
    CHILD_ENV,
    GXX,
    build_command,
    build_environment,
    build_inputs,
    build_request,
    script,
    wheel_bytes,
)

# A PEP 517 backend that needs nothing but Python: compiles, links and zips.
BACKEND = """
import os, subprocess, sys, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(directory, config_settings=None, metadata_directory=None):
    if os.path.exists("fail.py"):
        exec(open("fail.py").read())
    subprocess.run(["g++", "-c", "-fPIC", os.path.abspath("a.cpp"), "-o", "a.o"], check=True)
    subprocess.run(["g++", "-shared", "a.o", "-o", "a.so"], check=True)
    nvcc = os.path.join(os.environ["CUDA_HOME"], "bin/nvcc")
    subprocess.run([nvcc, "-c", "a.cu", "-o", "cu.o"], check=True)
    try:
        import urllib.request
        urllib.request.urlopen("http://127.0.0.1:%s" % os.environ["TEST_PORT"], timeout=5)
        reached = "yes"
    except OSError:
        reached = "no"
    names = ("CUDA_VISIBLE_DEVICES", "SOURCE_DATE_EPOCH", "PYTHONHASHSEED", "LC_ALL", "MAX_JOBS",
             "HOME", "TMPDIR", "SECRET", "TORCH_CUDA_ARCH_LIST", "CC")
    facts = {n: os.environ.get(n) for n in names}
    facts.update(cwd=os.getcwd(), reached=reached, mode=oct(os.stat("a.cpp").st_mode & 0o777))
    name = "pkg-1.0-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        def add(member, data):
            wheel.writestr(zipfile.ZipInfo(member), data)
        add("a.so", open("a.so", "rb").read())
        add("cu.o", open("cu.o", "rb").read())
        add("facts.json", __import__("json").dumps(facts))
        add("pkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n")
        add("pkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: false\\n"
            "Tag: cp312-cp312-linux_x86_64\\n")
        add("pkg-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.fixture(scope="session")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build environment: pip, and a CUDA toolkit that only names what it was told."""
    path = tmp_path_factory.mktemp("env") / "env"
    return build_environment(path, 'for last in "$@"; do :; done; echo "$PWD $*" > "$last"')


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for ccache, which counts every call as a miss."""
    path = tmp_path_factory.mktemp("bootstrap")
    script(path / "bin/ccache", 'echo cache_miss >> "$CCACHE_STATSLOG"; exec "$@"')
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, env: Path, bootstrap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["compile", "request.json", "--concurrency=2"])
    monkeypatch.setattr(environment, "ensure_bootstrap", lambda *_: bootstrap)
    monkeypatch.setattr(environment, "ensure_environment", lambda *_, **__: env)
    # Never the path of the builds that run on this machine.
    monkeypatch.setattr(compile_program, "FIXED", tmp_path / "fixed")
    write_inputs(tmp_path)


def write_inputs(root: Path) -> None:
    source = build_inputs(root, BACKEND)
    (source / "a.cpp").write_text('extern "C" const char *where() { return __FILE__; }\n')
    (source / "a.cu").write_text("kernel\n")
    (source / "a.cpp").chmod(0o600)


def request(**changes: Any) -> dict[str, Any]:
    ours = {
        "env": {"TORCH_CUDA_ARCH_LIST": "9.0", "TEST_PORT": "9"},
        "glibc_shims": ["__libc_single_threaded"],
        "source_date_epoch": 1700000000,
        "out": "dist",
    }
    return build_request(**{**ours, **changes})


def lock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    start = namespace.start

    def locked(*args: Any, **kwargs: Any) -> namespace.Running:
        return start(*args, **kwargs, attempts=namespace._ATTEMPTS[3:])

    monkeypatch.setattr(namespace, "start", locked)


@pytest.mark.parametrize("branch", ["best", "lock"])
def test_a_build(branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if branch == "lock":
        lock_only(monkeypatch)
    monkeypatch.setenv("SECRET", "x")
    compile_program.main(request())
    facts = json.loads((tmp_path / "compile.json").read_text())
    assert facts["jobs"] == 2
    assert facts["ccache"] == {"hits": 0, "misses": 2}
    if branch == "lock":
        assert (facts["network"], facts["build_path"]) == ("filter", "lock")
    (wheel,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        inside = json.loads(archive.read("facts.json"))
        shared = archive.read("a.so")
        nvcc = archive.read("cu.o").decode()
    fixed = str(tmp_path / "fixed")
    assert inside == {
        "CUDA_VISIBLE_DEVICES": "",
        "SOURCE_DATE_EPOCH": "1700000000",
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        "MAX_JOBS": "2",
        "HOME": f"{fixed}/work/home",
        "TMPDIR": f"{fixed}/work/tmp",
        "SECRET": None,
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "CC": "gcc",
        "cwd": f"{fixed}/work/source",
        "reached": "no",
        "mode": "0o644",
    }
    assert f"{fixed}/work/source/a.cpp".encode() in shared
    assert nvcc.startswith(f"{fixed}/work/source -ccbin {GXX} -keep -keep-dir {fixed}/work/keep/")
    log = (tmp_path / "cache/logs/pkg.log").read_text()
    assert log == (tmp_path / "build.log").read_text()
    assert "pkg: jobs=2 of 2 (0.001 GB/job, " in log
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_two_places_and_caches_give_equal_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = []
    for name, jobs in (("one", 1), ("another-longer-path", 2)):
        place = tmp_path / name
        place.mkdir()
        write_inputs(place)
        monkeypatch.chdir(place)
        monkeypatch.setattr(sys, "argv", ["compile", "request.json", f"--concurrency={jobs}"])
        # The number of jobs is an environment variable, which this backend writes down.
        backend = (place / "source/backend.py").read_text().replace('"MAX_JOBS",', "")
        (place / "source/backend.py").write_text(backend)
        compile_program.main(request())
        wheels.append(next((place / "dist").iterdir()).read_bytes())
    assert wheels[0] == wheels[1]


def test_wheels_of_build_requirements_are_laid_over_the_environment(
    tmp_path: Path, env: Path
) -> None:
    wheel = tmp_path / "cumm-2.0-py3-none-any.whl"
    wheel.write_bytes(wheel_bytes("cumm", "2.0", files={"cumm.py": "here = __file__"}))
    (tmp_path / "source/fail.py").write_text("import cumm; print('overlay', cumm.here)")
    compile_program.main(request(wheels=[wheel.name]))
    assert f"overlay {tmp_path}/fixed/work/overlay/cumm.py" in (tmp_path / "build.log").read_text()
    assert not list(env.rglob("cumm*"))


def fail(tmp_path: Path, script: str, **changes: Any) -> str:
    (tmp_path / "source/fail.py").write_text(textwrap.dedent(script))
    with pytest.raises(ProgramError) as raised:
        compile_program.main(request(**changes))
    assert not (tmp_path / "dist").exists()
    assert not (tmp_path / "compile.json").exists()
    assert not list(tmp_path.glob(".compile-*"))
    assert str(tmp_path / "cache/logs/pkg.log") in str(raised.value)
    return str(raised.value)


def test_a_failure_shows_the_end_of_the_log_and_its_path(tmp_path: Path) -> None:
    message = fail(
        tmp_path,
        """
        print("a.cpp:1:1: error: early")
        for number in range(50):
            print("line", number)
        raise SystemExit(1)
        """,
    )
    assert message.startswith("pkg 1.0 for amd64-cu130-torch2.11.0-cp312: the build failed.")
    assert "error: early" in message
    assert "line 49" in message
    assert "line 9\n" not in message
    assert "Disk full" not in message
    assert "memory" not in message
    assert "line 9\n" in (tmp_path / "build.log").read_text()


def test_a_killed_compiler_is_explained(tmp_path: Path, env: Path) -> None:
    message = fail(
        tmp_path,
        """
        import stat, sys
        print("g++: fatal error: Killed signal terminated program cc1plus")
        sys.exit(1)
        """,
    )
    assert "2 job(s) at once, planned at 0.001 GB each" in message
    assert "memory_per_job_gb" in message


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    message = fail(tmp_path, "raise OSError(28, 'No space left on device')")
    assert "Disk full" in message
    assert "named_caches_dir" in message


def test_a_backend_that_makes_no_wheel_is_an_error(
    tmp_path: Path, env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = functools.partial(build.Build, last_step=lambda *_: 0)
    monkeypatch.setattr(compile_program, "Build", idle)
    with pytest.raises(ProgramError, match="one wheel was expected, none came"):
        compile_program.main(request())
    assert not (tmp_path / "dist").exists()


def test_missing_inputs_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="/nosource, .*/nolock"):
        compile_program.main(request(source="nosource", build_lock="nolock"))


def test_an_environment_without_pip_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    monkeypatch.setattr(environment, "ensure_environment", lambda *_, **__: bare)
    with pytest.raises(ProgramError, match="lock.txt has no pip"):
        compile_program.main(request())


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    tools = {"gcc": "/nowhere/gcc", "gxx": GXX, "cuda_home": None, "identity": ""}
    with pytest.raises(ProgramError, match="/nowhere/gcc"):
        compile_program.main(request(toolchain=tools))


def test_an_interrupted_build_leaves_no_process_and_no_output(
    tmp_path: Path, env: Path, bootstrap: Path
) -> None:
    (tmp_path / "source/fail.py").write_text(
        "import subprocess; print('sleeping', flush=True); subprocess.run(['sleep', '600'])"
    )
    (tmp_path / "request.json").write_text(json.dumps(request()))
    process = subprocess.Popen(
        build_command("compile", bootstrap, env),
        env=CHILD_ENV,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "cache/logs/pkg.log"
    while not (log.exists() and "sleeping" in log.read_text()):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in errors
    assert not (tmp_path / "dist").exists()
    assert not list(tmp_path.glob(".compile-*"))
    assert "Interrupted" in log.read_text()


GB = machine.GB


@pytest.mark.parametrize(
    ("cores", "cpus", "available_gb", "per_job", "jobs"),
    [
        pytest.param(8, 8, 100, 3, 8, id="cores-limit"),
        pytest.param(8, 8, 13, 3, 4, id="memory-limits"),
        pytest.param(4, 8, 25, 3, 4, id="half-of-the-cores-gets-half-of-the-memory"),
        pytest.param(2, 8, 13, 3, 1, id="a-quarter-of-the-memory"),
        pytest.param(8, 8, 0.5, 3, 1, id="at-least-one"),
    ],
)
def test_jobs(
    cores: int,
    cpus: int,
    available_gb: float,
    per_job: float,
    jobs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "read_cores", lambda: cpus)
    memory = machine.Memory(int(available_gb * GB), "the machine")
    assert compile_program.plan_jobs(cores, per_job, memory).jobs == jobs


def test_no_more_jobs_than_a_container_has_cores() -> None:
    memory = machine.Memory(int(100 * GB), "the machine")
    assert compile_program.plan_jobs(16, 3.0, memory, usable=2).jobs == 2


def test_concurrency_comes_from_pants_or_from_the_machine() -> None:
    cores = machine.read_cores()
    assert compile_program.concurrency(["compile", "r.json", "--concurrency=7"]) == 7
    assert compile_program.concurrency(["c", "r", "--concurrency={pants_concurrency}"]) == cores
    assert compile_program.concurrency(["c", "r"]) == cores


def test_jobs_and_memory_are_not_in_the_request() -> None:
    names = {field.name for field in dataclasses.fields(Request)}
    assert names.isdisjoint({"jobs", "concurrency", "memory"})


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {"hits": 0, "misses": 0}),
        (
            "# /a.cpp\ndirect_cache_hit\nlocal_storage_hit\n# /b.cu\npreprocessed_cache_hit\n"
            "# /c.cpp\ncache_miss\nlocal_storage_miss\n",
            {"hits": 2, "misses": 1},
        ),
    ],
)
def test_ccache_statistics(tmp_path: Path, text: str, counts: dict[str, int]) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert compile_program.read_statistics(path) == counts
    assert compile_program.read_statistics(tmp_path / "none") == {"hits": 0, "misses": 0}


def test_a_copied_tree_has_plain_modes_and_keeps_links(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "sub").mkdir(parents=True, mode=0o700)
    (source / "sub/run").touch(mode=0o700)
    (source / "sub/data").touch(mode=0o640)
    (source / "link").symlink_to("sub/data")
    build.copy_tree(source, tmp_path / "copy")
    modes = {
        str(path.relative_to(tmp_path / "copy")): path.lstat().st_mode & 0o777
        for path in (tmp_path / "copy").rglob("*")
        if not path.is_symlink()
    }
    assert modes["sub/run"] == 0o755
    assert modes["sub/data"] == 0o644
    assert os.readlink(tmp_path / "copy/link") == "sub/data"
