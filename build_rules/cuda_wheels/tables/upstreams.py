"""Addresses of what is not on the package index: the only place where they stand."""

from __future__ import annotations

import re
from typing import Any

from cuda_wheels.tables.accelerators import ACCELERATORS, find_accelerator

PYTORCH_INDEX = "https://download.pytorch.org/whl"
PYG_INDEX = "https://data.pyg.org/whl"
GITHUB = "https://github.com"


def torch_index(accel: str) -> str:
    """The PyTorch index with the torch wheels for an accelerator."""
    found = find_accelerator(accel)
    return f"{PYTORCH_INDEX}/{found.torch_index if found else accel}"


def pyg_index(torch: str, accel: str) -> str:
    """The page of PyG's index that lists its wheels for a torch release and an accelerator."""
    found = find_accelerator(accel)
    return f"{PYG_INDEX}/torch-{torch}+{found.torch_index if found else accel}.html"


def github(repository: Any) -> str:
    """The address of a repository there, `"owner/name"`; `github_problem` judges the result.

    BUILD files call it, so it raises nothing: see `cuda_wheels.sources`.
    """
    return f"{GITHUB}/{repository}"


def github_problem(url: str) -> str | None:
    """Why an address of that host is not one of a repository; None for all others."""
    if not url.startswith(f"{GITHUB}/"):
        return None
    repository = url[len(GITHUB) + 1 :]
    if re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+/?", repository):
        return None
    return f'{repository!r} is no repository: write `github("OWNER/NAME")`.'


def torch_indexes() -> dict[str, str]:
    """Local version of a torch wheel, such as `cu126`, -> the PyTorch index that has it."""
    return {accel.torch_index: torch_index(accel.name) for accel in ACCELERATORS}
