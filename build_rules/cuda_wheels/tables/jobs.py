"""How many compilers run at once."""

from __future__ import annotations


def job_count(concurrency: int, available_gb: float, memory_per_job_gb: float) -> int:
    """As many jobs as there are cores to use and memory for, at least one.

    `available_gb` is what this build may use: its share of what is free and of the cgroup's room.
    One job is started in any case: it may need less than the package's estimate.
    """
    return max(1, min(concurrency, int(available_gb // memory_per_job_gb)))
