from __future__ import annotations

import pytest

from cuda_wheels.tables.glibc import (
    POLICIES,
    SHIMS,
    exceeds,
    find_policy,
    platform_problem,
    platform_tag,
    shims_for,
)


@pytest.mark.parametrize(
    "name, glibc, glibcxx, cxxabi, gcc",
    [
        ("manylinux_2_17", "2.17", "3.4.19", "1.3.7", "4.8.0"),
        ("manylinux_2_28", "2.28", "3.4.24", "1.3.11", "7.0.0"),
        ("manylinux_2_31", "2.31", "3.4.28", "1.3.12", "7.0.0"),
        ("manylinux_2_34", "2.34", "3.4.29", "1.3.13", "7.0.0"),
        ("manylinux_2_35", "2.35", "3.4.30", "1.3.13", "12.0.0"),
        ("manylinux_2_39", "2.39", "3.4.33", "1.3.15", "14.0.0"),
    ],
)
def test_policy(name: str, glibc: str, glibcxx: str, cxxabi: str, gcc: str) -> None:
    policy = find_policy(name)
    assert policy is not None
    assert policy.ceilings == {"GLIBC": glibc, "GLIBCXX": glibcxx, "CXXABI": cxxabi, "GCC": gcc}
    assert find_policy(f"{name}_x86_64") is policy
    assert find_policy(f"{name}_aarch64") is policy


@pytest.mark.parametrize("name", ["auto", "manylinux_2_2", "manylinux_2_28_x86", "linux_x86_64"])
def test_no_policy(name: str) -> None:
    assert find_policy(name) is None


@pytest.mark.parametrize(
    "version, expected",
    [
        ("GLIBC_2.28", False),
        ("GLIBC_2.9", False),
        ("GLIBC_2.29", True),
        ("GLIBC_2.32", True),
        ("GLIBC_2.34", True),
        ("GLIBC_2.3.4", False),
        ("GLIBC_PRIVATE", False),
        ("GLIBCXX_3.4", False),
        ("GLIBCXX_3.4.24", False),
        ("GLIBCXX_3.4.26", True),
        ("GLIBCXX_3.4.29", True),
        ("CXXABI_1.3.11", False),
        ("CXXABI_1.3.13", True),
        ("CXXABI_TM_1", False),
        ("GCC_7.0.0", False),
        ("GCC_3.0", False),
        ("GCC_12.0.0", True),
        ("OMP_5.0", False),
    ],
)
def test_what_manylinux_2_28_allows(version: str, expected: bool) -> None:
    policy = find_policy("manylinux_2_28")
    assert policy is not None
    assert exceeds(version, policy) is expected


@pytest.mark.parametrize(
    "policy, arch, tag",
    [
        ("manylinux_2_28", "amd64", "manylinux_2_28_x86_64"),
        ("manylinux_2_28", "arm64", "manylinux_2_28_aarch64"),
        ("auto", "amd64", "auto"),
        ("manylinux_2_28", "sparc", "manylinux_2_28_sparc"),
    ],
)
def test_platform_tag(policy: str, arch: str, tag: str) -> None:
    assert platform_tag(policy, arch) == tag


@pytest.mark.parametrize("policy", ["auto", *(policy.name for policy in POLICIES)])
def test_no_platform_problem(policy: str) -> None:
    assert platform_problem(policy) is None


@pytest.mark.parametrize(
    "policy, parts",
    [
        ("manylinux_2.28", ("manylinux_2.28", "Did you mean `manylinux_2_28`?", "auto")),
        ("musl", ("`musl`", "one of manylinux_2_17,")),
        ("manylinux_2_28_x86_64", ("manylinux_2_28_x86_64", "Did you mean `manylinux_2_28`?")),
    ],
)
def test_platform_problem(policy: str, parts: tuple[str, ...]) -> None:
    problem = platform_problem(policy)
    assert problem is not None
    for part in parts:
        assert part in problem


@pytest.mark.parametrize(
    "policy, hint",
    [
        ("manylinux2014", "`manylinux2014` is the old name of `manylinux_2_17`: use that."),
        ("manylinux2014_x86_64", "`manylinux2014` is the old name of `manylinux_2_17`: use that."),
        ("manylinux2010", "glibc 2.12; the oldest one known here is `manylinux_2_17`."),
        ("manylinux1", "glibc 2.5; the oldest one known here is `manylinux_2_17`."),
        ("manylinux_2_5", "glibc 2.5; the oldest one known here is `manylinux_2_17`."),
        # A wheel for an older glibc serves the hosts that were meant, one for a newer does not.
        ("manylinux_2_29", "Did you mean `manylinux_2_28`?"),
        ("manylinux_2_33_aarch64", "Did you mean `manylinux_2_31`?"),
        ("manylinux_2_99", "Did you mean `manylinux_2_41`?"),
        ("manylinux-2-35", "Did you mean `manylinux_2_35`?"),
        ("manylinux2_28", "Did you mean `manylinux_2_28`?"),
        ("2.28", "Did you mean `manylinux_2_28`?"),
        ("atuo", "Did you mean `auto`?"),
    ],
)
def test_the_policy_that_is_suggested_serves_the_same_hosts(policy: str, hint: str) -> None:
    problem = platform_problem(policy)
    assert problem is not None
    assert f"no manylinux policy known here. {hint} Use `auto`" in problem.replace("It is for ", "")


@pytest.mark.parametrize("policy", ["musl", "musllinux_1_2", "linux_x86_64", "manylinux3", ""])
def test_nothing_is_suggested_where_no_glibc_is_named(policy: str) -> None:
    problem = platform_problem(policy)
    assert problem is not None and "known here. Use `auto` or one of manylinux_2_17" in problem


@pytest.mark.parametrize(
    "platform, symbols",
    [
        ("manylinux_2_28_x86_64", ("__libc_single_threaded",)),
        ("manylinux_2_31_aarch64", ("__libc_single_threaded",)),
        ("manylinux_2_34_x86_64", ()),
        ("manylinux_2_28", ("__libc_single_threaded",)),
        ("auto", ("__libc_single_threaded",)),
        ("linux_x86_64", ()),
    ],
)
def test_shims_for(platform: str, symbols: tuple[str, ...]) -> None:
    assert shims_for(platform) == symbols


def test_every_shim_says_why() -> None:
    for shim in SHIMS:
        assert shim.symbol in shim.c_source
        assert shim.reason and shim.proof
