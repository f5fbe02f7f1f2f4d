"""A torch that only the PyTorch index has: locked and installed through a mirror of that index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cuda_wheels.sandbox.testutil import Index, serving, sha256, wheel_bytes
from cuda_wheels.tables.upstreams import PYTORCH_INDEX
from integration.checkout import Checkout

LOCK = "3rdparty/torch/amd64-cpu-torch2.9.1-cp312.txt"
ADDRESS = "tests/fixtures/tiny:amd64-cpu"
TORCH = wheel_bytes("torch", "2.9.1+cpu")
BUILD = """
cuda_source(name="src", source=files_source("."), sources=["setup.py", "*.c"])
cuda_wheel(
    name="amd64-cpu",
    package="tiny",
    version="1.0",
    source=":src",
    arch="amd64",
    accel="cpu",
    torch="2.9.1",
    python="3.12",
    native=False,
    environment="amd64-cpu",
)
"""
# It is built beside the served torch alone, and links a stand-in for one of torch's libraries.
SETUP = """
import subprocess
from importlib.metadata import version

from setuptools import Extension, setup

assert version("torch") == "2.9.1+cpu", version("torch")
subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libc10.so", "c10.c"], check=True)
tiny = Extension("tiny", ["tiny.c"], libraries=["c10"], library_dirs=["."])
setup(name="tiny", version="1.0", ext_modules=[tiny])
"""
SOURCE = """
#include <Python.h>

extern int c10_stand_in(void);

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", NULL, -1, NULL};

PyMODINIT_FUNC PyInit_tiny(void) { return c10_stand_in() ? NULL : PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def mirror() -> Iterator[Index]:
    with serving(Index()) as index:
        index.add("torch", "torch-2.9.1+cpu-py3-none-any.whl", TORCH)
        yield index


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, mirror: Index) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("torch_index")
    environment = {
        # The settings of a session lie there, and the mirror is this test's alone.
        "PANTS_NAMED_CACHES_DIR": str(root / "named_caches"),
        "PANTS_CUDA_WHEELS_SOURCE_MIRRORS": repr({f"{PYTORCH_INDEX}/cpu": mirror.url}),
    }
    with Checkout(root / "checkout", environment) as checkout:
        checkout.write("tests/fixtures/tiny/BUILD", BUILD)
        checkout.write("tests/fixtures/tiny/setup.py", SETUP)
        checkout.write("tests/fixtures/tiny/tiny.c", SOURCE)
        checkout.write("tests/fixtures/tiny/c10.c", "int c10_stand_in(void) { return 0; }")
        (checkout.root / LOCK).unlink(missing_ok=True)
        yield checkout


def test_a_row_without_a_lock_says_where_to_make_it(checkout: Checkout) -> None:
    run = checkout.pants("package", ADDRESS)
    assert run.returncode == 1
    assert f"./pants cuda-lock {ADDRESS}" in run.output
    assert f"reaches {PYTORCH_INDEX}/cpu" in run.output
    assert "[cuda-wheels].source_mirrors" in run.output


def test_the_lock_is_made_and_the_wheel_built_through_the_mirror(
    checkout: Checkout, mirror: Index
) -> None:
    lock = checkout.pants("cuda-lock", ADDRESS)
    assert lock.returncode == 0, "\n" + lock.output
    content = (checkout.root / LOCK).read_text()
    assert f"torch==2.9.1+cpu \\\n    --hash=sha256:{sha256(TORCH)}\n" in content
    assert "://" not in content

    build = checkout.pants("package", ADDRESS)
    assert build.returncode == 0, "\n" + build.output
    assert [wheel.name.split("-")[0] for wheel in checkout.wheels()] == ["tiny"]
    assert any(path.startswith("/files/torch/") for path in mirror.requested)
    for run in (lock, build):
        assert "s3cret" not in run.output


def test_without_the_mirror_the_address_is_named(checkout: Checkout) -> None:
    nowhere = {f"{PYTORCH_INDEX}/cpu": "http://127.0.0.1:9/simple"}
    before = (checkout.root / LOCK).read_text()
    run = checkout.pants(f"--cuda-wheels-source-mirrors={nowhere!r}", "cuda-lock", ADDRESS)
    assert run.returncode == 1
    assert "torch==2.9.1+cpu is not on the package index" in run.output
    assert "http://127.0.0.1:9/simple" in run.output
    assert "Traceback" not in run.output
    assert (checkout.root / LOCK).read_text() == before


def test_a_mirror_that_is_no_text_is_refused(checkout: Checkout) -> None:
    run = checkout.pants(
        "--cuda-wheels-source-mirrors={'https://a.example/': 1}", "cuda-lock", ADDRESS
    )
    assert run.returncode == 1
    assert "source_mirrors` has 1" in run.output
    assert "Traceback" not in run.output
