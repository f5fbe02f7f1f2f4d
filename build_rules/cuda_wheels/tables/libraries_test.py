from __future__ import annotations

import pytest

from cuda_wheels.tables.libraries import (
    EXCLUDED_LIBRARIES,
    cuda_majors_of,
    is_cuda,
    is_foreign,
    needed_problems,
)

CU126 = (
    "libcudart.so.12 libcublas.so.12 libcublasLt.so.12 libnvblas.so.12 libcufft.so.11 "
    "libcufftw.so.11 libcurand.so.10 libcusolver.so.11 libcusolverMg.so.11 libcusparse.so.12 "
    "libcusparseLt.so.0 libcudnn.so.9 libcupti.so.12 libnccl.so.2 libnvJitLink.so.12 "
    "libnvrtc.so.12 libnvrtc-builtins.so.12.6 libnvToolsExt.so.1 libnvshmem_host.so.3 "
    "libcufile.so.0 libcufile_rdma.so.1"
).split()
CU130 = (
    "libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libnvblas.so.13 libcufft.so.12 "
    "libcufftw.so.12 libcurand.so.10 libcusolver.so.12 libcusolverMg.so.12 libcusparse.so.12 "
    "libcusparseLt.so.0 libcudnn.so.9 libcupti.so.13 libnccl.so.2 libnvJitLink.so.13 "
    "libnvrtc.so.13 libnvrtc-builtins.so.13.0 libnvshmem_host.so.3 libcufile.so.0 "
    "libcufile_rdma.so.1 libnvfatbin.so.13 libnvvm.so.4 libnvjpeg.so.13 libnppc.so.13 "
    "libnvtx3interop.so.1 libnvperf_host.so"
).split()
TORCH = (
    "libtorch.so libtorch_cpu.so libtorch_cuda.so libtorch_python.so libc10.so libc10_cuda.so "
    "libshm.so libcaffe2_nvrtc.so libgomp.so.1 libgomp-a34b3233.so.1"
).split()
SYSTEM = (
    "libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 libstdc++.so.6 libgcc_s.so.1 librt.so.1 "
    "ld-linux-x86-64.so.2 libopenblas.so.0 libz.so.1 libcurl.so.4 libcap.so.2 libnuma.so.1"
).split()


PATTERNS_OF_THE_REPLACED_SCRIPT = (
    "libtorch* libc10* libshm* libcaffe2* libgomp* libcuda.so* libcudart* libnvrtc* libcublas* "
    "libcusparse* libcurand* libcufft* libcusolver* libnvJitLink* libnvToolsExt* libcudnn* "
    "libnccl* libcupti* libnvshmem*"
).split()


@pytest.mark.parametrize("pattern", [*PATTERNS_OF_THE_REPLACED_SCRIPT, "libcufile*"])
def test_excluded(pattern: str) -> None:
    assert pattern in EXCLUDED_LIBRARIES


def test_no_pattern_holds_a_version() -> None:
    assert not [
        pattern for pattern in EXCLUDED_LIBRARIES if pattern[-1] != "*" or ".so." in pattern
    ]


@pytest.mark.parametrize("soname", sorted({*CU126, *CU130, *TORCH, "libcuda.so.1", "libcuda.so"}))
def test_foreign(soname: str) -> None:
    assert is_foreign(soname)


@pytest.mark.parametrize(
    "soname, major",
    [("libcudart-9335f6a2.so.12.6.77", 12), ("libcudart-1f2e3d4c.so.13.0.96", 13)],
)
def test_a_grafted_copy_is_recognised(soname: str, major: int) -> None:
    assert is_foreign(soname)
    assert cuda_majors_of(soname) == (major,)


@pytest.mark.parametrize("soname", SYSTEM)
def test_not_foreign(soname: str) -> None:
    assert not is_foreign(soname)
    assert cuda_majors_of(soname) == ()


@pytest.mark.parametrize("soname", TORCH)
def test_torch_is_not_cuda(soname: str) -> None:
    assert not is_cuda(soname)


@pytest.mark.parametrize(
    "soname, majors",
    [
        ("libcudart.so.11.0", (11,)),
        ("libcudart.so.12", (12,)),
        ("libcudart.so.13", (13,)),
        ("libcublas.so.12", (12,)),
        ("libcublasLt.so.13", (13,)),
        ("libnvrtc.so.11.2", (11,)),
        ("libnvrtc.so.13", (13,)),
        ("libnvrtc-builtins.so.12.6", (12,)),
        ("libnvJitLink.so.13", (13,)),
        ("libcufft.so.10", (11,)),
        ("libcufft.so.11", (12,)),
        ("libcufft.so.12", (13,)),
        ("libcurand.so.10", (11, 12, 13)),
        ("libcusolver.so.11", (11, 12)),
        ("libcusolver.so.12", (13,)),
        ("libcusparse.so.11", (11,)),
        ("libcusparse.so.12", (12, 13)),
        ("libcusparseLt.so.0", ()),
        ("libcudnn.so.9", ()),
        ("libcuda.so.1", ()),
        ("libcudart.so", ()),
        ("libstdc++.so.6", ()),
    ],
)
def test_cuda_majors(soname: str, majors: tuple[int, ...]) -> None:
    assert cuda_majors_of(soname) == majors


@pytest.mark.parametrize(
    "accel, sonames",
    [
        ("cu126", CU126),
        ("cu128", CU126),
        ("cu129", CU126),
        ("cu130", CU130),
        ("cu132", CU130),
        ("cu118", ["libcudart.so.11.0", "libcublas.so.11", "libcufft.so.10"]),
        ("cpu", ["libtorch_cpu.so", "libc10.so", "libgomp.so.1"]),
    ],
)
def test_an_accelerators_own_libraries_are_right(accel: str, sonames: list[str]) -> None:
    assert needed_problems(accel, [*sonames, *SYSTEM]) == ()


def test_a_wheel_of_the_wrong_cuda_line() -> None:
    # A wheel labelled cu129 that needs libcudart.so.13.
    (problem,) = needed_problems("cu129", ["libcudart.so.13", "libc.so.6", "libcurand.so.10"])
    for part in ("libcudart.so.13", "CUDA 13's", "cu129, CUDA 12"):
        assert part in problem


def test_every_library_of_another_cuda_is_named() -> None:
    wrong = ["libcudart.so.12", "libcublas.so.12", "libcusolver.so.11", "libnvToolsExt.so.1"]
    problems = needed_problems("cu130", [*wrong, "libcusparse.so.12"])
    assert len(problems) == len(wrong)
    assert "CUDA 11 or 12's" in problems[2]


def test_a_cpu_wheel_needs_no_cuda() -> None:
    sonames = ["libcudart.so.13", "libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so"]
    problems = needed_problems("cpu", sonames)
    assert [problem.split(",")[0] for problem in problems] == [
        "needs libcudart.so.13",
        "needs libtorch_cuda.so",
        "needs libc10_cuda.so",
    ]
