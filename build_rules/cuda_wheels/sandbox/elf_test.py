from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_wheels.sandbox import elf, namespace
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.wheel_testutil import (
    MATH,
    ONE,
    as_aarch64,
    library,
    without_needed,
)
from cuda_wheels.wheel_checks import FIXED_BUILD_PATH
from cuda_wheels.wheel_facts import LibraryFacts

STREAMS = """
#include <iostream>
#include <stdexcept>
extern "C" void say(int n) { if (n) throw std::runtime_error("no"); std::cout << n << std::endl; }
"""


def read(path: Path) -> LibraryFacts:
    return elf.read_library(f"pkg/{path.name}", path)


def test_names_and_needs(tmp_path: Path) -> None:
    library(tmp_path / "libcudart.so.13", ONE, soname="libcudart.so.13")
    path = library(
        tmp_path / "user.so",
        "int one(void); int two(void) { return one() + 1; }",
        str(tmp_path / "libcudart.so.13"),
        soname="libuser.so.1",
    )
    facts = read(path)
    assert facts.path == "pkg/user.so"
    assert facts.machine == os.uname().machine
    assert facts.soname == "libuser.so.1"
    assert "libcudart.so.13" in facts.needed
    assert facts.size == path.stat().st_size


def test_the_machine_is_the_headers(tmp_path: Path) -> None:
    assert read(as_aarch64(library(tmp_path / "a.so", ONE))).machine == "aarch64"


def test_new_symbol_versions_name_their_symbols(tmp_path: Path) -> None:
    source = """
    #include <pthread.h>
    #include <string.h>
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static void nothing(void) {}
    int go(char *a, char *b, int n) { memcpy(a, b, n); return pthread_once(&once, nothing); }
    """
    newest = read(library(tmp_path / "a.so", source)).newest("GLIBC")
    assert newest is not None
    assert (newest.name, newest.symbols) == ("GLIBC_2.34", ("pthread_once",))


@pytest.mark.parametrize(
    ("linker", "flags", "expected"),
    [
        pytest.param("g++", [], "needed", id="by g++"),
        pytest.param("g++", ["-static-libstdc++"], "linked in", id="static"),
        pytest.param(
            "g++",
            ["-static-libstdc++", "-Wl,--exclude-libs,ALL", "-s"],
            "linked in",
            id="static, hidden and stripped",
        ),
        pytest.param("gcc", [], "unlisted", id="not linked at all"),
    ],
)
def test_how_the_cxx_runtime_comes_in(
    tmp_path: Path, linker: str, flags: list[str], expected: str
) -> None:
    path = library(tmp_path / "a.so", STREAMS, *flags, language="c++", linker=linker)
    assert read(path).libstdcxx == expected


def test_c_alone_uses_no_cxx_runtime(tmp_path: Path) -> None:
    assert read(library(tmp_path / "a.so", ONE)).libstdcxx == "unused"


def test_a_version_need_without_its_library_is_found(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", MATH, "-lm")
    assert read(path).unlisted_needs == ()
    without_needed(path, "libm.so.6")
    assert read(path).unlisted_needs == ("libm.so.6",)


def test_build_paths_are_found_and_system_paths_are_not(tmp_path: Path) -> None:
    source = """
    const char *a = "/home/me/build/csrc/a_kernel.cu";
    const char *b = "/usr/include/c++/12/bits/stl_vector.h";
    const char *c = "csrc/cuda/c.h";
    const char *d = "see /somewhere/d.html";
    """
    assert read(library(tmp_path / "a.so", source)).build_paths == (
        "/home/me/build/csrc/a_kernel.cu",
    )


def test_many_build_paths_of_one_place_hide_no_other(tmp_path: Path) -> None:
    paths = [f"/build/here/file_{number:03}.cu" for number in range(100)]
    source = "".join(
        f'const char *p{number} = "{path}";\n'
        for number, path in enumerate([*paths, "/zzz/elsewhere/x.cu"])
    )
    assert read(library(tmp_path / "a.so", source)).build_paths == (
        *paths[:3],
        "/zzz/elsewhere/x.cu",
    )


def test_an_absolute_rpath_is_found_and_a_relative_one_is_not(tmp_path: Path) -> None:
    path = library(tmp_path / "a.so", ONE, "-Wl,-rpath,$ORIGIN/../x.libs:/opt/cuda/lib64")
    assert read(path).rpaths == ("/opt/cuda/lib64",)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:40], id="cut short"),
        pytest.param(lambda data: data[:40] + b"\xff" * 8 + data[48:], id="section headers"),
        pytest.param(lambda data: data[:32] + b"\xff" * 8 + data[40:], id="program headers"),
        pytest.param(lambda data: data[:58] + b"\xff" * 6 + data[64:], id="section counts"),
        pytest.param(lambda data: data[:4] + b"\x09" + data[5:], id="class"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = library(tmp_path / "a.so", ONE)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ProgramError, match="pkg/a.so begins like an ELF file"):
        read(path)


def test_the_fixed_build_path_is_the_compile_programs() -> None:
    assert f"{namespace.FIXED}/" == FIXED_BUILD_PATH
