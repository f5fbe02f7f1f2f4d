"""A toolkit made of links to files of the names that CUDA's packages have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_wheels.sandbox import cuda_toolkit


def test_a_cuda_home_has_both_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_toolkit.platform, "machine", lambda: "aarch64")
    toolkit = tmp_path / "env/lib/python3.12/site-packages/nvidia/cu13"
    for name in ("bin/nvcc", "include/cuda.h", "include/cccl/cub/cub.cuh", "nvvm/bin/cicc"):
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).write_text(name)
    (toolkit / "lib").mkdir()
    for name in ("libcudart.so.13", "libnvrtc-builtins.so.13.0", "libcudadevrt.a", "libx.so"):
        (toolkit / "lib" / name).write_text(name)
    home = cuda_toolkit.make_cuda_home(tmp_path / "env")
    assert home == tmp_path / "env/cuda"
    # Everything must hold after the environment got its name.
    home = (tmp_path / "env").rename(tmp_path / "renamed") / "cuda"
    for path, text in {
        "bin/nvcc": "bin/nvcc",
        "include/cccl/cub/cub.cuh": "include/cccl/cub/cub.cuh",
        "nvvm/bin/cicc": "nvvm/bin/cicc",
        "lib64/libcudart.so": "libcudart.so.13",
        "lib/libnvrtc-builtins.so": "libnvrtc-builtins.so.13.0",
        "lib64/libx.so": "libx.so",
        "lib64/libcudadevrt.a": "libcudadevrt.a",
        "targets/sbsa-linux/include/cuda.h": "include/cuda.h",
        "targets/sbsa-linux/lib/libcudart.so": "libcudart.so.13",
    }.items():
        assert (home / path).read_text() == text
    before = cuda_toolkit.cuda_digest(home)
    (home / "nvvm/bin/cicc").write_text("another")
    assert cuda_toolkit.cuda_digest(home) != before


def test_cicc_is_put_where_nvcc_looks_for_it(tmp_path: Path) -> None:
    # As the packages of CUDA 13.0.0 have it. nvcc looks from its real folder.
    toolkit = tmp_path / "env/lib/python3.12/site-packages/nvidia/cu13"
    for name in ("bin/nvcc", "bin/cicc", "lib/libcudart.so.13", "nvvm/libdevice/libdevice.10.bc"):
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).write_text(name)
    cuda_toolkit.make_cuda_home(tmp_path / "env")
    home = (tmp_path / "env").rename(tmp_path / "renamed") / "cuda"
    beside_nvcc = (home / "bin").resolve().parent
    assert (beside_nvcc / "nvvm/bin/cicc").read_text() == "bin/cicc"
    assert (home / "nvvm/bin/cicc").read_text() == "bin/cicc"
    assert (home / "nvvm/libdevice/libdevice.10.bc").exists()


def test_an_environment_without_nvcc_has_no_cuda_home(tmp_path: Path) -> None:
    assert cuda_toolkit.make_cuda_home(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
