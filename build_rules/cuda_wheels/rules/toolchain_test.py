from __future__ import annotations

import dataclasses

import pytest

from cuda_wheels.rules.toolchain import (
    Compiler,
    CudaHome,
    Host,
    Surroundings,
    cuda_home_problems,
    disk_problems,
    header_problems,
    host_problems,
    image_problems,
    parse_probe,
)
from cuda_wheels.tables.rows import Row

ROW = Row("amd64", "cu130", "2.11.0", "3.12", ("9.0",))
HOST = Host(
    machine="x86_64",
    glibc="2.36",
    python_version="3.12.1",
    python_headers=True,
    python_venv=True,
    gcc=Compiler("/usr/bin/gcc", "12.2.0", "aa"),
    gxx=Compiler("/usr/bin/g++", "12.2.0", "bb"),
    git="/usr/bin/git",
    cuda_home=None,
)


def test_a_good_host_has_no_problems() -> None:
    assert host_problems(HOST, ROW) == ()


def test_a_machine_of_another_architecture_is_refused() -> None:
    host = dataclasses.replace(HOST, machine="aarch64", gcc=None)
    (problem,) = host_problems(host, ROW)
    assert "for amd64" in problem and "aarch64" in problem


def test_everything_missing_is_reported_at_once() -> None:
    bare = dataclasses.replace(
        HOST, gcc=None, gxx=None, git=None, python_headers=False, python_venv=False
    )
    problems = "\n".join(host_problems(bare, ROW))
    for command in (
        "apt-get install gcc",
        "apt-get install g++",
        "apt-get install git",
        "apt-get install python3.12-dev",
        "apt-get install python3.12-venv",
    ):
        assert command in problems


@pytest.mark.parametrize(
    ("compilers", "said"),
    [
        (
            ("gcc-13", "/opt/g++"),
            ("is `gcc-13`", "install gcc-13`", "is `/opt/g++`", "install g++`"),
        ),
        (("gcc", "g++-13"), ("is `gcc`", "install gcc`", "is `g++-13`", "install g++-13`")),
    ],
)
def test_a_compiler_that_is_missing_is_called_as_the_option_does(
    compilers: tuple[str, str], said: tuple[str, ...]
) -> None:
    host = parse_probe(_probe_document(gcc=None, gxx=None), None, compilers).host
    problems = host_problems(host, ROW)
    assert len(problems) == 2
    for part in said:
        assert part in "\n".join(problems)


@pytest.mark.parametrize("version", ["16.1.0", "5.4.0"])
def test_a_gcc_that_nvcc_refuses_is_named(version: str) -> None:
    host = dataclasses.replace(HOST, gxx=Compiler("/usr/bin/g++", version, "bb"))
    (problem,) = host_problems(host, ROW)
    assert version in problem and "cu130" in problem and "cxx_compiler" in problem


def test_a_c_compiler_in_place_of_a_cxx_compiler_is_refused_with_all_else() -> None:
    c_compiler = Compiler("/opt/bin/gcc-16", "16.1.0", "bb", links_cxx=False)
    host = dataclasses.replace(HOST, gxx=c_compiler, git=None)
    _, problem, _ = host_problems(host, ROW)
    assert "`[cuda-wheels].cxx_compiler` leads to /opt/bin/gcc-16" in problem
    assert "for instance `g++-16`" in problem


def test_whether_a_compiler_links_cxx_is_in_no_identity() -> None:
    found = [
        parse_probe(_probe_document(gxx={**_COMPILER, **links}), None).host
        for links in ({}, {"links_cxx": True}, {"links_cxx": False})
    ]
    assert [host.gxx and host.gxx.links_cxx for host in found] == [True, True, False]
    assert len({host.toolchain_identity for host in found}) == 1


def test_a_toolkit_of_another_cuda_is_refused() -> None:
    host = dataclasses.replace(HOST, cuda_home=CudaHome("/opt/cuda", "12.8.93", "cc"))
    (problem,) = host_problems(host, ROW)
    assert "13.0" in problem and "12.8.93" in problem and "cuda_home" in problem


def test_a_compiler_that_is_not_on_the_index_is_reported() -> None:
    row = Row("amd64", "cu128", "2.9.1", "3.12", ("9.0",))
    (problem,) = host_problems(HOST, row)
    assert "12.8" in problem and "cuda_home" in problem


@pytest.mark.parametrize(
    ("free", "environments", "problem"),
    [
        (50.0, (), None),
        (9.0, (), "A build environment and a package's objects need 10 GB"),
        (9.0, ("1234567890abcdef-cp312-1217066f",), "objects need 10 GB"),
        (9.0, ("0123456789abcdef-cp312-1217066f",), None),
        (1.5, ("0123456789abcdef-cp312-1217066f",), "objects of a package need 2 GB"),
    ],
)
def test_disk_space_for_what_is_still_needed(
    free: float, environments: tuple[str, ...], problem: str | None
) -> None:
    surroundings = Surroundings(disk_free_gb=free, environments=environments, gpus=())
    problems = disk_problems(surroundings, "0123456789abcdef" * 4)
    assert len(problems) == (1 if problem else 0)
    for found in problems:
        assert problem and problem in found
        assert f"{free:.1f} GB" in found and "named_caches_dir" in found


