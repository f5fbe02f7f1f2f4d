"""What the recipes of native packages declare, against what went wrong elsewhere without it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from cuda_wheels.tables.patches import parse_header

PACKAGES = Path("packages")
PIN = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


@dataclass(frozen=True)
class Call:
    """One call in a BUILD file."""

    name: str
    arguments: tuple[Any, ...]
    fields: dict[str, Any]


class Symbols(dict):
    """Whatever a BUILD file calls, as the calls that it makes."""

    def __missing__(self, name: str) -> Any:
        return lambda *arguments, **fields: Call(name, arguments, fields)


def recipe(path: Path) -> Call:
    """The call of `native_package` in a BUILD file."""
    calls: list[Call] = []
    symbols = Symbols(
        native_package=lambda *arguments, **fields: calls.append(
            Call("native_package", arguments, fields)
        )
    )
    exec(compile(path.read_text(), path, "exec"), symbols)
    (call,) = calls
    return call


RECIPES = {
    path.parent.name: recipe(path)
    for path in sorted(PACKAGES.glob("*/BUILD"))
    if "native_package(" in path.read_text()
}


def test_all_packages_of_the_stack_are_there() -> None:
    assert (
        list(RECIPES)
        == (
            "cumm flash-attn pointgroup_ops pointops pointops2 pointrope pointseg spconv swin3d "
            "torch-cluster torch-scatter torch-sparse"
        ).split()
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_source_is_pinned_by_its_content(name: str) -> None:
    source = RECIPES[name].fields["source"]
    pin = source.fields.get("sha256", source.fields.get("commit"))
    assert PIN.fullmatch(pin)
    for prebuilt in RECIPES[name].fields.get("prebuilt", {}).values():
        assert PIN.fullmatch(prebuilt.fields["sha256"])


@pytest.mark.parametrize("name", RECIPES)
def test_a_source_of_the_index_is_of_the_wheels_version(name: str) -> None:
    call = RECIPES[name]
    if call.fields["source"].name != "git_source":
        assert call.fields["source"].arguments == call.arguments


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        # Without these a builder that shows no GPU gets a wheel without CUDA code, unasked,
        ("torch-scatter", "FORCE_CUDA", "1"),
        ("torch-sparse", "FORCE_CUDA", "1"),
        ("torch-cluster", "FORCE_CUDA", "1"),
        # somebody else's wheel, for another torch, with 4 times the memory a job,
        ("flash-attn", "FLASH_ATTENTION_FORCE_BUILD", "TRUE"),
        ("flash-attn", "NVCC_THREADS", "1"),
        # or one that compiles on the user's machine, and asks for nvidia-smi there.
        ("cumm", "CUMM_DISABLE_JIT", "1"),
        ("spconv", "SPCONV_DISABLE_JIT", "1"),
    ],
)
def test_a_variable_is_set(name: str, variable: str, value: str) -> None:
    assert RECIPES[name].fields["env"][variable] == value


@pytest.mark.parametrize(
    ("name", "rule"), [("cumm", "cumm"), ("spconv", "cumm"), ("flash-attn", "flash-attn")]
)
def test_a_package_with_a_list_of_its_own_is_told_by_its_variable(name: str, rule: str) -> None:
    assert RECIPES[name].fields["gpu_arch_rule"] == rule


@pytest.mark.parametrize("name", ["cumm", "flash-attn", "spconv"])
def test_what_takes_hours_is_given_them(name: str) -> None:
    assert RECIPES[name].fields["timeout"] >= 12 * 60 * 60


def test_a_job_of_flash_attn_is_given_its_memory() -> None:
    assert RECIPES["flash-attn"].fields["memory_per_job_gb"] >= 5


def test_spconv_is_compiled_with_the_cumm_that_its_wheel_then_accepts() -> None:
    spconv, (_, version) = RECIPES["spconv"], RECIPES["cumm"].arguments
    assert spconv.fields["build_requires"] == ["packages/cumm"]
    (patch,) = (PACKAGES / "spconv/patches").iterdir()
    relaxed = parse_header(patch.name, patch.read_text()).relaxes
    assert relaxed and not Requirement(relaxed).specifier.contains(version)
    (accepted,) = re.findall(r"^\+Requires-Dist: (cumm.*)$", patch.read_text(), re.MULTILINE)
    assert Requirement(accepted).specifier.contains(version)


@pytest.mark.parametrize("name", RECIPES)
def test_only_what_does_not_link_torch_is_required_by_what_does_not(name: str) -> None:
    # Otherwise one wheel for every torch would need a wheel of each.
    required = [Path(one).name for one in RECIPES[name].fields.get("build_requires", ())]
    if not RECIPES[name].fields.get("links_torch", True):
        assert not any(RECIPES[one].fields.get("links_torch", True) for one in required)
