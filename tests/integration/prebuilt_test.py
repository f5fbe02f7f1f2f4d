"""Upstream wheels that stand in for compiled ones, and those that do not.

They are wheels that were just built here, served on a page of links like PyG's, and one made by
hand. What is compiled instead is the same package each time, so that it is compiled once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuda_wheels.sandbox.wheel_testutil import ONCE, library, members_of, pack
from cuda_wheels.tables.upstreams import PYG_INDEX, pyg_index
from integration.checkout import FIXTURES, Checkout, Run, shared_cache

VERSION = "1.0+cu130.torch2.11.0"
OTHER_TORCH = "1.0+pt29cu130"
NEW_GLIBC = "1.0+pt211cu130"
WRONG = "0" * 64
UNREACHABLE = "http://127.0.0.1:9/"
OFF = "--no-cuda-wheels-prefer-prebuilt"

SOURCES = """
cuda_source(
    name="src",
    source=files_source("."),
    sources=["setup.py", "csrc/*", "vecadd/*.py"],
)
"""


@dataclass(frozen=True)
class Upstream:
    """What is served: the page's folder, and the sha256 of each wheel by its version."""

    folder: Path
    pins: dict[str, str]


def wheel_target(name: str, **fields: Any) -> str:
    """A wheel of vecadd with its own place below `dist`, as BUILD files have it."""
    values = {
        "name": name,
        "package": "vecadd",
        "version": "1.0",
        "source": ":src",
        "arch": "amd64",
        "accel": "cu130",
        "torch": "2.11.0",
        "cuda_arch": ["9.0"],
        "environment": "amd64-cu130",
        "memory_per_job_gb": 2.0,
        "output_path": name,
    }
    prebuilt = fields.pop("prebuilt", None)
    text = "".join(f"    {key}={value!r},\n" for key, value in {**values, **fields}.items())
    if prebuilt:
        version, sha256 = prebuilt
        text += (
            f'    prebuilt=prebuilt_wheel("vecadd", "{version}", sha256="{sha256}", index="pyg"),\n'
        )
    return f"cuda_wheel(\n{text})\n"


def address(name: str) -> str:
    return f"{FIXTURES}/vecadd:{name}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("prebuilt")
    with Checkout(root / "checkout", shared_cache(root)) as checkout:
        yield checkout


