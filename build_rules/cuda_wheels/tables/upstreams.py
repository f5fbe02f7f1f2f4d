"""Addresses of what is not on the package index: the only place where they stand."""

from __future__ import annotations

from cuda_wheels.tables.accelerators import find_accelerator

PYTORCH_INDEX = "https://download.pytorch.org/whl"
PYG_INDEX = "https://data.pyg.org/whl"
GITHUB = "https://github.com/"


def torch_index(accel: str) -> str:
    """The PyTorch index with the torch wheels for an accelerator."""
    found = find_accelerator(accel)
    return f"{PYTORCH_INDEX}/{found.torch_index if found else accel}"


def pyg_page(torch: str, accel: str) -> str:
    """The page with PyG's wheels for a torch release and an accelerator."""
    return f"{PYG_INDEX}/torch-{torch}+{accel}.html"


def github(repository: str) -> str:
    """The clone address of `owner/name`."""
    return f"{GITHUB}{repository}.git"
