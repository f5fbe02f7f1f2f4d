"""What the GPU check says about a process that ends badly; needs no GPU and no torch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from e2e import gpu_check

FACTS = {"device": "D", "capability": "9.0", "driver": "1", "torch": "2", "python": "3"}


def line(error: float, tolerance: float) -> str:
    return gpu_check.MARK + json.dumps({"error": error, "tolerance": tolerance})


@pytest.mark.parametrize(
    ("returncode", "output", "expected"),
    [
        pytest.param(0, line(0.0, 0.0), "runs", id="exact"),
        pytest.param(0, "a warning\n" + line(1e-5, 1e-4), "runs", id="near-enough"),
        pytest.param(0, line(1e-3, 1e-4), "FAILED", id="differs"),
        pytest.param(0, line(float("nan"), 1e-4), "FAILED", id="not-a-number"),
        pytest.param(0, "", "FAILED", id="silent"),
        pytest.param(1, line(0.0, 0.0), "FAILED", id="dies-after-the-result"),
        pytest.param(-6, "CUDA error", "FAILED", id="aborts"),
    ],
)
def test_verdict(returncode: int, output: str, expected: str) -> None:
    assert gpu_check.verdict("p", "c", returncode, output).verdict == expected


def test_a_crash_names_the_signal_and_the_last_line() -> None:
    found = gpu_check.verdict("p", "c", -11, "first\nno kernel image is available")
    assert found.reason == "signal 11: no kernel image is available"


def test_one_check_that_cannot_run_is_one_failure(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os\ndef manual_seed(n): os.abort()\n")
    found = gpu_check.run_check("knn", {"PYTHONPATH": str(tmp_path)})
    assert (found.package, found.verdict) == ("torch_cluster", "FAILED")
    assert (found.reason or "").startswith("signal 6")


def test_table_tells_running_from_missing() -> None:
    results = [
        gpu_check.Result("vecadd", "add", "runs", 0.0, 0.0, "1.0+cu130"),
        gpu_check.Result("flash_attn", "attention", "not installed"),
    ]
    text = gpu_check.table(FACTS, results)
    assert "D, compute capability 9.0" in text
    assert "| vecadd | 1.0+cu130 | add | 0 | 0 | runs |" in text
    assert "| flash_attn |  | attention |  |  | not installed |" in text


def test_without_pip_the_wheels_are_unzipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as package:
        package.writestr("x/__init__.py", "")
    monkeypatch.setattr(gpu_check.importlib.util, "find_spec", lambda name: None)
    assert "no pip" in gpu_check.install([wheel], tmp_path / "target")
    assert (tmp_path / "target/x/__init__.py").is_file()


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        pytest.param([(1.0, 10.0), (1.0, 2.0)], (1.0, 2.0), id="nearest-to-its-tolerance"),
        pytest.param([(9.0, 1.0), (1.0, 0.0)], (1.0, 0.0), id="exactness-missed"),
        pytest.param([(0.0, 0.0), (0.0, 1.0)], (0.0, 0.0), id="all-exact"),
    ],
)
def test_the_worst_of_several_results(
    outcomes: list[tuple[float, float]], worst: tuple[float, float]
) -> None:
    assert gpu_check._worst(gpu_check.Outcome(*one) for one in outcomes) == gpu_check.Outcome(
        *worst
    )


def test_a_result_that_is_no_number_is_the_worst() -> None:
    nan = gpu_check.Outcome(float("nan"), 1.0)
    assert gpu_check._worst([nan, gpu_check.Outcome(0.5, 1.0)]) is nan
