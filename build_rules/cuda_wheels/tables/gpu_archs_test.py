from __future__ import annotations

import pytest

from cuda_wheels.tables.gpu_archs import (
    CUMM,
    CUMM_ARCHS,
    DEFAULT_GPU_ARCHS,
    FLASH_ATTN,
    GPU_ARCH_RULES,
    NVCC_GPU_ARCHS,
    TORCH,
    TORCH_EXTENSION_ARCHS,
    GpuArchRule,
    all_archs,
    apply_rule,
    local_suffix,
    normalize_arch,
    nvcc_problem,
    parse_archs,
    rule_problem,
    runs_on,
    toolkits_for,
)

CU118 = "3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0"
CU126 = "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0"
CU130 = "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1"
EMITTED = {
    "cu118": CU118,
    "cu121": CU126,
    "cu124": CU126,
    "cu126": CU126,
    "cu128": f"{CU126} 10.0 10.1 12.0",
    "cu129": f"{CU126} 10.0 10.1 10.3 12.0 12.1",
    "cu130": CU130,
    "cu131": CU130,
    "cu132": CU130,
}
EVERY_ARCH = (
    "3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.8 8.9 9.0 "
    "10.0 10.1 10.3 11.0 12.0 12.1"
).split()


def test_the_expectations_name_every_toolkit_and_arch() -> None:
    assert list(NVCC_GPU_ARCHS) == list(EMITTED)
    assert list(all_archs()) == EVERY_ARCH


@pytest.mark.parametrize("arch", EVERY_ARCH)
@pytest.mark.parametrize("accel", EMITTED)
def test_what_each_nvcc_emits(accel: str, arch: str) -> None:
    expected = arch in EMITTED[accel].split()
    assert (arch in NVCC_GPU_ARCHS[accel]) is expected
    assert (accel in toolkits_for(arch)) is expected
    assert (nvcc_problem(accel, arch) is None) is expected


@pytest.mark.parametrize(
    "arch, accel, archs",
    [
        ("amd64", "cu118", "7.0 7.5 8.0 8.6"),
        *(("amd64", accel, "7.0 7.5 8.0 8.6 8.9 9.0") for accel in ("cu121", "cu124", "cu126")),
        *(
            ("amd64", accel, "7.5 8.0 8.6 8.9 9.0 10.0 12.0")
            for accel in ("cu128", "cu129", "cu130", "cu131", "cu132")
        ),
        ("arm64", "cu126", "8.7 9.0"),
        ("arm64", "cu128", "8.7 9.0 10.0 12.0"),
        ("arm64", "cu129", "8.7 9.0 10.0 12.0 12.1"),
        *(("arm64", accel, "8.7 9.0 10.0 11.0 12.0 12.1") for accel in ("cu130", "cu131", "cu132")),
        *(("amd64", accel, "gfx90a gfx942 gfx1100") for accel in ("rocm6.3", "rocm6.4")),
    ],
)
def test_default_archs(arch: str, accel: str, archs: str) -> None:
    assert DEFAULT_GPU_ARCHS[arch, accel] == tuple(archs.split())
    assert not [a for a in archs.split() if nvcc_problem(accel, a)]


def test_no_other_defaults() -> None:
    assert len(DEFAULT_GPU_ARCHS) == 17


@pytest.mark.parametrize(
    "written, plain",
    [
        ("9.0", "9.0"),
        ("9.0+PTX", "9.0"),
        ("9.0a", "9.0"),
        ("10.3f", "10.3"),
        ("12.0a+PTX", "12.0"),
    ],
)
def test_normalize_arch(written: str, plain: str) -> None:
    assert normalize_arch(written) == plain
    assert toolkits_for(written) == toolkits_for(plain)


@pytest.mark.parametrize(
    "accel, arch, parts",
    [
        ("cu128", "10.3", ("cannot emit", "cu129, cu130, cu131, cu132")),
        ("cu129", "11.0", ("cannot emit", "cu130, cu131, cu132", "called 10.1")),
        ("cu130", "7.0", ("removed in CUDA 13", "cu118, cu121, cu124, cu126, cu128, cu129")),
        ("cu121", "3.5", ("removed in CUDA 12", "cu118")),
        ("cu130", "10.1", ("called 11.0", "cu128, cu129")),
        ("cu130", "9.5", ("nor can any other toolkit", CU130.replace(" ", ", "))),
    ],
)
def test_nvcc_problem_says_what_would_work(accel: str, arch: str, parts: tuple[str, ...]) -> None:
    problem = nvcc_problem(accel, arch)
    assert problem is not None
    assert arch in problem and accel in problem
    for part in parts:
        assert part in problem


