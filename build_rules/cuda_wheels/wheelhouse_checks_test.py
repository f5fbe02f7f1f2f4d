from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cuda_wheels.tables.rows import Row
from cuda_wheels.wheel_facts import LibraryFacts, WheelFacts
from cuda_wheels.wheelhouse_checks import (
    requirements_problems,
    row_mismatches,
    set_problems,
    twins,
)
from cuda_wheels.wheelhouse_manifest import (
    HouseWheel,
    folder,
    manifest_document,
    measured_glibc,
    tags_document,
)

ROW = Row("amd64", "cu130", "2.11.0", "3.12", ("8.0", "9.0"))
LIBRARY = LibraryFacts(
    path="thing/_C.so",
    size=1,
    machine="x86_64",
    needed=("libcudart.so.13",),
    images=(("sm_90", 1),),
)
PINS = {"pccm": "0.4.16", "numpy": "2.5.5"}


def wheel(package: str, version: str = "1.0", **changes: Any) -> HouseWheel:
    """A finished wheel; `changes` are fields of its facts, of its document or of itself."""
    document = {
        "origin": "compiled",
        "source": f"sdist {package}",
        "toolchain": {"identity": "a" * 64, "local": True},
        "compile": {"gcc": "12.2.0", "nvcc": "13.0.88", "jobs": 2, "ccache": {"hits": 1}},
        "gpu_archs": ["8.0", "9.0"],
        **changes.pop("document", {}),
    }
    facts = WheelFacts(
        filename=f"{package}-{version}-cp312-cp312-manylinux_2_28_x86_64.whl",
        name=package,
        version=version,
        python_tag="cp312",
        abi_tag="cp312",
        platform_tags=("manylinux_2_28_x86_64",),
        sha256="ab" * 32,
        size=3,
        symbol_policy="manylinux_2_24_x86_64",
        libraries=(LIBRARY,),
    )
    values: dict[str, Any] = {
        "address": f"packages/{package}:x",
        "package": package,
        "version": version,
        "row": ROW,
        "native": True,
        "build_requires": (),
        "facts": replace(facts, **changes.pop("facts", {})),
        "document": document,
        **changes,
    }
    return HouseWheel(**values)


CUMM = wheel("cumm", "0.8.2+cu130")
SPCONV = wheel(
    "spconv",
    "2.3.8+cu130",
    build_requires=("packages/cumm:x",),
    facts={"requires_dist": ("cumm<0.9.0,>=0.7.11", "pccm (>=0.4.16)", "yarl<0; extra == 'x'")},
)


def test_wheels_that_go_together() -> None:
    assert set_problems(ROW, (CUMM, SPCONV), PINS) == ()


def test_without_a_lock_the_installer_resolves_what_wheels_require() -> None:
    assert set_problems(ROW, (wheel("a", facts={"requires_dist": ("scipy",)}),), {}) == ()


@pytest.mark.parametrize(
    ("wheels", "words"),
    [
        pytest.param(
            (CUMM, replace(CUMM, address="packages/b:x")),
            ("packages/b:x", "packages/cumm:x", "two wheels of cumm"),
            id="two of one distribution",
        ),
        pytest.param(
            (wheel("a", facts={"libraries": (replace(LIBRARY, needed=("libcudart.so.12",)),)}),),
            ("packages/a:x", "libcudart.so.12", "CUDA 12's", "cu130"),
            id="another CUDA",
        ),
        pytest.param(
            (CUMM, replace(SPCONV, document={**SPCONV.document, "toolchain": {"identity": "b"}})),
            ("packages/spconv:x", "packages/cumm:x", "aaaaaaaaaaaa", "two toolchains"),
            id="two toolchains",
        ),
        pytest.param(
            (CUMM, replace(SPCONV, document={"origin": "prebuilt", "source": "x"})),
            ("packages/spconv:x by upstream's", "gcc 12.2.0"),
            id="one prebuilt, one compiled",
        ),
        pytest.param(
            (CUMM, replace(SPCONV, facts=replace(SPCONV.facts, requires_dist=("cumm<0.8.0",)))),
            ("`cumm<0.8.0`", "cumm 0.8.2+cu130", "Relaxes"),
            id="a requirement that the set does not meet",
        ),
        pytest.param(
            (wheel("a", facts={"requires_dist": ("NumPy[x] (<2)",)}),),
            ("NumPy 2.5.5",),
            id="a requirement that a pin does not meet",
        ),
        pytest.param(
            (wheel("a", facts={"requires_dist": ("torch<2.11",)}),),
            ("torch 2.11.0",),
            id="a requirement that torch does not meet",
        ),
        pytest.param((wheel("pccm"),), ("`requirements` pins", "0.4.16"), id="pinned too"),
        pytest.param(
            (wheel("torch-sparse", facts={"requires_dist": ("scipy",)}),),
            ("packages/torch-sparse:x requires `scipy`", "lock pypi"),
            id="a requirement that is not locked",
        ),
    ],
)
def test_wheels_that_do_not_go_together(
    wheels: tuple[HouseWheel, ...], words: tuple[str, ...]
) -> None:
    (problem,) = set_problems(ROW, wheels, PINS)
    for word in words:
        assert word in problem


