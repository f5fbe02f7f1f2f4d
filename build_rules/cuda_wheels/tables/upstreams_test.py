from __future__ import annotations

import pytest

from cuda_wheels.tables.upstreams import (
    GITHUB,
    PYG_INDEX,
    PYTORCH_INDEX,
    github,
    pyg_page,
    torch_index,
)


@pytest.mark.parametrize(
    "accel, folder",
    [("cu126", "cu126"), ("cu130", "cu130"), ("cu131", "cu130"), ("cpu", "cpu")],
)
def test_torch_index(accel: str, folder: str) -> None:
    assert torch_index(accel) == f"{PYTORCH_INDEX}/{folder}"


def test_pyg_page() -> None:
    assert pyg_page("2.9.1", "cu130") == f"{PYG_INDEX}/torch-2.9.1+cu130.html"


def test_github() -> None:
    assert github("owner/name") == f"{GITHUB}owner/name.git"
