from __future__ import annotations

import pytest

from cuda_wheels.tables.upstreams import (
    GITHUB,
    PYG_INDEX,
    PYTORCH_INDEX,
    github,
    github_problem,
    pyg_index,
    torch_index,
    torch_indexes,
)


@pytest.mark.parametrize(
    "accel, folder",
    [("cu126", "cu126"), ("cu130", "cu130"), ("cu131", "cu130"), ("cpu", "cpu")],
)
def test_torch_index(accel: str, folder: str) -> None:
    assert torch_index(accel) == f"{PYTORCH_INDEX}/{folder}"


@pytest.mark.parametrize(
    "torch, accel, page",
    [
        ("2.9.1", "cu130", "torch-2.9.1+cu130.html"),
        ("2.11.0", "cu131", "torch-2.11.0+cu130.html"),
        ("2.9.1", "cpu", "torch-2.9.1+cpu.html"),
    ],
)
def test_pyg_index(torch: str, accel: str, page: str) -> None:
    assert pyg_index(torch, accel) == f"{PYG_INDEX}/{page}"


def test_the_address_of_a_repository() -> None:
    assert github("Pointcept/Pointcept") == f"{GITHUB}/Pointcept/Pointcept"
    assert github_problem(github("Pointcept/Pointcept")) is None
    assert github_problem("https://git.example/anything") is None


@pytest.mark.parametrize("repository", ["", "owner", "owner/", "/name", "a/b/c", "a b/c", None])
def test_what_is_no_repository(repository: object) -> None:
    assert "OWNER/NAME" in (github_problem(github(repository)) or "")


def test_torch_indexes_are_named_after_the_local_version_of_their_wheels() -> None:
    indexes = torch_indexes()
    assert indexes["cu126"] == torch_index("cu126")
    assert indexes["cpu"] == torch_index("cpu")
    # No wheel is called +cu131.
    assert "cu131" not in indexes
    assert all(address.endswith(f"/{local}") for local, address in indexes.items())
