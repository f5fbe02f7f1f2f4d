"""Build several torch extensions at once, without patching the package.

Loaded as `sitecustomize` of the interpreter that runs a package's setup.py. When
`torch.utils.cpp_extension` is imported, its `BuildExtension` is changed in two ways:

* it uses ninja, also where the setup script switches that off, as torch-scatter's does;
* each extension is built in a forked process with a directory of objects of its own, as many at
  once as the build has jobs. (The compilers' own limit, in `compiler.py`, holds across them.)

The directories do not depend on the number of jobs: compilers write their names into objects.
`CUDA_WHEELS_PARALLEL_EXTENSIONS=0` in a target's `env` switches both off.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

MODULE = "torch.utils.cpp_extension"
SWITCH = "CUDA_WHEELS_PARALLEL_EXTENSIONS"


class _Loader(importlib.abc.Loader):
    """The module's own loader, with the change made after it has run."""

    def __init__(self, loader: importlib.abc.Loader):
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        change(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, once, by asking the finders behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    """Wait for the import of torch's extension module."""
    sys.meta_path.insert(0, _Finder())


def change(module: Any) -> None:
    """Make `BuildExtension` of the module use ninja and build extensions at once."""
    build_extension = module.BuildExtension
    original = build_extension.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["use_ninja"] = True
        original(self, *args, **kwargs)

    build_extension.__init__ = __init__
    build_extension._build_extensions_serial = build_all


def build_all(command: Any) -> None:
    """Build every extension of a `build_ext` command, each in a process and directory of its own."""
    base = command.build_temp

    def build(extension: Any) -> None:
        command.build_temp = os.path.join(base, extension.name)
        with command._filter_build_errors(extension):
            command.build_extension(extension)

    jobs = max(1, int(os.environ.get("MAX_JOBS") or 1))
    names = [extension.name for extension in command.extensions]
    failed = run_forked([functools.partial(build, e) for e in command.extensions], jobs)
    if failed is not None:
        # setuptools prints this one without a traceback, which would push the cause out of sight.
        errors = importlib.import_module("setuptools.errors")
        raise errors.CompileError(f"extension {names[failed]} failed; its errors are above")


def run_forked(tasks: list[Callable[[], None]], limit: int) -> int | None:
    """Run tasks in forked processes, `limit` at once; the index of the first that failed.

    After a failure no further task starts, and those that run are waited for.
    """
    running: dict[int, int] = {}
    failed = None
    waiting = list(enumerate(tasks))
    while running or (waiting and failed is None):
        while waiting and failed is None and len(running) < limit:
            index, task = waiting.pop(0)
            running[_fork(task)] = index
        pid, status = os.wait()
        index = running.pop(pid, -1)
        if status != 0 and index >= 0 and failed is None:
            failed = index
    return failed


def _fork(task: Callable[[], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        task()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


if __name__ == "sitecustomize" and os.environ.get(SWITCH) != "0":
    install()