def test_all_faults_of_a_set_are_told_at_once() -> None:
    wrong = wheel("pccm", facts={"requires_dist": ("torch<2", "numpy<1")})
    assert len(set_problems(ROW, (CUMM, replace(CUMM, address="y"), wrong), PINS)) == 4


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (replace(ROW, torch=None), ()),
        (replace(ROW, torch="2.9.1"), ("torch2.9.1", "torch2.11.0")),
        (replace(ROW, arch="arm64"), ("arm64-cu130",)),
        (replace(ROW, accel="cu128", torch=None), ("amd64-cu128-cp312",)),
        (replace(ROW, python="3.11"), ("cp311",)),
        (replace(ROW, cuda_arch=("9.0",)), ("9.0", "8.0 9.0", "`cuda_arch`")),
    ],
)
def test_a_wheel_of_another_row(row: Row, words: tuple[str, ...]) -> None:
    problems = row_mismatches("a:x", row, ROW)
    assert bool(problems) == bool(words)
    for word in words:
        assert word in problems[0]


def test_names_of_one_distribution() -> None:
    (problem,) = twins({"a:x": "torch_scatter", "b:x": "torch-scatter", "c:x": "other"})
    assert "a:x, b:x" in problem


def test_a_lock_of_pure_packages() -> None:
    lock = "pccm==0.4.16 \\\n    --hash=sha256:ab\n# Why.\nNum_Py==2.5 --hash=sha256:cd\n"
    assert requirements_problems("l.txt", lock) == ()
    (problem,) = requirements_problems("l.txt", lock + "yarl==1\n")
    assert "yarl" in problem and "hash" in problem
    (problem,) = requirements_problems("l.txt", "pccm\n")
    assert "pins nothing" in problem


def test_the_folder_names_the_row() -> None:
    assert folder(ROW) == "linux-amd64/cu130/torch2.11.0-cp312"
    assert folder(replace(ROW, torch="2.9.1")) != folder(ROW)


def test_tags_name_only_what_every_wheel_serves() -> None:
    whole, narrow = wheel("a"), wheel("b", document={"gpu_archs": ["9.0"]})
    assert tags_document(ROW, [whole])["cuda_arch"] == "8.0 9.0"
    assert tags_document(ROW, [whole, narrow]) == {
        "os": "linux",
        "arch": "amd64",
        "accel": "cu130",
        "torch": "2.11.0",
        "python": "3.12",
        "cuda_arch": "9.0",
        "verified": {"9.0": "built"},
    }
    # It has no device code, so no GPU asks for it.
    host = replace(narrow, native=False)
    assert tags_document(ROW, [whole, host])["cuda_arch"] == "8.0 9.0"


def test_tags_say_runs_where_all_ran() -> None:
    ran = wheel("torch-scatter", "2.1.2")
    assert tags_document(ROW, [ran])["verified"] == {"8.0": "built", "9.0": "runs"}
    assert set(tags_document(ROW, [ran, CUMM])["verified"].values()) == {"built"}


def test_the_manifest() -> None:
    manifest = manifest_document(
        ROW,
        [
            SPCONV,
            replace(
                CUMM,
                facts=replace(CUMM.facts, platform_tags=("manylinux_2_34_x86_64",)),
                document={
                    **CUMM.document,
                    "lock": "l.txt",
                    "lock_sha256": "cd",
                    "env": {"A": "1"},
                    "patches": ["0001-x.patch"],
                    "pin_relaxations": [{"patch": "0001-x.patch", "reason": "y"}],
                },
            ),
        ],
        skipped=[("flash-attn", "No kernels.")],
        failed=[("pointops", "compile", "* It failed.\n/home/me/log: line 1")],
    )
    assert (manifest["schema"], manifest["glibc"], manifest["local"]) == (1, "2.34", True)
    assert set(manifest["tags"]) == {"os", "arch", "accel", "torch", "python", "cuda_arch"}
    assert manifest["skipped"] == [{"package": "flash-attn", "reason": "No kernels."}]
    assert manifest["failed"] == [
        {"package": "pointops", "stage": "compile", "message": "It failed."}
    ]
    first, second = manifest["wheels"]
    assert (first["name"], second["name"]) == ("cumm", "spconv")
    assert first["toolchain"] == {
        "identity": "a" * 64,
        "gcc": "12.2.0",
        "nvcc": "13.0.88",
        "network": None,
        "build_path": None,
    }
    assert first["gpu_archs"] == {"asked": ["8.0", "9.0"], "cubins": ["sm_90"], "ptx": []}
    assert (first["lock_sha256"], first["env"], first["glibc"]) == ("cd", {"A": "1"}, "2.24")
    assert first["pin_relaxations"] == [{"patch": "0001-x.patch", "reason": "y"}]


def test_what_differs_from_run_to_run_is_not_in_the_manifest() -> None:
    other = {"jobs": 64, "ccache": {"hits": 0}, "gcc": "12.2.0", "nvcc": "13.0.88"}
    again = replace(CUMM, document={**CUMM.document, "compile": other})
    assert manifest_document(ROW, [CUMM]) == manifest_document(ROW, [again])


def test_a_prebuilt_has_no_toolchain() -> None:
    taken = replace(CUMM, document={"origin": "prebuilt", "source": "prebuilt cumm-cu130"})
    (entry,) = manifest_document(ROW, [taken])["wheels"]
    assert (entry["origin"], entry["toolchain"]) == ("prebuilt", None)


def test_the_glibc_of_a_wheel_without_a_verdict() -> None:
    assert measured_glibc(replace(CUMM.facts, symbol_policy="", libraries=())) is None
