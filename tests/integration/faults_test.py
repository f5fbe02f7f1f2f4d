"""Packages with a fault each, built together, and what else users see: no fault is a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.checkout import Checkout, Run
from integration.recipes import TARGET, address, recipe

FAULTY = ("failing", "greedy", "nogpucode", "purewheel")
SDIST = 'archive_source("file://{path}", sha256="{sha256}")'
OTHER_SHA256 = "0" * 64

UNAPPLICABLE_PATCH = """\
Reason: a test of a patch that does not apply.
--- a/setup.py
+++ b/setup.py
@@ -1,2 +1,2 @@
-this line is nowhere
+another
 
"""

# As packages do that name an architecture themselves, whatever they are told.
STRAY_ARCH_PATCH = """\
Reason: a test of device code that the target does not declare.
--- a/setup.py
+++ b/setup.py
@@ -14,3 +14,4 @@
             "vecadd._C",
             sources=["csrc/vecadd.cpp", "csrc/add_kernel.cu", "csrc/scale_kernel.cu"],
+            extra_compile_args={"nvcc": ["-gencode=arch=compute_80,code=sm_80"]},
         )
"""


def _variant(checkout: Checkout, name: str, patch: str) -> None:
    directory = checkout.add_fixture("vecadd", recipe("vecadd"))
    directory.rename(directory.with_name(name))
    checkout.write(f"tests/fixtures/{name}/patches/0001-test.patch", patch)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with Checkout(tmp_path_factory.mktemp("faults") / "checkout") as checkout:
        _add_packages(checkout)
        yield checkout


def _add_packages(checkout: Checkout) -> None:
    for name in FAULTY:
        checkout.add_fixture(name, recipe(name))
    _variant(checkout, "unapplicable", UNAPPLICABLE_PATCH)
    _variant(checkout, "stray_arch", STRAY_ARCH_PATCH)
    archive = checkout.write("archive/vecadd.tar.gz", "not what was pinned")
    wrong_hash = checkout.add_fixture(
        "vecadd", recipe("vecadd", source=SDIST.format(path=archive, sha256=OTHER_SHA256))
    )
    wrong_hash.rename(wrong_hash.with_name("wrong_hash"))
    checkout.add_fixture("vecadd", recipe("vecadd"))


@pytest.fixture(scope="module")
def run(checkout: Checkout) -> Run:
    return checkout.pants(
        "--cuda-wheels-gpu-archs=9.0",
        "cuda-build",
        *(
            address(name)
            for name in (*FAULTY, "unapplicable", "stray_arch", "wrong_hash", "vecadd")
        ),
    )


def _error(run: Run, directory: str) -> str:
    """What was said of one target, and of no other."""
    start = run.output.index(f"{address(directory)} failed at the stage")
    return run.output[start:].split("\n\n")[0]


def test_the_good_wheel_is_written_and_the_command_fails(checkout: Checkout, run: Run) -> None:
    assert run.returncode == 1
    (wheel,) = checkout.wheels()
    assert wheel.name.startswith("vecadd-1.0+cu130.torch2.11.0.sm90-cp312-cp312-manylinux_2_28")
    assert address("vecadd") in run.stdout and " built " in run.stdout
    assert run.stdout.count(" failed ") == 7
    assert "Traceback" not in run.output


def test_the_logs_are_written(checkout: Checkout, run: Run) -> None:
    for name in ("vecadd", "failing"):
        log = checkout.dist / "logs" / f"tests.fixtures.{name}.{TARGET}.log"
        assert name in log.read_text()


@pytest.mark.parametrize(
    ("directory", "stage", "words"),
    [
        ("failing", "compile", ("module.c", "log")),
        ("greedy", "compile", ("memory_per_job_gb", "2 GB each")),
        ("nogpucode", "inspect", ("device code", "sm_90", "FORCE_CUDA")),
        ("purewheel", "inspect", ("py3-none-any",)),
        ("unapplicable", "patch", ("0001-test.patch", "setup.py")),
        ("stray_arch", "inspect", ("sm_80", "sm_90", "_C.cpython-312")),
        ("wrong_hash", "fetch", (OTHER_SHA256, "sha256")),
    ],
)
def test_a_faulty_package(run: Run, directory: str, stage: str, words: tuple[str, ...]) -> None:
    error = _error(run, directory)
    assert f"at the stage `{stage}`" in error
    for word in words:
        assert word in error


def test_a_failure_names_its_log(run: Run) -> None:
    error = _error(run, "failing")
    path = next(word for word in error.split() if word.endswith(".log"))
    assert "module.c" in Path(path).read_text()


def test_an_index_out_of_reach(checkout: Checkout, tmp_path: Path) -> None:
    run = checkout.pants(
        f"--named-caches-dir={tmp_path / 'named'}",
        f"--local-store-dir={tmp_path / 'store'}",
        "--python-repos-indexes=['http://127.0.0.1:9/simple/']",
        "--no-pantsd",
        "package",
        address("vecadd"),
    )
    assert run.returncode == 1
    assert "127.0.0.1:9" in run.output and "[python-repos]" in run.output
    assert "Traceback" not in run.output


def test_package_fails_without_a_traceback(checkout: Checkout) -> None:
    run = checkout.pants("--cuda-wheels-gpu-archs=9.0", "package", address("purewheel"))
    assert run.returncode == 1
    assert "py3-none-any" in run.output
    assert "Traceback" not in run.output


def test_any_wheel_can_be_inspected(checkout: Checkout, run: Run, tmp_path: Path) -> None:
    (wheel,) = checkout.wheels()
    elsewhere = tmp_path / wheel.name
    elsewhere.write_bytes(wheel.read_bytes())
    text = checkout.pants("cuda-inspect", "--", str(elsewhere))
    assert text.returncode == 0, text.output
    assert "sm_90" in text.stdout and "manylinux_2_28_x86_64" in text.stdout
    (facts,) = json.loads(
        checkout.pants("cuda-inspect", "--format=json", "--", str(elsewhere)).stdout
    )
    assert facts["name"] == "vecadd" and facts["contradictions"] == []


def test_a_wheel_of_another_name_or_no_wheel_is_said_to_be_one(
    checkout: Checkout, run: Run, tmp_path: Path
) -> None:
    (wheel,) = checkout.wheels()
    renamed = tmp_path / wheel.name.replace("x86_64", "aarch64")
    renamed.write_bytes(wheel.read_bytes())
    broken = tmp_path / "broken-1.0-py3-none-any.whl"
    broken.write_text("no archive")
    both = checkout.pants("cuda-inspect", "--", str(renamed), str(broken))
    assert both.returncode == 1
    assert "aarch64" in both.stdout and "x86_64" in both.stdout
    assert broken.name in both.output and "Traceback" not in both.output


def test_a_lock_is_written_anew(checkout: Checkout) -> None:
    lock = checkout.root / f"3rdparty/torch/{TARGET}-cp312.txt"
    lock.write_text("# to be replaced\n")
    run = checkout.pants("cuda-lock", address("vecadd"))
    assert run.returncode == 0, run.output
    content = lock.read_text()
    assert "torch==2.11.0 " in content and "--hash=sha256:" in content
    assert "://" not in content


def test_a_goal_without_a_wheel_says_what_it_wants(checkout: Checkout) -> None:
    run = checkout.pants("cuda-build", "3rdparty/python::")
    assert run.returncode == 1
    assert "./pants --filter-target-type=cuda_wheel list packages::" in run.output
