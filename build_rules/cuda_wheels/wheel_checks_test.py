from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cuda_wheels.wheel_checks import (
    FIXED_BUILD_PATH,
    DeclaredWheel,
    canonical_version,
    mismatches,
    self_mismatches,
)
from cuda_wheels.wheel_facts import LibraryFacts, VersionNeed, WheelFacts

CUDA = LibraryFacts(
    path="torch_demo/_demo_cuda.so",
    size=1000,
    machine="x86_64",
    needed=("libc10.so", "libtorch.so", "libcudart.so.13", "libstdc++.so.6", "libc.so.6"),
    version_needs=(
        VersionNeed("GLIBC", "2.14"),
        VersionNeed("GLIBCXX", "3.4.21", ("_ZNSs",)),
        VersionNeed("CXXABI", "1.3.9", ("_ZdlPvm",)),
    ),
    libstdcxx="needed",
    images=(("compute_120", 2), ("sm_90", 2), ("sm_120", 2)),
)
CPU = LibraryFacts(
    path="torch_demo/_demo_cpu.so",
    size=1000,
    machine="x86_64",
    needed=("libc10.so", "libtorch.so", "libstdc++.so.6", "libc.so.6"),
    libstdcxx="needed",
)
FACTS = WheelFacts(
    filename="torch_demo-2.1.2+cu130.torch2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    name="torch_demo",
    version="2.1.2+cu130.torch2.11.0",
    python_tag="cp312",
    abi_tag="cp312",
    platform_tags=("manylinux_2_28_x86_64",),
    sha256="ab" * 32,
    size=1234,
    wheel_tags=("cp312-cp312-manylinux_2_28_x86_64",),
    policy="manylinux_2_24_x86_64",
    symbol_policy="manylinux_2_24_x86_64",
    libraries=(CPU, CUDA),
)
DECLARED = DeclaredWheel(
    distribution="torch-demo",
    version="2.1.2+cu130.torch2.11.0",
    arch="amd64",
    accel="cu130",
    platform="manylinux_2_28_x86_64",
    python="3.12",
    cubins=("sm_90", "sm_120"),
    ptx=("compute_120",),
    links_torch=True,
)


def with_cuda(**changes: Any) -> WheelFacts:
    """The sound wheel with its CUDA library changed."""
    return replace(FACTS, libraries=(CPU, replace(CUDA, **changes)))


def only(facts: WheelFacts, declared: DeclaredWheel = DECLARED) -> str:
    found = mismatches(facts, declared)
    assert len(found) == 1, found
    return found[0]


def test_a_sound_wheel_has_no_mismatch() -> None:
    assert mismatches(FACTS, DECLARED) == ()


# --- device code ---------------------------------------------------------------------------------


def test_no_device_code_names_file_cause_and_remedy() -> None:
    message = only(with_cuda(images=()))
    assert FACTS.filename in message
    assert "torch_demo/_demo_cuda.so" in message
    assert "sm_90, sm_120, compute_120" in message
    assert "FORCE_CUDA" in message
    assert "nvcc" in message


def test_one_file_for_nvccs_default_arch_is_a_mismatch() -> None:
    message = only(with_cuda(images=(*CUDA.images, ("sm_75", 1))))
    assert message.startswith("torch_demo/_demo_cuda.so: ")
    assert "1 of 7 images are sm_75" in message
    assert "nvcc's default" in message


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param((("sm_90", 2), ("sm_120", 2)), "compute_120 is missing", id="no PTX"),
        pytest.param((("compute_120", 2), ("sm_90", 2)), "sm_120 is missing", id="no cubin"),
        pytest.param((*CUDA.images, ("sm_80", 2)), "2 of 8 images are sm_80", id="one more"),
        pytest.param((("sm_90a", 2),), "sm_90, sm_120, compute_120 is missing", id="arch specific"),
    ],
)
def test_each_image_that_is_extra_or_missing_is_named(images: Any, expected: str) -> None:
    assert expected in only(with_cuda(images=images))


def test_files_that_lack_one_arch_are_found_by_the_numbers() -> None:
    message = only(with_cuda(images=(("compute_120", 3), ("sm_90", 3), ("sm_120", 2))))
    assert "sm_90 x 3, sm_120 x 2" in message


