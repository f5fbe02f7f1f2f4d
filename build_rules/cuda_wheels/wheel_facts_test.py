from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cuda_wheels.wheel_facts import (
    FactsFormatError,
    LibraryFacts,
    VersionNeed,
    WheelFacts,
    format_text,
    gpu_order,
)

LIBRARY = LibraryFacts(
    path="demo/_cuda.so",
    size=2_500_000,
    machine="x86_64",
    soname="_cuda.so",
    needed=("libcudart.so.13", "libstdc++.so.6"),
    version_needs=(
        VersionNeed("GLIBC", "2.9"),
        VersionNeed("GLIBC", "2.34", ("dlopen", "pthread_once", "pthread_join")),
        VersionNeed("GLIBCXX", "3.4.21", ("_ZNSt5",)),
    ),
    libstdcxx="needed",
    images=(("compute_120", 1), ("sm_90", 3), ("sm_120", 3)),
    build_paths=("/a/1.cu", "/a/2.cu", "/a/3.cu"),
)
FACTS = WheelFacts(
    filename="demo-1.2+cu130-cp312-cp312-manylinux_2_28_x86_64.whl",
    name="demo",
    version="1.2+cu130",
    python_tag="cp312",
    abi_tag="cp312",
    platform_tags=("manylinux_2_28_x86_64",),
    sha256="ab" * 32,
    size=1234,
    wheel_tags=("cp312-cp312-manylinux_2_28_x86_64",),
    record_problems=("demo/x.py is not listed",),
    requires_dist=("torch",),
    policy="linux_x86_64",
    symbol_policy="manylinux_2_34_x86_64",
    unprovided=("libsecret.so.1",),
    grafted=("demo.libs/libx-1a2b3c4d.so.1",),
    bytecode=("demo/__pycache__/x.cpython-312.pyc",),
    libraries=(LIBRARY, LibraryFacts(path="demo/_cpu.so", size=10, machine="x86_64")),
)


def test_json_gives_the_facts_back() -> None:
    assert WheelFacts.from_json(json.loads(json.dumps(FACTS.to_json()))) == FACTS


def test_json_keys_are_sorted_at_every_level() -> None:
    text = json.dumps(FACTS.to_json())
    assert text == json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda doc: doc.update(format=99), id="another format"),
        pytest.param(lambda doc: doc.pop("format"), id="no format"),
        pytest.param(lambda doc: doc.pop("sha256"), id="a field missing"),
        pytest.param(lambda doc: doc.pop("libraries"), id="no libraries"),
        pytest.param(lambda doc: doc.update(surprise=1), id="an unknown field"),
        pytest.param(lambda doc: doc["libraries"][0].pop("images"), id="a library's field missing"),
        pytest.param(lambda doc: doc.update(libraries=3), id="libraries of another kind"),
    ],
)
def test_facts_of_another_layout_are_refused(change: Callable[[dict], Any]) -> None:
    document = json.loads(json.dumps(FACTS.to_json()))
    change(document)
    with pytest.raises(FactsFormatError):
        WheelFacts.from_json(document)


@pytest.mark.parametrize("document", [None, [], "text", {}])
def test_what_is_no_facts_at_all_is_refused(document: Any) -> None:
    with pytest.raises(FactsFormatError):
        WheelFacts.from_json(document)


def test_gpu_code_of_the_whole_wheel() -> None:
    assert FACTS.cubins == ("sm_90", "sm_120")
    assert FACTS.ptx == ("compute_120",)
    assert not FACTS.record_ok


def test_gpu_archs_are_ordered_by_number() -> None:
    archs = ["sm_120", "sm_90a", "compute_90", "sm_90", "sm_75"]
    assert gpu_order(archs) == ("compute_90", "sm_75", "sm_90", "sm_90a", "sm_120")


def test_the_newest_version_is_by_number_not_by_letter() -> None:
    newest = LIBRARY.newest("GLIBC")
    assert newest is not None
    assert newest.name == "GLIBC_2.34"
    assert LIBRARY.newest("CXXABI") is None


def test_the_table_shows_what_was_found() -> None:
    lines = [" ".join(line.split()) for line in format_text(FACTS).splitlines()]
    for expected in (
        "wheel demo-1.2+cu130-cp312-cp312-manylinux_2_28_x86_64.whl (1.2 kB)",
        "distribution demo 1.2+cu130",
        "measured linux_x86_64 (manylinux_2_34_x86_64 by symbol versions); from outside: "
        "libsecret.so.1",
        "GPU code sm_90, sm_120, compute_120",
        "grafted demo.libs/libx-1a2b3c4d.so.1",
        "bytecode 1 files",
        "RECORD demo/x.py is not listed",
        "demo/_cuda.so",
        "machine x86_64, 2.5 MB",
        "versions GLIBC_2.34 (dlopen, pthread_once, ...), GLIBCXX_3.4.21 (_ZNSt5)",
        "GPU code compute_120 x 1, sm_90 x 3, sm_120 x 3",
        "build paths /a/1.cu, /a/2.cu, ...",
        "demo/_cpu.so",
        "GPU code none",
    ):
        assert expected in lines
