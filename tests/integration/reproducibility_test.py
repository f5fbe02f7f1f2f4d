"""Two checkouts, each with caches of its own and another number of jobs, give the same bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from integration.checkout import Checkout, own_caches
from integration.recipes import address, recipe


def test_equal_bytes_at_two_paths(tmp_path: Path) -> None:
    digests, facts = [], []
    for place, jobs in (("one", "1"), ("another/and/deeper", "2")):
        with Checkout(tmp_path / place / "checkout", own_caches(tmp_path / place)) as checkout:
            checkout.add_fixture("vecadd", recipe("vecadd"))
            run = checkout.pants(
                "--cuda-wheels-gpu-archs=9.0",
                f"--process-execution-local-parallelism={jobs}",
                "package",
                address("vecadd"),
            )
            assert run.returncode == 0, "\n" + run.output
            assert any(name.startswith("Compile ") for name in run.processes)
            assert run.counters["local_cache_requests_cached"] == 0
            (wheel,) = checkout.wheels()
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
        facts.append(json.loads(wheel.with_suffix(".facts.json").read_text())["compile"])
    assert digests[0] == digests[1]
    assert [fact["jobs"] for fact in facts] == [1, 2]
    assert [fact["ccache"]["hits"] for fact in facts] == [0, 0]
    assert all(fact["ccache"]["misses"] >= 3 for fact in facts)
