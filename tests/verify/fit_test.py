"""Which wheelhouse fits which host; the hosts are recorded, nothing of this machine is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuda_wheels.audit.wheelhouse import Summary, Tags
from verify.fit import fit, select
from verify.host import Gpu, Host

# Driver -> the CUDA that its nvidia-smi names.
DRIVERS = {
    "450.248.02": "11.0",
    "470.256.02": "11.4",
    "525.147.05": "12.0",
    "535.183.01": "12.2",
    "550.163.01": "12.4",
    "560.35.05": "12.6",
    "570.195.03": "12.8",
    "575.64.05": "12.9",
    "580.95.05": "13.0",
}
BRANCHES = {driver.split(".")[0]: driver for driver in DRIVERS}

# glibc -> a distribution that has it: Ubuntu 18.04, RHEL 8, Ubuntu 22.04, Ubuntu 24.04.
T4 = Gpu("Tesla T4", "7.5")
A100 = Gpu("NVIDIA A100-SXM4-80GB", "8.0")
L4 = Gpu("NVIDIA L4", "8.9")
H100 = Gpu("NVIDIA H100 80GB HBM3", "9.0")
B200 = Gpu("NVIDIA B200", "10.0")
B300 = Gpu("NVIDIA B300 SXM6 AC", "10.3")
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", "12.0")
GB10 = Gpu("NVIDIA GB10", "12.1")


def host(
    *gpus: Gpu,
    branch: str | None = "580",
    glibc: str | None = "2.39",
    machine: str = "x86_64",
    python: str = "3.12",
    system: str = "Linux",
) -> Host:
    driver = BRANCHES[branch] if branch else None
    cuda = DRIVERS[driver] if driver else None
    return Host(system, machine, glibc, python, driver, cuda, gpus, 100.0, "/home/u/.nv")


PACKAGES = ("flash-attn", "spconv", "torch-scatter")


def house(arch: str, accel: str, cuda_arch: str, torch: str = "2.9.1", **more: object) -> Summary:
    tags = Tags("linux", arch, accel, torch, "3.12", tuple(cuda_arch.split()))
    summary = Summary(f"{arch}/{accel}/{torch}", tags, "2.28", packages=PACKAGES)
    return replace(summary, **more)  # type: ignore[arg-type]


# The recommended matrix.
A_CU126 = house("amd64", "cu126", "8.0 8.6 8.9 9.0")
A_CU128 = house("amd64", "cu128", "8.0 8.6 8.9 9.0 10.0 12.0")
A_CU130 = house(
    "amd64",
    "cu130",
    "8.0 8.6 8.9 9.0 10.0 10.3 12.0",
    ptx_for=("10.3",),
    verified=(("9.0", "runs"),),
)
B_CU126 = house("arm64", "cu126", "8.0 8.6 8.9 9.0")
B_CU130 = house("arm64", "cu130", "8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1", ptx_for=("10.3", "12.1"))
A_CPU = house("amd64", "cpu", "")
TREE = (A_CU126, A_CU128, A_CU130, B_CU126, B_CU130, A_CPU)


@pytest.mark.parametrize(
    ("at", "chosen"),
    [
        pytest.param(host(A100), A_CU130, id="A100"),
        pytest.param(host(L4), A_CU130, id="L4"),
        pytest.param(host(H100), A_CU130, id="H100"),
        pytest.param(host(B200), A_CU130, id="B200"),
        pytest.param(host(B300), A_CU130, id="B300"),
        pytest.param(host(RTX_5090), A_CU130, id="RTX-5090"),
        pytest.param(host(GB10, machine="aarch64"), B_CU130, id="GB10"),
        pytest.param(host(T4), None, id="T4-is-in-no-tag"),
        pytest.param(host(A100, branch="450"), None, id="driver-450"),
        pytest.param(host(A100, branch="470"), None, id="driver-470"),
        pytest.param(host(A100, branch="525"), None, id="driver-525"),
        pytest.param(host(A100, branch="535"), None, id="driver-535"),
        pytest.param(host(A100, branch="550"), None, id="driver-550"),
        pytest.param(host(A100, branch="560"), A_CU126, id="driver-560"),
        pytest.param(host(A100, branch="570"), A_CU128, id="driver-570"),
        pytest.param(host(A100, branch="575"), A_CU128, id="driver-575"),
        pytest.param(host(B200, branch="560"), None, id="B200-with-a-driver-for-cu126"),
        pytest.param(host(H100, machine="aarch64", branch="570"), B_CU126, id="GH200"),
        pytest.param(host(A100, glibc="2.27"), None, id="glibc-2.27"),
        pytest.param(host(A100, glibc="2.28"), A_CU130, id="glibc-2.28"),
        pytest.param(host(A100, glibc="2.35"), A_CU130, id="glibc-2.35"),
        pytest.param(host(A100, glibc=None), None, id="musl"),
        pytest.param(host(A100, python="3.11"), None, id="another-Python"),
        pytest.param(host(A100, machine="ppc64le"), None, id="another-machine"),
        pytest.param(host(A100, system="Darwin"), None, id="another-system"),
        pytest.param(host(), A_CPU, id="a-driver-and-no-GPU"),
        pytest.param(host(branch=None), A_CPU, id="no-driver"),
        pytest.param(host(A100, H100), A_CU130, id="two-GPUs"),
        pytest.param(host(T4, A100), None, id="two-GPUs-one-of-them-in-no-tag"),
        pytest.param(host(Gpu("Tesla V100", None)), None, id="a-GPU-that-does-not-tell"),
    ],
)
def test_select(at: Host, chosen: Summary | None) -> None:
    found = select(TREE, at)
    assert (found.chosen, found.tied) == (chosen, ())
    # Whatever is not taken was rejected with a reason, or is older than what is.
    assert all(one.reasons or chosen for one in found.fits)


@pytest.mark.parametrize(
    ("summary", "at", "reason"),
    [
        pytest.param(A_CU130, host(T4), "names 8.0 8.6 8.9 9.0 10.0 10.3 12.0, not 7.5", id="T4"),
        pytest.param(A_CU128, host(B300), "not 10.3 of this host", id="10.0-is-not-10.3"),
        pytest.param(A_CU130, host(T4, A100), "`--gpu 8.0`", id="one-of-two"),
        pytest.param(A_CU130, host(A100, branch="450"), "Install driver 580", id="driver-450"),
        pytest.param(A_CU126, host(A100, branch="470"), "Install driver 525", id="another-major"),
        pytest.param(A_CU128, host(A100, branch="535"), "compiles no PTX", id="same-major"),
        pytest.param(A_CU130, host(A100, glibc="2.27"), "glibc 2.28 or newer", id="glibc"),
        pytest.param(A_CU130, host(A100, glibc=None), "another C library", id="musl"),
        pytest.param(A_CU130, host(branch=None), "none answers here", id="no-driver"),
        pytest.param(A_CU130, host(), "It is for GPUs", id="no-GPU"),
        pytest.param(A_CPU, host(A100), "names none, not 8.0", id="cpu-on-a-GPU-host"),
        pytest.param(B_CU130, host(A100), "It is for arm64, this machine is x86_64", id="arch"),
        pytest.param(A_CU130, host(A100, python="3.9"), "--python python3.12", id="python"),
        pytest.param(
            replace(A_CU130, glibc="2.38"),
            host(A100, glibc="2.35"),
            "has 2.35",
            id="built-on-24.04",
        ),
        pytest.param(
            house("amd64", "rocm6.4", "gfx942"), host(A100), "knows CUDA and the CPU", id="rocm"
        ),
        pytest.param(house("amd64", "cu999", "8.0"), host(A100), "does not know", id="unknown"),
    ],
)
def test_reasons(summary: Summary, at: Host, reason: str) -> None:
    found = fit(summary, at)
    assert not found.fits
    assert reason in "\n".join(found.reasons)


def test_all_reasons_at_once() -> None:
    found = fit(A_CU130, host(T4, branch="450", glibc="2.27", machine="aarch64", python="3.9"))
    assert len(found.reasons) == 5


@pytest.mark.parametrize(
    ("summary", "at", "words"),
    [
        pytest.param(B_CU130, host(GB10, machine="aarch64"), "ConvAlgo.Native", id="GB10"),
        pytest.param(A_CU130, host(B300), "ConvAlgo.Native", id="B300"),
        pytest.param(A_CU130, host(B300), "CUDA_CACHE_PATH", id="B300-by-PTX"),
        pytest.param(
            house("amd64", "cu130", "7.5"), host(T4), "flash-attn needs capability 8.0", id="T4"
        ),
        pytest.param(A_CU130, host(A100), "nobody has run it", id="built-not-run"),
        pytest.param(
            replace(A_CU130, skipped=(("flash-attn", "No kernels."),)),
            host(H100),
            "Without flash-attn: No kernels.",
            id="skipped",
        ),
    ],
)
def test_conditions(summary: Summary, at: Host, words: str) -> None:
    found = fit(summary, at)
    assert found.fits
    assert words in "\n".join(found.conditions)


def test_nothing_to_say_where_it_ran() -> None:
    assert fit(A_CU130, host(H100)).conditions == ()


@pytest.mark.parametrize(
    ("houses", "index"),
    [
        pytest.param((A_CU128, A_CU130), 1, id="newest-accelerator"),
        pytest.param(
            (house("amd64", "cu130", "8.0"), house("amd64", "cu130", "8.0", "2.11.0")),
            1,
            id="then-the-newest-torch-by-number",
        ),
        pytest.param(
            (
                house("amd64", "cu130", "8.0", date="2026.11.30.10"),
                house("amd64", "cu130", "8.0", date="2026.11.30.9"),
            ),
            0,
            id="then-the-newest-date",
        ),
    ],
)
def test_order(houses: tuple[Summary, ...], index: int) -> None:
    assert select(houses, host(A100)).chosen == houses[index]


def test_wheels_that_name_no_glibc() -> None:
    assert fit(replace(A_CU130, glibc=None), host(H100, glibc="2.17")).fits


def test_a_tie_is_no_choice() -> None:
    again = replace(A_CU130, path="elsewhere")
    found = select((A_CU130, again), host(A100))
    assert (found.chosen, found.tied) == (None, (A_CU130, again))