SERVES = replace(DECLARED, cubins=(), ptx=(), serves=("9.0", "12.0"))


@pytest.mark.parametrize(
    "images",
    [
        pytest.param((("sm_90", 2), ("sm_120", 2)), id="machine code of each"),
        pytest.param((("sm_80", 2), ("sm_90", 2), ("sm_120", 2), ("compute_120", 2)), id="more"),
        pytest.param((("compute_52", 2), ("sm_52", 2)), id="old PTX"),
        pytest.param((("compute_90", 2), ("sm_90", 2)), id="PTX for the newer"),
        pytest.param((("compute_52", 1), ("sm_90", 2), ("sm_120", 2)), id="some of another arch"),
    ],
)
def test_device_code_that_serves_every_gpu(images: Any) -> None:
    assert mismatches(with_cuda(images=images), SERVES) == ()


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param((("sm_90", 2),), "12.0 (0 images for", id="too old"),
        pytest.param((("sm_120", 2), ("compute_120", 2)), "9.0 (0 images for", id="too new"),
        pytest.param((("sm_80", 2), ("sm_120", 2)), "9.0 (0 images for", id="another major"),
        pytest.param(
            (("compute_90a", 2), ("sm_90a", 2)), "12.0 (0 images for", id="PTX of one arch"
        ),
        pytest.param(
            (("sm_90", 2), ("sm_120", 1)), "12.0 (1 images for at least 2", id="not every file"
        ),
    ],
)
def test_device_code_that_does_not_serve_every_gpu(images: Any, expected: str) -> None:
    message = only(with_cuda(images=images), SERVES)
    assert message.startswith("torch_demo/_demo_cuda.so: ") and expected in message


def test_a_wheel_that_is_to_serve_gpus_has_device_code() -> None:
    assert "found none" in only(with_cuda(images=()), SERVES)


@pytest.mark.parametrize(
    ("images", "cause"),
    [
        pytest.param((*CUDA.images, ("sm_75", 1)), "nvcc's default", id="CUDA 13's default"),
        pytest.param((*CUDA.images, ("sm_52", 1)), "nvcc's default", id="CUDA 12's default"),
        pytest.param((*CUDA.images, ("sm_80", 2)), "the builder's GPU", id="an own list"),
        pytest.param(CUDA.images[:2], "ignores archs", id="an arch ignored"),
    ],
)
def test_the_cause_fits_the_finding(images: Any, cause: str) -> None:
    causes = ("nvcc's default", "the builder's GPU", "ignores archs")
    message = only(with_cuda(images=images))
    assert [text for text in causes if text in message] == [cause]
    assert ("is missing" in message) is (cause == "ignores archs")
    assert ("images are" in message) is (cause != "ignores archs")


def test_each_library_with_device_code_must_have_all_of_it() -> None:
    second = replace(CUDA, path="torch_demo/_second_cuda.so", images=(("sm_90", 1),))
    message = only(replace(FACTS, libraries=(CPU, CUDA, second)))
    assert message.startswith("torch_demo/_second_cuda.so: ")


def test_a_package_without_device_code_must_have_none() -> None:
    declared = replace(DECLARED, cubins=(), ptx=())
    assert mismatches(replace(FACTS, libraries=(CPU,)), declared) == ()
    message = only(FACTS, declared)
    assert "declared no device code" in message and "`native=True`" in message


# --- the wheel as a whole ------------------------------------------------------------------------


def test_a_native_package_that_yields_a_pure_wheel() -> None:
    facts = replace(
        FACTS,
        filename="torch_demo-2.1.2+cu130.torch2.11.0-py3-none-any.whl",
        python_tag="py3",
        abi_tag="none",
        platform_tags=("any",),
        wheel_tags=("py3-none-any",),
        libraries=(),
        policy="",
        root_is_purelib=True,
    )
    found = mismatches(facts, DECLARED)
    assert "py3-none-any" in found[0]
    assert "without any library" in found[0]
    # A package without GPU code is a platform wheel too.
    assert mismatches(facts, replace(DECLARED, cubins=(), ptx=())) == tuple(found)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"distribution": "torch-other"}, "declared distribution torch-other", id="name"
        ),
        pytest.param({"version": "2.1.3"}, "declared version 2.1.3", id="version"),
        pytest.param({"python": "3.11"}, "declared Python 3.11", id="python"),
        pytest.param({"arch": "arm64"}, "declared arch arm64 (aarch64)", id="arch"),
        pytest.param({"accel": "cu126"}, "libcudart.so.13", id="accelerator"),
        pytest.param({"platform": "manylinux_2_34_x86_64"}, "manylinux_2_34_x86_64", id="platform"),
        pytest.param({"links_torch": False}, "`links_torch=True`", id="torch"),
    ],
)
def test_what_the_target_says_otherwise(changes: dict[str, Any], expected: str) -> None:
    found = mismatches(FACTS, replace(DECLARED, **changes))
    assert any(expected in text for text in found), found


