"""What runs again after a change, by the names of the processes that ran and by the counters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.checkout import Checkout, Run
from integration.recipes import address, comment_patch, recipe

# Each package, and those that require its wheel while they are compiled.
PACKAGES = {"alpha": ("gamma",), "beta": (), "gamma": ()}
STAGES = ["Patch", "Compile", "Repair", "Inspect"]
# Told of the host in every session, and never cached.
EVERY_SESSION = "Look at the toolchain"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with Checkout(tmp_path_factory.mktemp("caching") / "checkout") as checkout:
        _add_packages(checkout)
        yield checkout


def _add_packages(checkout: Checkout) -> None:
    for package in PACKAGES:
        required = [f"tests/fixtures/{p}" for p, users in PACKAGES.items() if package in users]
        fields = f'output_path="{package}", build_requires={required}'
        directory = checkout.add_fixture("vecadd", recipe("vecadd", more=fields))
        directory.rename(directory.with_name(package))
        _patch(checkout, package)


def _patch(checkout: Checkout, package: str) -> None:
    # Never the same twice, so that no earlier run's result answers.
    checkout.write(
        f"tests/fixtures/{package}/patches/0001-comment.patch",
        comment_patch(f"{package} {uuid.uuid4()}"),
    )


def _package(checkout: Checkout) -> Run:
    run = checkout.pants(
        "--cuda-wheels-gpu-archs=9.0", "package", *(address(name) for name in PACKAGES)
    )
    assert run.returncode == 0, "\n" + run.output
    return run


def _of(run: Run, package: str) -> list[str]:
    return [name for name in run.processes if f"fixtures/{package}:" in name]


def test_exactly_what_depends_on_a_patch_is_rebuilt(checkout: Checkout) -> None:
    first = _package(checkout)
    for package in PACKAGES:
        assert [name.split()[0] for name in _of(first, package)] == STAGES

    unchanged = _package(checkout)
    assert unchanged.processes == [EVERY_SESSION]
    assert unchanged.counters["local_cache_requests_cached"] == 0

    checkout.stop_pantsd()
    restarted = _package(checkout)
    assert restarted.processes == [EVERY_SESSION]
    # Every stage of both wheels was answered from the store.
    assert restarted.counters["local_cache_requests_cached"] >= len(STAGES) * len(PACKAGES)

    for changed, users in PACKAGES.items():
        _patch(checkout, changed)
        run = _package(checkout)
        assert [name.split()[0] for name in _of(run, changed)] == STAGES
        for user in users:
            # Its own tree is the old one, and here the new wheel changes none of its bytes.
            assert [name.split()[0] for name in _of(run, user)] == ["Compile"]
        ran = {name for package in (changed, *users) for name in _of(run, package)}
        assert set(run.processes) == {EVERY_SESSION, *ran}


def _addresses(checkout: Checkout, *arguments: str) -> set[str]:
    run = checkout.pants(*arguments)
    assert run.returncode == 0, "\n" + run.output
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("package", "rebuilt"), [("cumm", ("cumm", "spconv")), ("spconv", ("spconv",))]
)
def test_a_patch_of_a_recipe_reaches_its_wheels_and_those_that_require_them(
    checkout: Checkout, package: str, rebuilt: tuple[str, ...]
) -> None:
    patch = next((checkout.root / "packages" / package / "patches").iterdir())
    reached = _addresses(
        checkout, "dependents", "--transitive", str(patch.relative_to(checkout.root))
    )
    wheels = _addresses(
        checkout, "--filter-target-type=cuda_wheel", "list", *(f"packages/{p}:" for p in rebuilt)
    )
    assert f"packages/{package}:amd64-cu130" in wheels
    # What else there is are the wheelhouses that these are in.
    assert {one for one in reached if one.startswith("packages/")} == wheels


def test_the_log_is_named_before_it_is_written(checkout: Checkout) -> None:
    _patch(checkout, "beta")
    run = _package(checkout)
    (line,) = [line for line in run.output.splitlines() if "tail -f" in line]
    log = Path(line.split("tail -f ")[1].strip())
    assert "vecadd 1.0" in log.read_text()
    assert run.output.index(line) < run.output.index("Starting: Compile")