@pytest.mark.parametrize(
    "change",
    [
        {"gxx": Compiler("/usr/bin/g++", "12.2.0", "other bytes")},
        {"gcc": Compiler("/usr/bin/gcc", "12.3.0", "aa")},
        {"glibc": "2.39"},
        {"cuda_home": CudaHome("/opt/cuda", "13.0.88", "cc")},
    ],
)
def test_the_toolchain_is_in_its_identity(change: dict) -> None:
    other = dataclasses.replace(HOST, **change)
    assert other.toolchain_identity != HOST.toolchain_identity


_COMPILER = {"path": "/usr/bin/gcc", "version": "12.2.0", "sha256": "aa"}


def _probe_document(**changes: object) -> dict:
    return {
        "machine": "x86_64",
        "glibc": "2.36",
        "python": {"version": "3.12.1", "include_ok": True, "venv_ok": True},
        "gcc": _COMPILER,
        "gxx": _COMPILER,
        "git": {"path": "/usr/bin/git", "version": "2.39.5"},
        "disk_free_gb": 80.0,
        "environments": [],
        "cuda_home": None,
        "gpus": [],
        "nvidia_smi": None,
        "driver": None,
        "driver_cuda": None,
        "headers": {},
        **changes,
    }


def test_headers_are_in_the_identity_of_what_includes_them_alone() -> None:
    name = "google/dense_hash_map"
    one = parse_probe(_probe_document(headers={name: "aa"}), None).host
    other = parse_probe(_probe_document(headers={name: "bb"}), None).host
    assert one.toolchain_identity == other.toolchain_identity
    assert one.identity_with([]) == one.toolchain_identity
    assert one.identity_with([name]) not in (one.toolchain_identity, other.identity_with([name]))


def test_a_missing_header_is_reported_with_what_installs_it() -> None:
    name = "google/dense_hash_map"
    (problem,) = header_problems(HOST, [name, "no/such_header"])
    assert f"<{name}>" in problem and "apt-get install libsparsehash-dev" in problem
    there = parse_probe(_probe_document(headers={name: "aa"}), None).host
    assert header_problems(there, [name]) == ()


def test_disk_space_and_gpus_are_not_in_the_host() -> None:
    one = parse_probe(_probe_document(), None)
    other = parse_probe(_probe_document(disk_free_gb=11.0, gpus=["9.0"]), None)
    assert one.host == other.host
    assert one.surroundings != other.surroundings


def test_absent_tools_are_none() -> None:
    host = parse_probe(_probe_document(gcc=None, git=None), None).host
    assert host.gcc is None and host.git is None


def test_a_named_toolkit_that_is_not_there_is_no_silent_fallback() -> None:
    home = {"path": "/opt/cuda", "nvcc_version": "13.0.88", "sha256": "cc"}
    missing = parse_probe(_probe_document(), "/nowhere").surroundings
    (problem,) = cuda_home_problems(missing)
    assert "'/nowhere'" in problem and "/nowhere/bin/nvcc" in problem
    assert cuda_home_problems(parse_probe(_probe_document(), None).surroundings) == ()
    there = parse_probe(_probe_document(cuda_home=home), "/usr/local/cuda").surroundings
    assert cuda_home_problems(there) == ()


def test_a_relative_toolkit_is_said_to_be_one() -> None:
    (problem,) = cuda_home_problems(parse_probe(_probe_document(), "cuda").surroundings)
    assert "not absolute" in problem


IMAGE = {
    "name": "cuda-wheels/amd64-cu130:0123456789abcdef",
    "base": "nvidia/cuda:13.0.3-devel-rockylinux8@sha256:" + "ab" * 32,
    "arch": "amd64",
    "accel": "cu130",
    "platform_policy": "manylinux_2_28",
    "gcc": "/opt/rh/gcc-toolset-13/root/usr/bin/gcc",
    "gxx": "/opt/rh/gcc-toolset-13/root/usr/bin/g++",
    "cuda_home": "/usr/local/cuda",
    "ca_certs": None,
}


def test_an_image_s_toolkit_is_taken_and_the_option_is_not() -> None:
    home = {"path": "/usr/local/cuda", "nvcc_version": "13.0.88", "sha256": "cc"}
    found = parse_probe(_probe_document(image=IMAGE, cuda_home=home), "/opt/of/the/user")
    assert found.host.cuda_home == CudaHome("/usr/local/cuda", "13.0.88", "cc")
    assert found.host.image is not None
    assert found.host.image.platform_policy == "manylinux_2_28"
    assert cuda_home_problems(found.surroundings) == ()


def test_an_image_whose_toolkit_is_not_there_is_reported() -> None:
    found = parse_probe(_probe_document(image=IMAGE), None)
    (problem,) = cuda_home_problems(found.surroundings)
    assert "/usr/local/cuda" in problem


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (ROW, False),
        (Row("amd64", "cu128", "2.9.1", "3.12", ("9.0",)), True),
        (Row("arm64", "cu130", "2.11.0", "3.12", ("9.0",)), True),
    ],
)
def test_an_image_is_for_one_arch_and_accelerator(row: Row, wrong: bool) -> None:
    host = parse_probe(_probe_document(image={**IMAGE, "cuda_home": None}), None).host
    problems = image_problems(host, row)
    assert bool(problems) is wrong
    if wrong:
        assert str(IMAGE["name"]) in problems[0] and f"`{row.arch}-{row.accel}`" in problems[0]
    assert image_problems(HOST, row) == ()
