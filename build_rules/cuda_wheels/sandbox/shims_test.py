"""The shims compile with the host's gcc and are seen by nobody outside the object."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.shims import compile_shims
from cuda_wheels.tables.glibc import SHIMS

GCC = shutil.which("gcc") or "gcc"
NAMES = [shim.symbol for shim in SHIMS]


def test_no_symbols_make_no_object(tmp_path: Path) -> None:
    assert compile_shims([], GCC, tmp_path) == []


def test_an_unknown_symbol_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="pow.*__libc_single_threaded"):
        compile_shims(["pow", *NAMES], GCC, tmp_path)


def test_a_linked_shim_is_hidden(tmp_path: Path) -> None:
    (shim,) = compile_shims(NAMES, GCC, tmp_path / "shims")
    source = tmp_path / "use.c"
    source.write_text(
        "extern char __libc_single_threaded; int use() {return __libc_single_threaded;}"
    )
    library = tmp_path / "use.so"
    subprocess.run([GCC, "-shared", "-fPIC", source, shim, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    assert loaded.use() == 0
    with open(library, "rb") as handle:
        dynamic = ELFFile(handle).get_section_by_name(".dynsym")
        assert isinstance(dynamic, SymbolTableSection)
        names = {symbol.name for symbol in dynamic.iter_symbols()}
    # Neither asked of the system nor offered to others.
    assert "use" in names
    assert names.isdisjoint(NAMES)