@pytest.fixture(scope="module")
def upstream(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    checkout.add_fixture("vecadd", SOURCES + wheel_target("plain"))
    run = checkout.pants("package", address("plain"))
    assert run.returncode == 0, "\n" + run.output
    (built,) = (checkout.dist / "plain").glob("*.whl")
    folder = tmp_path_factory.mktemp("pages")
    code = {name: data for name, data in members_of(built).items() if ".dist-info/" not in name}
    once = library(folder / "once.so", ONCE, language="c++")
    wheels = {
        VERSION: Path(shutil.copy(built, folder)),
        OTHER_TORCH: pack(folder, code, name="vecadd", version=OTHER_TORCH),
        NEW_GLIBC: pack(folder, {"vecadd/once.so": once}, name="vecadd", version=NEW_GLIBC),
    }
    links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>\n' for wheel in wheels.values())
    (folder / pyg_index("2.11.0", "cu130").rsplit("/", 1)[1]).write_text(links)
    pins = {
        version: hashlib.sha256(wheel.read_bytes()).hexdigest() for version, wheel in wheels.items()
    }
    return Upstream(folder, pins)


def mirror(place: str) -> str:
    return f"--cuda-wheels-source-mirrors={{'{PYG_INDEX}/': '{place}'}}"


@pytest.fixture(scope="module")
def run(checkout: Checkout, upstream: Upstream) -> Run:
    pins = {version: (version, sha256) for version, sha256 in upstream.pins.items()}
    targets = {
        "good": wheel_target("good", prebuilt=pins[VERSION]),
        "torch": wheel_target("torch", prebuilt=pins[OTHER_TORCH]),
        "glibc": wheel_target("glibc", prebuilt=pins[NEW_GLIBC]),
        # What has no source that compiles shows that the prebuilt was not taken.
        "archs": wheel_target(
            "archs", prebuilt=pins[VERSION], source=":nothing", cuda_arch=["8.0", "9.0"]
        ),
        "pin": wheel_target("pin", prebuilt=(VERSION, WRONG)),
        "base": wheel_target("base", prebuilt=pins[VERSION]),
        "user": wheel_target(
            "user", prebuilt=pins[OTHER_TORCH], source=":nothing", build_requires=[":base"]
        ),
    }
    nothing = 'cuda_source(name="nothing", source=files_source("vecadd"), sources=["vecadd/*"])\n'
    checkout.write(f"{FIXTURES}/vecadd/BUILD", SOURCES + nothing + "".join(targets.values()))
    run = checkout.pants(
        "--cuda-wheels-prefer-prebuilt",
        mirror(f"{upstream.folder.as_uri()}/"),
        "cuda-build",
        *map(address, targets),
    )
    assert run.stdout, "\n" + run.output
    return run


def facts(checkout: Checkout, name: str) -> dict[str, Any]:
    (file,) = (checkout.dist / name).glob("*.facts.json")
    return dict(json.loads(file.read_text()))


def table(run: Run, name: str) -> list[str]:
    """The line of a wheel in the closing table, and the reasons below it."""
    lines = run.stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{address(name)} "))
    end = start + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    return lines[start:end]


def test_a_prebuilt_stands_in(checkout: Checkout, upstream: Upstream, run: Run) -> None:
    assert "Traceback" not in run.output
    (line,) = table(run, "good")
    assert line.split()[1:] == [
        "prebuilt",
        f"vecadd-{VERSION}-cp312-cp312-manylinux_2_28_x86_64.whl",
    ]
    found = facts(checkout, "good")
    assert found["origin"] == "prebuilt" and "compile" not in found
    assert found["wheel"]["version"] == VERSION
    assert found["prebuilt"]["sha256"] == upstream.pins[VERSION]
    assert found["prebuilt"]["file"].startswith(f"vecadd-{VERSION}-cp312")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch", ("torch 2.11.0 of cu130", "torch 2.9 of cu130")),
        ("glibc", ("manylinux_2_28_x86_64", "GLIBC_2.34", "pthread_once")),
    ],
)
def test_what_does_not_is_compiled_and_its_facts_say_why(
    checkout: Checkout, run: Run, name: str, words: tuple[str, ...]
) -> None:
    line, reason = table(run, name)
    assert line.split()[1] == "built"
    found = facts(checkout, name)
    assert found["origin"] == "compiled" and found["compile"]["jobs"]
    assert found["prebuilt"]["file"].startswith("vecadd-1.0+pt")
    (written,) = found["prebuilt"]["reasons"]
    assert reason.endswith(written)
    for word in words:
        assert word in written


def test_gpu_code_that_does_not_serve_the_row(run: Run) -> None:
    line, reason = table(run, "archs")
    assert line.split()[1:] == ["failed", "(compile)"]
    assert "sm_90" in reason and "do not serve 8.0" in reason


def test_a_pin_that_does_not_match_is_an_error(run: Run, upstream: Upstream) -> None:
    (line,) = table(run, "pin")
    assert line.split()[1:] == ["failed", "(prebuilt)"]
    error = run.output[run.output.index(f"{address('pin')} failed") :].split("\n\n")[0]
    assert WRONG in error and upstream.pins[VERSION] in error and OFF in error


def test_wheels_that_are_built_with_one_another_are_taken_together(run: Run) -> None:
    base, reason = table(run, "base")
    assert base.split()[1] == "built"
    assert f"{address('user')} is compiled: declared torch" in reason
    user, own = table(run, "user")
    assert user.split()[1:] == ["failed", "(compile)"] and "torch 2.9" in own


def test_an_index_out_of_reach_is_an_error(checkout: Checkout, run: Run) -> None:
    # The hash of another target: what was fetched once is not asked for again.
    out = checkout.pants(
        "--cuda-wheels-prefer-prebuilt", mirror(UNREACHABLE), "package", address("pin")
    )
    assert out.returncode == 1
    assert "127.0.0.1:9" in out.output and OFF in out.output and "source_mirrors" in out.output
    assert "Traceback" not in out.output


def test_without_the_option_nothing_of_it_is_in_a_key(checkout: Checkout, run: Run) -> None:
    out = checkout.pants("package", address("good"))
    assert out.returncode == 0, "\n" + out.output
    assert [name for name in out.processes if "toolchain" not in name] == []
    assert facts(checkout, "good")["origin"] == "compiled"
