from __future__ import annotations

from pathlib import Path

import pytest

from cuda_wheels.sandbox import device_code
from cuda_wheels.sandbox.program import ProgramError
from cuda_wheels.sandbox.wheel_testutil import library

LISTING = """\
ELF file    1: _scatter_cuda.1.sm_90.cubin
ELF file    2: _scatter_cuda.2.sm_100.cubin
ELF file    3: _scatter_cuda.3.sm_90.cubin
PTX file    1: _scatter_cuda.1.sm_120.ptx
ELF file    4: core_cc.cpython-312-x86_64-linux-gnu.4.sm_90a.cubin
"""


def test_every_image_is_counted() -> None:
    assert device_code.parse_images("a.so", LISTING) == (
        ("compute_120", 1),
        ("sm_90", 2),
        ("sm_90a", 1),
        ("sm_100", 1),
    )


def test_a_gpu_arch_in_the_librarys_own_name_is_no_image() -> None:
    listing = "ELF file    1: flash.sm_80.kernels.1.sm_90.cubin\n"
    assert device_code.parse_images("a.so", listing) == (("sm_90", 1),)


def test_a_line_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ProgramError, match="must not go uncounted") as caught:
        device_code.parse_images("pkg/a.so", "LTO file    1: a.1.sm_90.ltoir\n")
    assert "pkg/a.so" in str(caught.value)


def test_the_real_tool_finds_no_device_code_in_a_host_library(tmp_path: Path) -> None:
    path = library(tmp_path / "host.so", "int one(void) { return 1; }")
    assert device_code.device_images("host.so", path, device_code.find_cuobjdump()) == ()


def test_a_tool_that_fails_is_no_proof_of_absence(tmp_path: Path) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\necho 'fatal: out of memory' >&2\nexit 255\n")
    tool.chmod(0o755)
    with pytest.raises(ProgramError, match="pkg/a.so.*exit code 255.*out of memory"):
        device_code.device_images("pkg/a.so", tmp_path / "a.so", tool)


def test_a_missing_tool_names_its_package(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="nvidia-cuda-cuobjdump"):
        device_code.find_cuobjdump([str(tmp_path)])
