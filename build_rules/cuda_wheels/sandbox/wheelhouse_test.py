from __future__ import annotations

import hashlib
import json
import os
import subprocess
import uuid
import venv
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from cuda_wheels.audit.wheelhouse import problems
from cuda_wheels.sandbox import wheelhouse
from cuda_wheels.sandbox.wheel_testutil import pack, refusal_of

TAGS = {
    "os": "linux",
    "arch": "amd64",
    "accel": "cu130",
    "torch": "2.11.0",
    "python": "3.12",
    "cuda_arch": "9.0",
}
NAME = "linux-amd64/cu130/torch2.11.0-cp312"
PINS = (
    f"pccm==0.4.16 \\\n    --hash=sha256:{'a' * 64}\nyarl==1.0 \\\n    --hash=sha256:{'b' * 64}\n"
)


def entry(wheel: Path) -> dict[str, Any]:
    """What the manifest says of a wheel."""
    name, version, *_ = wheel.name.split("-")
    content = wheel.read_bytes()
    return {
        "file": wheel.name,
        "name": name,
        "version": version,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "origin": "compiled",
        "source": "sdist",
        "lock_sha256": None,
    }


def manifest(*wheels: Path) -> dict[str, Any]:
    return {"schema": 1, "tags": TAGS, "wheels": [entry(wheel) for wheel in wheels]}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A wheelhouse of two wheels, the second of which requires the first."""
    folder = tmp_path / "a house" / NAME
    # Any Python and platform, so that it installs where the test runs.
    tag = "py3-none-any"
    one = pack(folder, {"one/__init__.py": b""}, name="the_one", version="1.2+cu130.sm90", tag=tag)
    other = pack(
        folder,
        {"two/__init__.py": b""},
        name="Two",
        version="3",
        tag=tag,
        metadata="Requires-Dist: the-one>=1.2\n",
    )
    wheelhouse.write(folder, describe(one, other))
    return folder


def describe(*wheels: Path) -> dict[str, bytes]:
    return wheelhouse.describe(
        NAME,
        manifest(*wheels),
        {**TAGS, "verified": {"9.0": "runs"}},
        requirements=PINS,
        requires={wheels[-1].name: ["the-one>=1.2", "pccm", "torch", "yarl; extra == 'x'"]},
    )


def test_the_audit_of_publishers_and_users_finds_nothing(house: Path) -> None:
    assert problems(house) == ()
    (house / "requirements-pypi.txt").write_text(PINS.replace("0.4.16", "0.4.15"))
    assert len(problems(house)) == 2  # the sums, and the bill of materials


def test_the_files_of_a_wheelhouse(house: Path) -> None:
    found = sorted(str(path.relative_to(house)) for path in house.rglob("*") if path.is_file())
    assert found == [
        "SHA256SUMS",
        "Two-3-py3-none-any.whl",
        "manifest.json",
        "requirements-pypi.txt",
        "sbom.cdx.json",
        "simple/index.html",
        "simple/index.json",
        "simple/the-one/index.html",
        "simple/the-one/index.json",
        "simple/two/index.html",
        "simple/two/index.json",
        "tags.json",
        "the_one-1.2+cu130.sm90-py3-none-any.whl",
    ]
    assert (house / "requirements-pypi.txt").read_text() == PINS
    tags = json.loads((house / "tags.json").read_text())
    assert tags == {**TAGS, "verified": {"9.0": "runs"}}
    text = (house / "manifest.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_the_sums_are_those_that_sha256sum_wants(house: Path) -> None:
    files = {path for path in house.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=house,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(": OK") == len(files)
    wheel = next(house.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(command, cwd=house, capture_output=True, check=False).returncode == 1


def test_equal_wheels_give_equal_bytes(house: Path, tmp_path: Path) -> None:
    wheels = sorted(house.glob("*.whl"), key=lambda path: path.name.lower(), reverse=True)
    elsewhere = [tmp_path / wheel.name for wheel in wheels]
    for wheel, copy in zip(wheels, elsewhere, strict=True):
        copy.write_bytes(wheel.read_bytes())
    assert describe(*wheels) == describe(*elsewhere)
    elsewhere[0].write_bytes(b"x")
    assert describe(*wheels) != describe(*elsewhere)


def test_the_bill_of_materials(house: Path) -> None:
    bom = json.loads((house / "sbom.cdx.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    assert uuid.UUID(bom["serialNumber"]).version == 5
    assert "timestamp" not in bom["metadata"]
    components = {one["name"]: one for one in bom["components"]}
    assert set(components) == {"the_one", "Two", "pccm", "yarl"}
    (wheel,) = house.glob("the_one*")
    assert components["the_one"]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    ]
    requires = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    assert requires["Two-3-py3-none-any.whl"] == ["pccm==0.4.16", wheel.name, "yarl==1.0"]
    assert len(requires["wheelhouse"]) == 4


def test_the_index_as_json(house: Path) -> None:
    index = json.loads((house / "simple/index.json").read_text())
    assert [project["name"] for project in index["projects"]] == ["the-one", "two"]
    page = json.loads((house / "simple/the-one/index.json").read_text())
    assert (page["name"], page["versions"]) == ("the-one", ["1.2+cu130.sm90"])
    (file,) = page["files"]
    assert file["url"] == "../../the_one-1.2%2Bcu130.sm90-py3-none-any.whl"
    content = (house / file["filename"]).read_bytes()
    assert (file["size"], file["hashes"]["sha256"]) == (
        len(content),
        hashlib.sha256(content).hexdigest(),
    )


def sources(house: Path) -> list[list[str]]:
    return [
        ["--no-index", "--find-links", str(house)],
        ["--index-url", (house / "simple").as_uri()],
    ]


def clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "PYTHON"))
    }


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands that install into `--target`, by the name of the installer."""
    folder = tmp_path_factory.mktemp("installers") / "venv"
    venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    pip = [python, "-m", "pip", "install", "--isolated", "--no-cache-dir"]
    uv = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", python]
    return {"pip": [*pip, "--disable-pip-version-check"], "uv": uv}


@pytest.mark.parametrize("way", [0, 1], ids=["find-links", "index"])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installers_take_it(
    house: Path, tmp_path: Path, installers: dict[str, list[str]], installer: str, way: int
) -> None:
    target = tmp_path / "site"
    done = subprocess.run(
        [*installers[installer], *sources(house)[way], "--target", str(target), "two"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"one", "two"} <= {path.name for path in target.iterdir()}


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_swapped_wheel_is_noticed_by_the_index(
    house: Path, tmp_path: Path, installers: dict[str, list[str]], installer: str
) -> None:
    pack(house, {"two/__init__.py": b"evil"}, name="Two", version="3", tag="py3-none-any")
    where = ["--index-url", (house / "simple").as_uri(), "--target", str(tmp_path / "site")]
    done = subprocess.run(
        [*installers[installer], *where, "--no-deps", "two"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


def test_without_pure_packages_there_is_a_file_that_says_so(tmp_path: Path) -> None:
    files = wheelhouse.describe(NAME, manifest(), TAGS)
    assert files["requirements-pypi.txt"].startswith(b"# None")


def test_the_program_names_what_its_request_lacks(tmp_path: Path) -> None:
    assert "manifest" in refusal_of("wheelhouse", tmp_path)
