"""Addresses of what is not on the package index: the only place where they stand."""

from __future__ import annotations

from cuda_wheels.tables.accelerators import find_accelerator

PYTORCH_INDEX = "https://download.pytorch.org/whl"


def torch_index(accel: str) -> str:
    """The PyTorch index with the torch wheels for an accelerator."""
    found = find_accelerator(accel)
    return f"{PYTORCH_INDEX}/{found.torch_index if found else accel}"