def test_any_platform_will_do_where_none_is_declared() -> None:
    assert mismatches(FACTS, replace(DECLARED, platform=None)) == ()


def test_a_wheel_of_another_python_implementation() -> None:
    tag = "pp310-pypy310_pp73-manylinux_2_28_x86_64"
    facts = replace(FACTS, python_tag="pp310", abi_tag="pypy310_pp73", wheel_tags=(tag,))
    assert "declared Python 3.12" in only(facts)


def test_an_abi3_wheel_serves_later_pythons() -> None:
    facts = replace(
        FACTS,
        filename=FACTS.filename.replace("cp312-cp312", "cp39-abi3"),
        python_tag="cp39",
        abi_tag="abi3",
        wheel_tags=("cp39-abi3-manylinux_2_28_x86_64",),
    )
    assert mismatches(facts, DECLARED) == ()
    assert mismatches(facts, replace(DECLARED, python="3.9")) == ()
    assert "declared Python 3.8" in only(facts, replace(DECLARED, python="3.8"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.0", "1.0.0", True),
        ("1.0+cu130.x", "1.0+CU130-x", True),
        ("2.8.3.post2", "2.8.3.post1", False),
        ("1.0", "1.0+cu130", False),
        ("1.10", "1.1", False),
    ],
)
def test_versions_are_compared_as_versions(one: str, other: str, same: bool) -> None:
    assert (canonical_version(one) == canonical_version(other)) is same


# --- what a library needs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accel", "soname"),
    [
        ("cu126", "libcudart.so.13"),
        ("cu130", "libcudart.so.12"),
        ("cu130", "libcublas.so.12"),
        ("cu130", "libcufft.so.11"),
        ("cpu", "libcudart.so.13"),
    ],
)
def test_cuda_of_another_major(accel: str, soname: str) -> None:
    facts = replace(FACTS, libraries=(replace(CUDA, needed=("libc10.so", soname)),))
    message = only(facts, replace(DECLARED, accel=accel))
    assert message.startswith("torch_demo/_demo_cuda.so: ")
    assert soname in message


@pytest.mark.parametrize("soname", ["libcusparse.so.12", "libcurand.so.10"])
def test_a_soname_that_two_majors_share_is_no_mismatch(soname: str) -> None:
    assert mismatches(with_cuda(needed=(*CUDA.needed, soname)), DECLARED) == ()


@pytest.mark.parametrize(
    "path",
    [
        "torch_demo.libs/libcudart-1a2b3c4d.so.13.0.48",
        "torch_demo.libs/libcudart-1a2b3c4d.so.12.6.77",
        "torch_demo.libs/libnvrtc-builtins-1a2b3c4d.so.13.0.48",
        "torch_demo.libs/libgomp-1a2b3c4d.so.1.0.0",
        "torch_demo.libs/libtorch_cpu-1a2b3c4d.so",
        "torch_demo/lib/libcublas.so.12",
    ],
)
def test_a_bundled_library_of_cuda_or_torch(path: str) -> None:
    bundled = replace(CPU, path=path, images=())
    message = only(replace(FACTS, grafted=(path,), libraries=(CPU, CUDA, bundled)))
    assert message.startswith(f"{path}: ")
    assert "EXCLUDED_LIBRARIES" in message


def test_a_bundled_library_of_others_is_fine() -> None:
    bundled = replace(CPU, path="torch_demo.libs/libopenblas-1a2b3c4d.so.0")
    assert mismatches(replace(FACTS, libraries=(CPU, CUDA, bundled)), DECLARED) == ()


