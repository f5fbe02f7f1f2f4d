from __future__ import annotations

import pytest

from cuda_wheels.tables.jobs import job_count


@pytest.mark.parametrize(
    "cores, available_gb, memory_per_job_gb, jobs",
    [
        # The cores decide.
        (2, 22.0, 3.0, 2),
        (8, 128.0, 3.0, 8),
        (20, 100.0, 3.0, 20),
        # The memory decides: flash-attn, 5 GB a job with one nvcc thread, 9 GB with four.
        (16, 30.0, 5.0, 6),
        (16, 30.0, 9.0, 3),
        (96, 180.0, 5.0, 36),
        (64, 14.9, 5.0, 2),
        (16, 13.5, 2.5, 5),
        # Never less than one, however little there is.
        (16, 4.0, 5.0, 1),
        (16, 0.0, 5.0, 1),
        (16, -1.0, 5.0, 1),
        (0, 64.0, 3.0, 1),
        (1, 64.0, 3.0, 1),
    ],
)
def test_job_count(cores: int, available_gb: float, memory_per_job_gb: float, jobs: int) -> None:
    assert job_count(cores, available_gb, memory_per_job_gb) == jobs