@pytest.mark.parametrize("arch", EVERY_ARCH)
def test_torch_takes_every_arch_that_its_builder_accepts_as_it_is(arch: str) -> None:
    # 8.8 and 10.1 are holes in torch's own list.
    applied = apply_rule(TORCH, [arch])
    if arch in ("8.8", "10.1"):
        assert applied.dropped == ((arch, "torch.utils.cpp_extension does not accept it"),)
        assert applied.skipped
    else:
        assert arch in TORCH_EXTENSION_ARCHS
        assert applied.env == (("TORCH_CUDA_ARCH_LIST", arch),)
        assert applied.cubins == (f"sm_{arch.replace('.', '')}",)
        assert (applied.ptx, applied.dropped, applied.skipped) == ((), (), None)


def test_torch_list_and_requested_ptx() -> None:
    applied = apply_rule(TORCH, ["12.0", "8.0", "9.0+PTX"])
    assert applied.env == (("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX;12.0"),)
    assert applied.cubins == ("sm_80", "sm_90", "sm_120")
    assert applied.ptx == ("compute_90",)


def test_cumm_knows() -> None:
    assert CUMM_ARCHS == tuple(f"{CU118} 10.0 12.0".split())


@pytest.mark.parametrize(
    "arch, value, cubins, ptx",
    [
        *(
            (arch, arch, ("sm_" + arch.replace(".", ""),), ())
            for arch in f"{CU118} 10.0 12.0".split()
        ),
        ("8.8", "8.7+PTX", ("sm_87",), ("compute_87",)),
        ("10.1", "10.0+PTX", ("sm_100",), ("compute_100",)),
        ("10.3", "10.0+PTX", ("sm_100",), ("compute_100",)),
        ("11.0", "10.0+PTX", ("sm_100",), ("compute_100",)),
        ("12.1", "12.0+PTX", ("sm_120",), ("compute_120",)),
    ],
)
def test_cumm_arch(arch: str, value: str, cubins: tuple[str, ...], ptx: tuple[str, ...]) -> None:
    applied = apply_rule(CUMM, [arch])
    assert applied.env == (("CUMM_CUDA_ARCH_LIST", value),)
    assert (applied.cubins, applied.ptx, applied.dropped) == (cubins, ptx, ())


@pytest.mark.parametrize(
    "archs, value",
    [
        ("12.0 12.1", "12.0+PTX"),
        ("12.1 12.0", "12.0+PTX"),
        ("10.3 11.0", "10.0+PTX"),
        ("8.7 8.8 8.9", "8.7+PTX;8.9"),
        ("8.0 8.0", "8.0"),
        ("8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1", "8.0;8.6;8.9;9.0;10.0+PTX;12.0+PTX"),
    ],
)
def test_cumm_never_lists_an_arch_twice(archs: str, value: str) -> None:
    assert apply_rule(CUMM, archs.split()).env == (("CUMM_CUDA_ARCH_LIST", value),)


def test_cumm_has_nothing_for_an_arch_older_than_all() -> None:
    applied = apply_rule(CUMM, ["3.0"])
    assert applied.skipped and "3.0" in applied.skipped


PTX_100 = "-gencode arch=compute_100,code=compute_100"
PTX_120 = "-gencode arch=compute_120,code=compute_120"


@pytest.mark.parametrize(
    "arch, value, flags",
    [
        ("8.0", "80", None),
        ("8.6", "80", None),
        ("8.7", "80", None),
        ("8.9", "80", None),
        ("9.0", "90", None),
        ("10.0", "100", None),
        ("12.0", "120", None),
        ("10.3", "100", PTX_100),
        ("12.1", "120", PTX_120),
    ],
)
def test_flash_attn_arch(arch: str, value: str, flags: str | None) -> None:
    applied = apply_rule(FLASH_ATTN, [arch])
    expected = {"FLASH_ATTN_CUDA_ARCHS": value}
    if flags:
        expected["NVCC_APPEND_FLAGS"] = flags
    assert dict(applied.env) == expected
    assert applied.cubins == (f"sm_{value}",)
    assert applied.ptx == ((f"compute_{value}",) if flags else ())
    assert applied.skipped is None


