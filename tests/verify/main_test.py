"""The commands as a user calls them, without a GPU, an index or a network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.audit import fake_wheelhouse as fake
from verify import host as host_module
from verify import main as tool
from verify.host import Gpu, Host, parse_cuda, parse_driver, parse_query
from verify.testutil import web_server

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
CPU = {"accel": "cpu", "cuda_arch": "", "python": PYTHON}
TORCH = "__version__ = '2.11.0+cpu'\nclass version: cuda = None\n"
TORCH += "class cuda: is_available = staticmethod(lambda: False)\n"


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Host("Linux", "x86_64", "2.35", PYTHON, None, None, (), 100.0, "/c", True)
    monkeypatch.setattr(tool, "read_host", lambda python, folder: at)


def cpu_house(root: Path, **more: Any) -> Path:
    return fake.write_wheelhouse(root, {**CPU, **more}, "cpu.torch2.11.0", "py3")


def links(folder: Path, *, other_torch: bool = False) -> Path:
    """A folder of wheels with torch, and a second torch that a requirement may ask for."""
    folder.mkdir()
    fake.write_wheel(folder, "torch", "2.11.0+cpu", "py3-none-any", {"torch.py": TORCH})
    fake.write_wheel(folder, *fake.LEAF)
    if other_torch:
        fake.write_wheel(folder, "torch", "2.12.0+cpu", "py3-none-any", {"torch.py": TORCH})
    return folder


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any]]:
    code = tool.main([*map(str, argv), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {stage["stage"]: stage["verdict"] for stage in document["stages"]}


def test_doctor_says_what_must_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, "doctor", fake.write_wheelhouse(tmp_path, {"python": PYTHON}))
    assert (code, found["exit_code"]) == (1, 1)
    assert "Install driver 580" in json.dumps(found)
    assert run(capsys, "doctor", cpu_house(tmp_path))[0] == 0
    assert run(capsys, "doctor")[0] == 0


def test_select_in_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.write_wheelhouse(tmp_path, {"python": PYTHON})
    house = cpu_house(tmp_path)
    code, found = run(capsys, "select", tmp_path)
    assert (code, found["wheelhouse"]["path"]) == (0, str(house))
    lines = found["stages"][0]["lines"]
    assert [line["check"] for line in lines] == ["chosen", "rejected"]
    assert "none answers here" in lines[1]["detail"]


def test_select_for_a_gpu_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = fake.write_wheelhouse(tmp_path, {"python": PYTHON})
    two = (Gpu("T4", "7.5"), Gpu("H100", "9.0"))
    at = Host("Linux", "x86_64", "2.35", PYTHON, "580.1", "13.0", two)
    monkeypatch.setattr(tool, "read_host", lambda python, folder: at)
    assert run(capsys, "select", tmp_path)[0] == 1
    code, found = run(capsys, "select", tmp_path, "--gpu", "9.0")
    assert (code, found["wheelhouse"]["path"]) == (0, str(house))


def test_none_and_two_that_are_equally_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.write_wheelhouse(tmp_path / "a")
    assert run(capsys, "select", tmp_path)[0] == 1
    cpu_house(tmp_path / "b")
    cpu_house(tmp_path / "c")
    code, found = run(capsys, "select", tmp_path)
    assert (code, found["wheelhouse"]) == (4, None)


def test_sources_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["select", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert tool.main(["select", str(tmp_path)]) == 2
    assert "There is no wheelhouse" in capsys.readouterr().err
    assert tool.main(["doctor", "--python", "no-such-python"]) == 2
    assert "no program that can be run" in capsys.readouterr().err


def test_check_of_a_whole_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cpu_house(tmp_path)
    house = fake.write_wheelhouse(tmp_path)
    assert run(capsys, "check", tmp_path)[0] == 0
    (house / "requirements-pypi.txt").write_text("x\n")
    code, found = run(capsys, "check", tmp_path)
    assert [stage["verdict"] for stage in found["stages"]] == ["passed", "FAILED"]
    assert code == 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with web_server(tmp_path / "tree") as address:
        yield address


def publish(tree: Path, house: Path, **more: Any) -> None:
    entry = {
        "path": house.relative_to(tree).as_posix(),
        "tags": json.loads((house / "manifest.json").read_text())["tags"],
        "glibc": "2.28",
        "sha256sums": fake.sha256(house / "SHA256SUMS"),
        **more,
    }
    fake.write_json(tree / "index.json", {"schema": 1, "wheelhouses": [entry]})


def test_a_tree_on_a_server(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    house = fake.write_wheelhouse(tree, CPU, "cpu.torch2.11.0", "py3", date="2026.11.30")
    publish(tree, house, date="2026.11.30")
    code, found = run(capsys, "select", server, "--download", tmp_path / "got")
    name = f"linux-amd64/cpu/torch2.11.0-cp{PYTHON.replace('.', '')}/2026.11.30"
    assert (code, found["wheelhouse"]["path"]) == (0, str(tmp_path / "got" / name))
    assert (tmp_path / "got" / name / "SHA256SUMS").is_file()
    assert not list((tmp_path / "got").rglob(".partial-*"))


@pytest.mark.parametrize("lie", ["wheel", "sums", "tags"])
def test_a_server_that_lies(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str], lie: str
) -> None:
    tree = tmp_path / "tree"
    house = cpu_house(tree)
    publish(tree, house)
    assert run(capsys, "select", server, "--download", tmp_path / "good")[0] == 0
    if lie == "wheel":
        next(house.glob("*.whl")).write_bytes(b"other")
    elif lie == "sums":
        publish(tree, house, sha256sums="0" * 64)
    else:
        tags = json.loads((house / "manifest.json").read_text())["tags"]
        publish(tree, house, tags={**tags, "torch": "2.13.0"})
    assert tool.main(["select", server, "--download", str(tmp_path / "got")]) == 2
    assert capsys.readouterr().err
    assert not [*(tmp_path / "got").glob("*")]


@pytest.mark.parametrize("path", ["../outside", "/etc", ""])
def test_an_index_that_leads_elsewhere(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    tree = tmp_path / "tree"
    publish(tree, cpu_house(tree), path=path)
    assert tool.main(["select", server]) == 2
    assert "none inside the tree" in capsys.readouterr().err


def test_all_in_a_fresh_venv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house, venv = cpu_house(tmp_path / "tree"), tmp_path / "venv"
    code, found = run(
        capsys, "all", tmp_path / "tree", "--venv", venv, "--find-links", links(tmp_path / "links")
    )
    # Without a GPU the kernels are not run, and that is no success.
    assert verdicts(found) == {
        "select": "passed",
        "doctor": "passed",
        "check": "passed",
        "install": "passed",
        "import": "FAILED",
        "kernels": "not run",
        "model": "not run",
        "train": "not run",
    }
    assert code == 1
    failed = [
        line for stage in found["stages"] for line in stage["lines"] if line["verdict"] == "FAILED"
    ]
    # The fake spconv has no `spconv.pytorch`; that stops no later stage.
    assert [line["subject"] for line in failed] == ["spconv"]
    # The venv is not fresh any more.
    code, found = run(capsys, "install", house, "--venv", venv)
    assert (code, "there already" in json.dumps(found)) == (1, True)
    # It is used as it is by the stages alone.
    code, found = run(capsys, "import", house, "--venv", venv)
    assert verdicts(found) == {"import": "FAILED"}


def test_a_replaced_torch_fails_the_installation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = cpu_house(tmp_path / "tree")
    wheel = next(house.glob("spconv*"))
    fake.write_wheel(
        house, "spconv", "2.3.8+cpu.torch2.11.0", "py3-none-any", requires=["torch>2.11.5"]
    )
    manifest = json.loads((house / "manifest.json").read_text())
    old = next(one for one in manifest["wheels"] if one["name"] == "spconv")
    text = {old["sha256"]: fake.sha256(wheel), str(old["size"]): str(wheel.stat().st_size)}
    for file in (house / "manifest.json", house / "sbom.cdx.json", *house.rglob("index.*")):
        changed = file.read_text()
        for before, after in text.items():
            changed = changed.replace(before, after)
        file.write_text(changed)
    fake.write_sums(house)
    folder = links(tmp_path / "links", other_torch=True)
    code, found = run(capsys, "all", house, "--venv", tmp_path / "venv", "--find-links", folder)
    assert code == 1
    last = found["stages"][-1]
    # Nothing runs after an installation that failed.
    assert (last["stage"], last["lines"][-1]["check"]) == ("install", "was not replaced")
    assert "is 2.12.0+cpu now" in last["lines"][-1]["detail"]


def test_a_wheelhouse_that_lies_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = cpu_house(tmp_path / "tree")
    next(house.glob("*.whl")).write_bytes(b"other")
    code, found = run(capsys, "install", house, "--venv", tmp_path / "venv")
    assert (code, (tmp_path / "venv").exists()) == (1, False)
    assert "SHA256SUMS says" in json.dumps(found)


def test_in_place_changes_nothing_of_the_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, site = cpu_house(tmp_path / "tree"), tmp_path / "site"
    site.mkdir()
    import zipfile

    with zipfile.ZipFile(next(links(tmp_path / "links").glob("torch*"))) as archive:
        archive.extractall(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    code, found = run(capsys, "install", house, "--in-place", "--venv", tmp_path / "beside")
    assert (code, verdicts(found)) == (0, {"install": "passed"})
    assert (tmp_path / "beside/torch_scatter.py").is_file()
    assert sorted(one.name for one in site.iterdir()) == ["torch-2.11.0+cpu.dist-info", "torch.py"]
    monkeypatch.delenv("PYTHONPATH")
    code, found = run(capsys, "install", house, "--in-place")
    assert (code, "The wheels are for torch 2.11.0" in json.dumps(found)) == (1, True)


def test_human_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert tool.main(["check", str(cpu_house(tmp_path)), "--json-file", str(report)]) == 0
    assert "check: passed" in capsys.readouterr().out
    assert json.loads(report.read_text())["exit_code"] == 0


BANNERS = {
    "450": "| NVIDIA-SMI 450.248.02    Driver Version: 450.248.02    CUDA Version: 11.0     |",
    "580": "| NVIDIA-SMI 580.95.05     Driver Version: 580.95.05     CUDA Version: 13.0     |",
    "no libcuda": "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: N/A  |",
}


def test_what_nvidia_smi_prints() -> None:
    assert [parse_cuda(banner) for banner in BANNERS.values()] == ["11.0", "13.0", None]
    assert parse_driver(BANNERS["450"]) == "450.248.02"
    two = "Tesla T4, 7.5, 580.95.05\nNVIDIA A100-SXM4-80GB, 8.0, 580.95.05\n"
    expected = (Gpu("Tesla T4", "7.5"), Gpu("NVIDIA A100-SXM4-80GB", "8.0"))
    assert parse_query(two) == ("580.95.05", expected)
    assert parse_query('Field "compute_cap" is not a valid field to query.\n') == (None, ())
    assert parse_query("") == (None, ())


def test_this_host_can_be_read(tmp_path: Path) -> None:
    found = host_module.read_host(Path(sys.executable), tmp_path / "not/there/yet")
    assert (found.system, found.python) == ("Linux", PYTHON)
    assert found.disk_free_gb is not None


def test_a_program_that_is_no_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "read_host", host_module.read_host)
    stand_in = tmp_path / "python3.12"
    stand_in.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    stand_in.chmod(0o755)
    assert tool.main(["doctor", "--python", str(stand_in)]) == 2
    assert "does not run as a Python" in capsys.readouterr().err


def test_a_torch_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house, empty = cpu_house(tmp_path / "tree"), tmp_path / "empty"
    empty.mkdir()
    code, found = run(capsys, "install", house, "--venv", tmp_path / "venv", "--find-links", empty)
    last = found["stages"][-1]["lines"][-1]
    assert (code, last["subject"]) == (1, "torch")
    assert f"asked of {empty}. `--torch-index`" in last["detail"]
