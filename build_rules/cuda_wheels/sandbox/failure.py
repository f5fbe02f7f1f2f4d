"""What to say when a build failed: the end of its log, and a cause where one can be told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cuda_wheels.sandbox.machine import Memory

TAIL_LINES = 40
ERROR_LINES = 10

_KILLED = re.compile(
    r"Killed signal terminated program|^Killed$|: Killed\b|signal 9|SIGKILL|exit(ed)? (code|status) "
    r"137|virtual memory exhausted|out of memory allocating|std::bad_alloc|Cannot allocate memory"
    r"|died due to signal 9"
)
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_ERROR = re.compile(r"\berror\s*:|\bError: |^FAILED: ")


@dataclass(frozen=True)
class Plan:
    """How a build was sized: what a hint about memory needs."""

    jobs: int
    concurrency: int
    memory_per_job_gb: float
    memory: Memory

    def __str__(self) -> str:
        limit = "" if self.memory.limited_by == "the machine" else f" in {self.memory.limited_by}"
        return (
            f"jobs={self.jobs} of {self.concurrency} "
            f"({self.memory_per_job_gb:g} GB/job, {self.memory.available_gb:.1f} GB available{limit})"
        )


def hint(returncode: int, lines: Iterable[str], plan: Plan, places: Iterable[Path]) -> str | None:
    """The likely cause of a failure and the way out, or None."""
    lines = list(lines)
    if any(_DISK_FULL.search(line) for line in lines):
        free = ", ".join(f"{p} {shutil.disk_usage(p).free / 1e9:.1f} GB" for p in places)
        return (
            f"Disk full: no space left on device. Free now: {free}.\n"
            "Free some space, or move [GLOBAL].local_execution_root_dir (the sandboxes) or "
            "[GLOBAL].named_caches_dir (ccache, build environments) to a larger disk."
        )
    if returncode in (137, -9) or any(_KILLED.search(line) for line in lines):
        return _memory_hint(plan)
    return None


def _memory_hint(plan: Plan) -> str:
    limit = plan.memory.limited_by
    where = "" if limit == "the machine" else f" The limit is that of the cgroup {limit}: raise it."
    return (
        "A compiler was killed, most likely because memory ran out: the kernel kills the largest "
        f"process.\nThe build ran {plan.jobs} job(s) at once, planned at "
        f"{plan.memory_per_job_gb:g} GB each (`memory_per_job_gb` of the target); "
        f"{plan.memory.available_gb:.1f} GB were free when it started.{where}\n"
        "Raise `memory_per_job_gb` in the target, or lower "
        "[GLOBAL].process_execution_local_parallelism (--process-execution-local-parallelism=N), "
        "or give the machine or container more memory."
    )


def describe(lines: list[str], log: Path, why: str | None, title: str) -> str:
    """The message of a failed build."""
    tail = lines[-TAIL_LINES:]
    earlier = [line for line in lines[:-TAIL_LINES] if _ERROR.search(line)][:ERROR_LINES]
    parts = [title]
    if earlier:
        parts += ["The first errors:", *(f"  {line}" for line in earlier)]
    parts += [f"The last {len(tail)} lines of the log:", *(f"  {line}" for line in tail)]
    if why:
        parts.append(why)
    parts.append(f"The whole log: {log}")
    return "\n".join(parts)