@pytest.mark.parametrize(
    "arch",
    sorted(set(EVERY_ARCH) - {"8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"}),
)
def test_flash_attn_has_nothing_for(arch: str) -> None:
    applied = apply_rule(FLASH_ATTN, [arch])
    assert (applied.env, applied.cubins, applied.ptx) == ((), (), ())
    assert applied.dropped == ((arch, "flash-attn 2 has no kernels for it"),)
    assert applied.skipped is not None
    for part in (arch, "flash-attn 2 has no kernels", "8.0, 8.6, 8.7, 8.9, 9.0"):
        assert part in applied.skipped


def test_flash_attn_keeps_what_it_can_of_a_list() -> None:
    applied = apply_rule(FLASH_ATTN, "7.5 8.0 8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1".split())
    assert dict(applied.env) == {
        "FLASH_ATTN_CUDA_ARCHS": "80;90;100;120",
        "NVCC_APPEND_FLAGS": f"{PTX_100} {PTX_120}",
    }
    assert applied.cubins == ("sm_80", "sm_90", "sm_100", "sm_120")
    assert applied.ptx == ("compute_100", "compute_120")
    assert [arch for arch, _ in applied.dropped] == ["7.5", "11.0"]
    assert applied.skipped is None


@pytest.mark.parametrize("rule", GPU_ARCH_RULES.values(), ids=lambda rule: rule.name)
def test_no_archs_is_skipped(rule: GpuArchRule) -> None:
    applied = apply_rule(rule, [])
    assert applied.env == ()
    assert applied.skipped and "No GPU architecture" in applied.skipped


@pytest.mark.parametrize("rule", GPU_ARCH_RULES.values(), ids=lambda rule: rule.name)
def test_what_is_no_capability_is_dropped(rule: GpuArchRule) -> None:
    applied = apply_rule(rule, ["sm_90", "90", "9.0"])
    assert [arch for arch, _ in applied.dropped] == ["sm_90", "90"]
    assert applied.cubins == ("sm_90",)


def test_the_names_of_the_rules() -> None:
    assert sorted(GPU_ARCH_RULES) == ["cumm", "flash-attn", "torch"]
    assert [rule_problem(name) for name in GPU_ARCH_RULES] == [None, None, None]


@pytest.mark.parametrize(
    "name, parts",
    [
        ("touch", ("'touch'", "Did you mean 'torch'?", "Known: torch, cumm, flash-attn")),
        ("flash_attn", ("'flash_attn'", "Did you mean 'flash-attn'?")),
        ("xyz", ("'xyz', which is unknown. Known", "tables/gpu_archs.py")),
    ],
)
def test_an_unknown_rule(name: str, parts: tuple[str, ...]) -> None:
    problem = rule_problem(name)
    assert problem is not None
    for part in parts:
        assert part in problem


@pytest.mark.parametrize(
    "text, archs",
    [
        ("9.0", ("9.0",)),
        ("9.0 12.0;8.0, 8.6", ("9.0", "12.0", "8.0", "8.6")),
        ("9.0;9.0", ("9.0",)),
        (" ;, ", ()),
        ("", ()),
        ("ninety 9.0+PTX", ("ninety", "9.0+PTX")),
    ],
)
def test_parse_archs(text: str, archs: tuple[str, ...]) -> None:
    assert parse_archs(text) == archs


@pytest.mark.parametrize(
    "archs, suffix",
    [
        (["9.0"], "sm90"),
        (["12.0", "9.0", "8.0"], "sm80.sm90.sm120"),
        (["9.0+PTX"], "sm90"),
    ],
)
def test_local_suffix(archs: list[str], suffix: str) -> None:
    assert local_suffix(archs) == suffix


@pytest.mark.parametrize(
    "gpu, cubins, ptx, expected",
    [
        ("9.0", ["sm_90"], [], True),
        ("8.9", ["sm_80"], [], True),
        ("8.0", ["sm_86"], [], False),
        ("9.0", ["sm_80"], [], False),
        ("12.0", ["sm_120"], [], True),
        ("12.1", ["sm_120"], [], False),
        ("12.1", ["sm_120"], ["compute_120"], True),
        ("10.3", ["sm_100"], ["compute_100"], True),
        ("9.0", [], ["compute_100"], False),
        ("9.0", [], ["compute_90a"], True),
        ("10.0", [], ["compute_90a"], False),
    ],
)
def test_runs_on(gpu: str, cubins: list[str], ptx: list[str], expected: bool) -> None:
    assert runs_on(gpu, cubins, ptx) is expected
