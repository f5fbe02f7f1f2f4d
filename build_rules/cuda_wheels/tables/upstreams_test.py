from __future__ import annotations

import pytest

from cuda_wheels.tables.upstreams import PYTORCH_INDEX, torch_index


@pytest.mark.parametrize(
    "accel, folder",
    [("cu126", "cu126"), ("cu130", "cu130"), ("cu131", "cu130"), ("cpu", "cpu")],
)
def test_torch_index(accel: str, folder: str) -> None:
    assert torch_index(accel) == f"{PYTORCH_INDEX}/{folder}"
