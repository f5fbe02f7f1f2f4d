"""The directory of compilers and the CUDA_HOME of a build."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cuda_wheels.sandbox import compiler, toolchain
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.testutil import script
from cuda_wheels.sandbox.toolchain import Toolchain


@pytest.fixture
def real(tmp_path: Path) -> Toolchain:
    home = tmp_path / "real/cuda"
    script(home / "bin/nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    script(home / "bin/ptxas", "echo ptxas")
    (home / "include").mkdir()
    return Toolchain(
        script(tmp_path / "real/gcc", 'echo "gcc $*"'),
        script(tmp_path / "real/g++", 'echo "g++ $*"'),
        home,
    )


def write(directory: Path, real: Toolchain, ninja: str | None = None) -> Path | None:
    config = compiler.Config(
        gcc=real.gcc,
        gxx=real.gxx,
        nvcc=str(real.cuda_home / "bin/nvcc") if real.cuda_home else None,
        ccache=None,
        slots=str(directory / "slots"),
        jobs=3,
        keep=str(directory / "keep"),
    )
    return toolchain.write_programs(directory, real, config, ninja=ninja)


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_programs_call_the_declared_compilers(tmp_path: Path, real: Toolchain) -> None:
    write(tmp_path / "tools", real)
    programs = tmp_path / "tools/bin"
    assert output(str(programs / "c++"), "-c", "a b.cpp") == "g++ -c a b.cpp"
    assert output(str(programs / "cc"), "-v") == "gcc -v"
    # torch wants to see these names at the end of all links.
    assert os.path.realpath(programs / "g++").endswith("/g++")


def test_the_cuda_home_differs_from_the_real_one_in_its_nvcc(
    tmp_path: Path, real: Toolchain
) -> None:
    home = write(tmp_path / "tools", real)
    assert home is not None
    assert "release 13.0" in output(str(home / "bin/nvcc"), "--version")
    assert os.path.realpath(home / "bin/nvcc") == str(tmp_path / "tools/bin/nvcc")
    assert output(str(home / "bin/ptxas")) == "ptxas"
    assert (home / "include").is_dir()


def test_without_cuda_there_is_no_nvcc(tmp_path: Path, real: Toolchain) -> None:
    assert write(tmp_path / "tools", Toolchain(real.gcc, real.gxx, None)) is None
    assert not (tmp_path / "tools/bin/nvcc").exists()


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], "-j 3"),
        (["-v"], "-j 3 -v"),
        (["-v", "-j", "8"], "-v -j 8"),
        (["-j8", "all"], "-j8 all"),
    ],
)
def test_ninja_gets_a_limit_where_it_has_none(
    tmp_path: Path, real: Toolchain, arguments: list[str], given: str
) -> None:
    write(tmp_path / "tools", real, script(tmp_path / "real/ninja", 'echo "$@"'))
    assert output(str(tmp_path / "tools/bin/ninja"), *arguments) == given


def test_versions(tmp_path: Path, real: Toolchain) -> None:
    assert toolchain.nvcc_version(real.cuda_home) == "13.0.88"
    assert toolchain.nvcc_version(None) is None
    assert toolchain.gcc_version(script(tmp_path / "x/gcc", "echo 13.2.1")) == "13.2.1"
    assert toolchain.gcc_version("/nowhere/gcc") == "unknown"


def test_all_missing_programs_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="/no/gcc, /no/g.., /no/cuda/bin/nvcc"):
        toolchain.check(Toolchain("/no/gcc", "/no/g++", Path("/no/cuda")))
