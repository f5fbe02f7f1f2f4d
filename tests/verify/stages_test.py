"""What the stages say of packages that work, are missing, are broken or end their process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from verify import stages
from verify.environment import Ended, Environment
from verify.programs import checks
from verify.report import Line, kernel_table

# A torch that claims a GPU, and cannot compute.
TORCH = """
__version__ = "2.11.0+cu130"
class version: cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: {gpu})
    get_device_name = staticmethod(lambda: "a GPU")
    get_device_capability = staticmethod(lambda: {capability})
def manual_seed(number): pass
"""


def unpack(wheel: Path, into: Path) -> None:
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)


def environment(
    folder: Path,
    packages: dict[str, str],
    capability: str = "(9, 0)",
    gpu: bool = True,
    versions: Mapping[str, str] = {},
) -> Environment:
    """This Python with a fake torch, and with a module of each package that runs the given code."""
    site, wheels = folder / "site", folder / "wheels"
    wheels.mkdir(parents=True)
    code = {"torch": TORCH.format(capability=capability, gpu=gpu), **packages}
    for name, text in code.items():
        version, files = versions.get(name, "1.0"), {f"{name}.py": text}
        unpack(fake.write_wheel(wheels, name, version, "py3-none-any", files), site)
    return Environment(Path(sys.executable), site)


def words(stage: stages.Stage) -> dict[str, tuple[str, str]]:
    return {line.subject: (line.verdict, line.detail) for line in stage.lines}


def test_import_tells_broken_from_missing(tmp_path: Path) -> None:
    broken = "raise ImportError('libcudart.so.13: cannot open shared object file')"
    env = environment(tmp_path, {"torch_scatter": "", "torch_cluster": broken})
    found = stages.imports(env, expected=["torch-scatter", "torch-sparse"])
    assert found.verdict == "FAILED"
    said = words(found)
    assert said["torch"] == ("passed", "")
    assert said["torch-scatter"] == ("passed", "")
    assert said["torch-cluster"][0] == "FAILED" and "libcudart.so.13" in said["torch-cluster"][1]
    assert said["torch-sparse"] == ("FAILED", "not installed")
    assert said["pointops"] == ("not run", "not installed")


def test_torch_comes_first(tmp_path: Path) -> None:
    env = environment(tmp_path, {"pointrope": "import sys; assert 'torch' in sys.modules"})
    assert words(stages.imports(env))["pointrope"][0] == "passed"


@pytest.mark.parametrize(("installed", "named"), [("2.9.1+cu130", True), ("2.11.0+cu130", False)])
def test_a_wheel_for_another_torch_is_told_by_both(
    tmp_path: Path, installed: str, named: bool
) -> None:
    ours = "1.0+cu130.torch2.11.0"
    env = environment(tmp_path, {"pointrope": ""}, versions={"pointrope": ours, "torch": installed})
    # It comes before the file with the ending `.py`, and wants what no library has.
    code = "extern int _ZN3c105ErrorE; int *wanted = &_ZN3c105ErrorE; void *PyInit_pointrope() {}"
    (tmp_path / "stub.c").write_text(code)
    library = str(tmp_path / "site/pointrope.so")
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", "-o", library, str(tmp_path / "stub.c")], check=True
    )
    verdict, detail = words(stages.imports(env))["pointrope"]
    assert verdict == "FAILED" and "undefined symbol: _ZN3c105ErrorE" in detail
    both = "compiled against torch 2.11.0, but torch 2.9.1+cu130 is installed"
    assert (both in detail) == named


def test_an_abort_is_charged_to_one_package(tmp_path: Path) -> None:
    env = environment(
        tmp_path, {"pointrope": "import os; os.abort()", "vecadd": "raise OSError(3)"}
    )
    found = [line for line in stages.kernels(env).lines if line.detail != "not installed"]
    assert [(line.subject, line.verdict) for line in found] == [
        ("pointrope", "FAILED"),
        ("vecadd", "FAILED"),
    ]
    assert found[0].detail.startswith("signal 6")
    assert "OSError: 3" in found[1].detail


def test_without_a_gpu_nothing_is_claimed(tmp_path: Path) -> None:
    env = environment(tmp_path, {"vecadd": ""}, gpu=False)
    kernels = stages.kernels(env)
    assert kernels.verdict == "not run"
    assert words(kernels)["vecadd"] == ("not run", "torch sees no GPU")
    assert stages.train(env).verdict == "not run"


@pytest.mark.parametrize(
    ("package", "capability", "expected"),
    [
        pytest.param("flash-attn", "7.5", "needs capability 8.0", id="flash-attn-on-a-T4"),
        pytest.param("flash-attn", "8.0", "", id="flash-attn-on-an-A100"),
        pytest.param("spconv", "12.1", "Native alone", id="spconv-on-a-GB10"),
        pytest.param("spconv", "10.3", "Native alone", id="spconv-on-a-B300"),
        pytest.param("spconv", "12.0", "", id="spconv-on-an-RTX-5090"),
    ],
)
def test_what_a_gpu_is_not_for(package: str, capability: str, expected: str) -> None:
    found = stages._obstacle(package, "SubMConv3d, MaskImplicitGemm", capability, False)
    assert (expected in found) if expected else not found


def line(error: float, tolerance: float) -> str:
    return checks.MARK + json.dumps({"error": error, "tolerance": tolerance})


@pytest.mark.parametrize(
    ("returncode", "output", "expected"),
    [
        pytest.param(0, line(0.0, 0.0), "passed", id="exact"),
        pytest.param(0, "a warning\n" + line(1e-5, 1e-4), "passed", id="near-enough"),
        pytest.param(0, line(1e-3, 1e-4), "FAILED", id="differs"),
        pytest.param(0, line(float("nan"), 1e-4), "FAILED", id="not-a-number"),
        pytest.param(0, "", "FAILED", id="silent"),
        pytest.param(1, line(0.0, 0.0), "FAILED", id="dies-after-the-result"),
        pytest.param(-6, "CUDA error", "FAILED", id="aborts"),
        pytest.param(None, "", "FAILED", id="hangs"),
    ],
)
def test_verdict(returncode: int | None, output: str, expected: str) -> None:
    found = stages.measured("p", "c", Ended(returncode, output), "1.0", "the results differ")
    assert found.verdict == expected


def test_a_crash_names_the_signal_and_the_last_line() -> None:
    assert Ended(-11, "first\nno kernel image is available").reason == (
        "signal 11: no kernel image is available"
    )


def test_plain_torch_alone_proves_nothing() -> None:
    text = checks.MARK + json.dumps({"error": 0.1, "tolerance": 0.8, "used": []})
    assert stages.measured("network", "c", Ended(0, text), None, "w").verdict == "not run"


def test_the_table_for_documents() -> None:
    facts = {"device": "D", "capability": "9.0", "driver": "1", "torch": "2", "python": "3"}
    text = kernel_table(
        facts,
        [
            Line("vecadd", "add", "passed", "", "1.0+cu130", 0.0, 0.0),
            Line("flash-attn", "attention", "not run", "not installed"),
        ],
    )
    assert "D, compute capability 9.0" in text
    assert "| vecadd | 1.0+cu130 | add | 0 | 0 | runs |" in text
    assert "| flash-attn |  | attention |  |  | not run: not installed |" in text


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
    assert checks._worst(checks.Outcome(*one) for one in outcomes) == checks.Outcome(*worst)


def test_a_result_that_is_no_number_is_the_worst() -> None:
    nan = checks.Outcome(float("nan"), 1.0)
    assert checks._worst([nan, checks.Outcome(0.5, 1.0)]) is nan


def test_every_check_is_of_a_package_that_is_imported_too() -> None:
    assert {one.package for one in checks.CHECKS.values()} <= {*stages.MODULES}
