from __future__ import annotations

import json

from pants.engine.process import ProcessCacheScope

from cuda_wheels.goals.lock import lock_process
from cuda_wheels.tables.rows import Row


def test_a_row_is_locked_for_its_own_platform_and_anew_each_time() -> None:
    process = lock_process(Row("arm64", "cu130", "2.11.0", "3.12", ("9.0",)))
    request = json.loads(process.request)
    assert (request["arch"], request["python"]) == ("arm64", "3.12")
    assert "torch==2.11.0" in request["requirements"]
    assert process.output_files == (request["out"],)
    assert process.cache_scope == ProcessCacheScope.PER_SESSION


def test_no_address_is_in_the_request() -> None:
    process = lock_process(Row("arm64", "cu128", "2.9.1", "3.12", ("9.0",)))
    assert "torch==2.9.1+cu128" in json.loads(process.request)["requirements"]
    assert "://" not in process.request
