"""Extensions are built at once, with a stand-in for torch's module."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cuda_wheels.sandbox import extensions


class FakeBuild:
    """What `build_all` uses of setuptools' `build_ext`."""

    def __init__(self, directory: Path, names: list[str], failing: str = "") -> None:
        self.build_temp = str(directory / "temp")
        self.directory = directory
        self.extensions = [SimpleNamespace(name=name) for name in names]
        self.failing = failing

    @contextlib.contextmanager
    def _filter_build_errors(self, extension: SimpleNamespace) -> Iterator[None]:
        yield

    def build_extension(self, extension: SimpleNamespace) -> None:
        if extension.name == self.failing:
            raise RuntimeError("a.cu does not compile")
        os.makedirs(self.build_temp)
        Path(self.build_temp, "same.o").write_text(extension.name)


def test_every_extension_has_objects_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jobs in ("1", "3"):
        monkeypatch.setenv("MAX_JOBS", jobs)
        extensions.build_all(FakeBuild(tmp_path / jobs, ["p.a", "p.b"]))
        found = {
            str(path.relative_to(tmp_path / jobs)): path.read_text()
            for path in (tmp_path / jobs).rglob("*.o")
        }
        # The same with any number of jobs: compilers write these names into objects.
        assert found == {"temp/p.a/same.o": "p.a", "temp/p.b/same.o": "p.b"}


def test_a_failing_extension_fails_the_build_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = ModuleType("setuptools.errors")
    errors.CompileError = type("CompileError", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "setuptools", ModuleType("setuptools"))
    monkeypatch.setitem(sys.modules, "setuptools.errors", errors)
    monkeypatch.setenv("MAX_JOBS", "2")
    with pytest.raises(errors.CompileError, match="extension p.b failed"):
        extensions.build_all(FakeBuild(tmp_path, ["p.a", "p.b"], failing="p.b"))


def test_no_more_run_than_allowed_and_all_run(tmp_path: Path) -> None:
    running, done = tmp_path / "running", tmp_path / "done"
    running.mkdir()
    done.mkdir()

    def task(number: int) -> None:
        (running / str(number)).touch()
        if len(os.listdir(running)) > 2:
            raise RuntimeError("three at once")
        time.sleep(0.05)
        (running / str(number)).unlink()
        (done / str(number)).touch()

    assert extensions.run_forked([functools.partial(task, n) for n in range(5)], 2) is None
    assert len(os.listdir(done)) == 5


def test_tasks_overlap(tmp_path: Path) -> None:
    def meet(mine: str, other: str) -> None:
        (tmp_path / mine).touch()
        for _ in range(1000):
            if (tmp_path / other).exists():
                return
            time.sleep(0.01)
        raise RuntimeError(f"{other} never ran beside {mine}")

    tasks = [lambda: meet("a", "b"), lambda: meet("b", "a")]
    assert extensions.run_forked(tasks, 2) is None


def test_nothing_starts_after_a_failure(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    assert extensions.run_forked([fail, (tmp_path / "late").touch], 1) == 0
    assert not (tmp_path / "late").exists()


def test_the_hook_changes_torchs_module_when_it_is_imported(tmp_path: Path) -> None:
    """A setup script that switches ninja off, as torch-scatter's does."""
    package = tmp_path / "torch/utils"
    package.mkdir(parents=True)
    (tmp_path / "torch/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "cpp_extension.py").write_text(textwrap.dedent("""
            class BuildExtension:
                def __init__(self, **options):
                    self.options = options
                @classmethod
                def with_options(cls, **options):
                    class Changed(cls):
                        def __init__(self, **kwargs):
                            kwargs.update(options)
                            super().__init__(**kwargs)
                    return Changed
            """))
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copyfile(extensions.__file__, hooks / "sitecustomize.py")
    code = textwrap.dedent("""
        from torch.utils.cpp_extension import BuildExtension
        made = BuildExtension.with_options(use_ninja=False, no_python_abi_suffix=True)()
        print(made.options, getattr(made, "_build_extensions_serial", None) is not None)
        """)

    def run(**env: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": f"{hooks}:{tmp_path}", "PATH": os.defpath, **env},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert run() == "{'use_ninja': True, 'no_python_abi_suffix': True} True"
    assert run(**{extensions.SWITCH: "0"}) == (
        "{'use_ninja': False, 'no_python_abi_suffix': True} False"
    )
