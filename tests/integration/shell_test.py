"""A shell in place of a compile step, as users open it; nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.checkout import Checkout
from integration.recipes import address, recipe

SOURCE = "/tmp/cuda-wheels/work/source"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with Checkout(tmp_path_factory.mktemp("shell") / "checkout") as checkout:
        checkout.add_fixture("vecadd", recipe("vecadd"))
        yield checkout


def test_a_command_in_place_of_the_compile_step(checkout: Checkout) -> None:
    run = checkout.pants(
        "--cuda-wheels-gpu-archs=9.0",
        "cuda-shell",
        address("vecadd"),
        "--",
        "-c",
        "pwd; env; ls; nvcc --version; command -v build-wheel; exit 3",
        env={"SECRET": "of the user"},
    )
    assert run.returncode == 3, run.output
    lines = run.stdout.splitlines()
    assert lines[0] == SOURCE
    for line in (
        "TORCH_CUDA_ARCH_LIST=9.0",
        "CUDA_VISIBLE_DEVICES=",
        "CUDA_HOME=/tmp/cuda-wheels/work/tools/cuda",
        "PIP_NO_INDEX=1",
        "setup.py",
        "csrc",
        "/tmp/cuda-wheels/work/tools/bin/build-wheel",
    ):
        assert line in lines
    assert any(line.startswith("MAX_JOBS=") for line in lines)
    assert "release 13.0" in run.stdout
    assert "SECRET" not in run.stdout
    # Who reads a command's output reads nothing else.
    assert "A shell in place of the compile step of vecadd 1.0" in run.stderr
    assert "A shell in place" not in run.stdout
    assert not checkout.dist.exists()
    # It is not answered from a cache.
    again = checkout.pants(
        "cuda-shell", address("vecadd"), "--", "-c", "echo $TORCH_CUDA_ARCH_LIST"
    )
    assert again.returncode == 0
    assert "9.0" in again.stdout and "8.0" in again.stdout


def test_a_target_that_is_wrong_opens_no_shell(checkout: Checkout) -> None:
    run = checkout.pants(
        "--cuda-wheels-gpu-archs=5.0", "cuda-shell", address("vecadd"), "--", "-c", "echo opened"
    )
    assert run.returncode == 1
    assert "failed at the stage `check`" in run.output and "5.0" in run.output
    assert "No shell was opened" in run.output
    assert "opened\n" not in run.stdout


def test_one_wheel_is_wanted(checkout: Checkout) -> None:
    for addresses, words in (
        (("tests/fixtures/vecadd:",), "for one `cuda_wheel` target, but was given"),
        (("3rdparty/python::",), "was given no `cuda_wheel` target"),
    ):
        run = checkout.pants("cuda-shell", *addresses)
        assert run.returncode == 1
        assert words in run.output and "Traceback" not in run.output