def test_libstdcxx_linked_in() -> None:
    message = only(with_cuda(libstdcxx="linked in"))
    assert "torch_demo/_demo_cuda.so" in message
    assert "-static-libstdc++" in message


def test_libstdcxx_used_but_not_needed() -> None:
    assert "Link with g++" in only(with_cuda(libstdcxx="unlisted"))


def test_a_version_need_without_its_library() -> None:
    assert "libdl.so.2" in only(with_cuda(unlisted_needs=("libdl.so.2",)))


def test_build_paths_inside() -> None:
    inside = ("/home/me/x.cu", f"{FIXED_BUILD_PATH}src/y.cu")
    message = only(with_cuda(build_paths=inside))
    assert "/home/me/x.cu" in message
    assert "y.cu" not in message
    assert mismatches(with_cuda(build_paths=inside[1:]), DECLARED) == ()


def test_an_absolute_rpath() -> None:
    assert "/opt/cuda/lib64" in only(with_cuda(rpaths=("/opt/cuda/lib64",)))


def test_bytecode_is_no_part_of_a_wheel_that_is_built() -> None:
    facts = replace(FACTS, bytecode=("torch_demo/__pycache__/a.cpython-312.pyc",))
    assert "torch_demo/__pycache__/a.cpython-312.pyc" in only(facts)
    # An upstream wheel may have it.
    assert mismatches(facts, SERVES) == ()


def test_links_torch_without_torch() -> None:
    needed = ("libcudart.so.13", "libstdc++.so.6")
    facts = replace(FACTS, libraries=(replace(CUDA, needed=needed),))
    assert "`links_torch=False`" in only(facts)


# --- the wheel against itself --------------------------------------------------------------------


def test_symbols_newer_than_the_tag_are_listed_with_their_file() -> None:
    needs = (
        *CUDA.version_needs,
        VersionNeed("GLIBC", "2.34", ("dlopen", "pthread_once")),
        VersionNeed("GLIBCXX", "3.4.29", ("_ZSt28__throw_bad_array_new_lengthv",)),
        VersionNeed("CXXABI", "1.3.13", ("_ZdaPvmm",)),
    )
    facts = replace(with_cuda(version_needs=needs), policy="manylinux_2_34_x86_64")
    message = only(facts)
    for part in (
        "torch_demo/_demo_cuda.so needs GLIBC_2.34 for dlopen, pthread_once",
        "GLIBCXX_3.4.29 for _ZSt28__throw_bad_array_new_lengthv",
        "CXXABI_1.3.13 for _ZdaPvmm",
        "tagged manylinux_2_28_x86_64",
        "manylinux_2_34_x86_64",
    ):
        assert part in message
    assert "GLIBC_2.14" not in message
    assert self_mismatches(facts) == (message,)


def test_a_wheel_that_needs_exactly_its_platform_is_right() -> None:
    needs = (VersionNeed("GLIBC", "2.28", ("fcntl64",)), VersionNeed("GLIBCXX", "3.4.24", ("x",)))
    facts = replace(with_cuda(version_needs=needs), policy="manylinux_2_28_x86_64")
    assert mismatches(facts, DECLARED) == ()


@pytest.mark.parametrize(
    ("tag", "need", "fits"),
    [
        ("manylinux_2_31_x86_64", VersionNeed("GLIBCXX", "3.4.28", ("x",)), True),
        ("manylinux_2_30_x86_64", VersionNeed("GLIBCXX", "3.4.28", ("x",)), False),
        ("manylinux_2_30_x86_64", VersionNeed("GLIBC", "2.30", ("x",)), True),
        ("manylinux_2_30_x86_64", VersionNeed("GLIBC", "2.31", ("x",)), False),
        ("manylinux1_x86_64", VersionNeed("GLIBC", "2.5"), True),
        ("manylinux1_x86_64", VersionNeed("GLIBC", "2.6"), False),
    ],
)
def test_what_each_tag_allows(tag: str, need: VersionNeed, fits: bool) -> None:
    facts = replace(
        with_cuda(version_needs=(need,)),
        platform_tags=(tag,),
        wheel_tags=(f"cp312-cp312-{tag}",),
        policy=tag.replace("manylinux1_", "manylinux_2_5_"),
    )
    assert (self_mismatches(facts) == ()) is fits


def test_a_long_list_of_symbols_is_cut_and_counted() -> None:
    for number, expected in ((8, "s0, s1, s2, s3, s4, s5, s6, s7."), (10, "s7 and 2 more")):
        symbols = tuple(f"s{i}" for i in range(number))
        facts = with_cuda(version_needs=(VersionNeed("GLIBC", "2.34", symbols),))
        assert expected in only(facts)


def test_the_oldest_of_several_tags_counts() -> None:
    facts = with_cuda(version_needs=(VersionNeed("GLIBC", "2.27", ("expf",)),))
    tags = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
    facts = replace(
        facts,
        platform_tags=tags,
        wheel_tags=tuple(f"cp312-cp312-{tag}" for tag in tags),
        policy="manylinux_2_27_x86_64",
    )
    assert "GLIBC_2.27 for expf" in only(facts)


def test_auditwheels_verdict_counts_where_symbols_are_fine() -> None:
    facts = replace(FACTS, policy="linux_x86_64", unprovided=("libsecret.so.1",))
    message = only(facts)
    assert "libsecret.so.1" in message
    facts = replace(FACTS, policy="", policy_problem="an unsupported machine")
    assert "no platform by auditwheel (an unsupported machine)" in only(facts)


def test_a_linux_tag_promises_nothing() -> None:
    facts = replace(
        with_cuda(version_needs=(VersionNeed("GLIBC", "2.38", ("x",)),)),
        platform_tags=("linux_x86_64",),
        wheel_tags=("cp312-cp312-linux_x86_64",),
        policy="manylinux_2_38_x86_64",
    )
    assert self_mismatches(facts) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"libraries": (replace(CUDA, machine="aarch64"),)}, "ELF machine", id="elf"),
        pytest.param({"record_problems": ("x is not listed",)}, "x is not listed", id="record"),
        pytest.param({"wheel_tags": ("cp312-cp312-linux_x86_64",)}, "in WHEEL", id="tags"),
        pytest.param({"root_is_purelib": True}, "Root-Is-Purelib", id="purelib"),
        pytest.param({"name": "other"}, "declares the distribution", id="name"),
        pytest.param({"version": "3"}, "declares the version", id="version"),
    ],
)
def test_what_contradicts_the_wheels_own_claims(changes: dict[str, Any], expected: str) -> None:
    assert self_mismatches(FACTS) == ()
    (message,) = self_mismatches(replace(FACTS, **changes))
    assert expected in message
    # The target's check says all of it as well.
    assert message in mismatches(replace(FACTS, **changes), DECLARED)


def test_an_any_tag_with_libraries() -> None:
    facts = replace(FACTS, platform_tags=("any",), wheel_tags=("cp312-cp312-any",))
    (message,) = self_mismatches(facts)
    assert "any platform" in message


def test_a_foreign_static_or_bundled_library_is_not_against_the_tag() -> None:
    assert self_mismatches(with_cuda(libstdcxx="linked in", build_paths=("/home/x.cu",))) == ()


def test_device_code_as_a_file_is_no_library_of_the_host() -> None:
    cubin = LibraryFacts(path="torch_demo/k.cubin", size=1, machine="cuda", images=CUDA.images)
    assert mismatches(replace(FACTS, libraries=(CPU, CUDA, cubin)), DECLARED) == ()


def test_all_faults_are_reported_at_once() -> None:
    broken = replace(
        CUDA,
        machine="aarch64",
        needed=("libc10.so", "libcudart.so.12"),
        images=(("sm_75", 1),),
        libstdcxx="linked in",
        build_paths=("/home/me/x.cu",),
    )
    facts = replace(
        FACTS,
        version="0.0.0",
        libraries=(CPU, broken),
        record_problems=("x is not listed",),
    )
    found = "\n".join(mismatches(facts, DECLARED))
    for part in (
        "declared version",
        "sm_75",
        "found ELF machine aarch64",
        "libcudart.so.12",
        "libstdc++ is linked in",
        "/home/me/x.cu",
        "RECORD",
        "tagged manylinux_2_28_x86_64, found ELF machine",
    ):
        assert part in found
